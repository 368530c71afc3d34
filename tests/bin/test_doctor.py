import json
import shutil

import pytest


def findings(run_command, *flags):
    code, out, _ = run_command("doctor", *flags, "--json")
    report = json.loads(out)
    assert report["ok"] == (code == 0)
    return {each["name"]: each for each in report["checks"]}


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def folders(tiny_flags, run_copy, tmp_path):
    """Copies of the data and the run, and the flags that name them."""
    problem, _, usr_dir, data_dir = tiny_flags
    data = shutil.copytree(data_dir.partition("=")[2], tmp_path / "data")
    flags = [problem, usr_dir, f"--data_dir={data}", f"--output_dir={run_copy}"]
    return data, run_copy, flags


def test_intact_data_and_run_pass(run_command, folders):
    *_, flags = folders
    found = findings(run_command, *flags)
    for name in ("devices", "data_dir", "output_dir", "data", "run"):
        assert found[name]["ok"], found[name]["text"]
    assert "48 pairs" in found["data"]["text"]
    assert "step 4" in found["run"]["text"]


def test_a_run_alone_names_its_data(run_command, folders, tiny_flags, tmp_path):
    _, run, (_, usr_dir, *_) = folders
    found = findings(run_command, usr_dir, f"--output_dir={run}")
    assert "48 pairs" in found["data"]["text"]
    config = json.loads((run / "config.json").read_text())
    config["data"]["dir"] = str(tmp_path / "lost")
    (run / "config.json").write_text(json.dumps(config))
    found = findings(run_command, usr_dir, f"--output_dir={run}")
    assert not found["data"]["ok"] and "lost" in found["data"]["text"]
    assert found["run"]["ok"]


def test_a_damaged_shard_and_a_damaged_checkpoint_are_named(
    run_command, folders
):
    data, run, flags = folders
    shard = next(data.glob("tiny_digits-dev-*"))
    damage(shard)
    damage(next((run / "checkpoints/step-00000004").glob("tensors.data*")))
    found = findings(run_command, *flags)
    assert not found["data"]["ok"] and shard.name in found["data"]["text"]
    assert not found["run"]["ok"] and "step-00000004" in found["run"]["text"]


def test_a_missing_vocabulary_fails_the_check_of_the_run(run_command, folders):
    _, run, flags = folders
    next(run.glob("*.vocab.*")).unlink()
    assert not findings(run_command, *flags)["run"]["ok"]


def test_a_damaged_config_fails_only_the_check_of_the_run(run_command, folders):
    _, run, flags = folders
    (run / "config.json").write_text("{")
    found = findings(run_command, *flags)
    assert [name for name in found if not found[name]["ok"]] == ["run"]


def test_each_check_is_a_line_and_a_failure_is_exit_code_1(
    run_command, tmp_path
):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "below"
    code, out, err = run_command("doctor", f"--data_dir={folder}")
    assert (code, len(err.splitlines())) == (1, 1)
    lines = {line[6:].partition(":")[0]: line for line in out.splitlines()}
    assert lines["devices"].startswith("ok    ")
    assert lines["data_dir"].startswith("FAIL  ")


def test_an_unknown_name_is_wrong_usage(run_command):
    code, out, err = run_command("doctor", "--problem=spellout_end")
    assert (code, out) == (2, "")
    assert "spellout_ende" in err
