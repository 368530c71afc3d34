import json

import pytest

from t2t_lite.doctor import checks
from t2t_lite.doctor.finding import Finding


@pytest.fixture
def finds(monkeypatch):
    """Replaces the checks: each finds what it is given."""

    def make(*findings):
        asked_for = []

        def check(asked):
            asked_for.append(asked)
            yield from findings

        monkeypatch.setattr(checks.examine, "__defaults__", ((check,),))
        return asked_for

    return make


def test_each_check_is_a_line(run_command, finds, tmp_path):
    finds(Finding("Python", True, "3.12.1"), Finding("memory", True, "7\nGiB"))
    code, out, err = run_command("doctor", f"--data_dir={tmp_path}")
    assert (code, err) == (0, "")
    assert out == "ok    Python: 3.12.1\nok    memory: 7 GiB\n"


def test_something_to_do_is_exit_code_1(run_command, finds, tmp_path):
    finds(Finding("Python", True, "3"), Finding("memory", False, "buy some"))
    flag = f"--data_dir={tmp_path}"
    code, out, err = run_command("doctor", flag)
    assert (code, out.splitlines()[1]) == (1, "TO DO memory: buy some")
    assert err == "t2t-lite-doctor: 1 of 2 checks found something to do.\n"
    code, out, _ = run_command("doctor", flag, "--json")
    assert code == 1
    assert json.loads(out) == {
        "ok": False,
        "checks": [
            {"name": "Python", "ok": True, "text": "3"},
            {"name": "memory", "ok": False, "text": "buy some"},
        ],
    }


def test_the_flags_say_what_to_look_at(run_command, finds, tiny_flags):
    asked_for = finds()
    problem, _, usr_dir, data_dir = tiny_flags
    flags = [problem, usr_dir, data_dir, "--output_dir=/run", "--full"]
    assert (
        run_command("doctor", *flags, "--workers=a:1,b:2", "--worker=1")[0] == 0
    )
    (asked,) = asked_for
    assert (asked.problem.name, str(asked.output_dir)) == (
        "tiny_digits",
        "/run",
    )
    assert (asked.workers, asked.worker, asked.seconds) == ("a:1,b:2", 1, None)


def test_the_default_run_is_named_by_problem_and_set(run_command, finds):
    asked_for = finds()
    flags = ["--problem=spellout_ende", "--hparams=transformer_toy"]
    assert run_command("doctor", *flags)[0] == 0
    folder = str(asked_for[0].output_dir)
    assert folder.endswith("t2t-lite/runs/spellout_ende/transformer_toy")


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--problem=spellout_end", "spellout_ende"),
        ("--hparams=transformer_bigg", "transformer_big"),
    ],
)
def test_an_unknown_name_is_wrong_usage(run_command, flag, hint):
    code, out, err = run_command("doctor", flag)
    assert (code, out, f"Did you mean {hint}" in err) == (2, "", True)


@pytest.mark.slow
def test_all_checks_run_on_this_machine(run_command, tiny_flags, tiny_run):
    problem, _, usr_dir, data_dir = tiny_flags
    flags = [problem, usr_dir, data_dir, f"--output_dir={tiny_run}", "--json"]
    _, out, _ = run_command("doctor", *flags)
    found = {each["name"]: each for each in json.loads(out)["checks"]}
    assert {"data", "run", "replicas", "packages"} <= found.keys()
    for name in ("Python", "data", "run", "replicas"):
        assert found[name]["ok"], found[name]["text"]
    assert found["replicas"]["text"].startswith("an update of 2 ")
