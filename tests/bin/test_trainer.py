import json
import re
import shlex
import shutil

import pytest

from t2t_lite.training.config import read_metrics

# Small, because the softmax takes most of the time of a dry run.
TINY = (
    "--hparams_override=hidden_size=8,filter_size=16,num_heads=2,"
    "num_hidden_layers=1,batch_tokens=64"
)


TOY = ("--problem=spellout_ende", "--hparams=transformer_toy")
COOLDOWN = (TOY[0], "--hparams=transformer_multi30k")


def test_a_run_has_its_config_vocabulary_and_checkpoints(tiny_run):
    config = json.loads((tiny_run / "config.json").read_text())
    assert config["problem"] == "tiny_digits"
    assert config["hparams"]["hidden_size"] == 8
    assert config["seed"] == 1
    assert {"tensorflow", "keras"} <= config["versions"].keys()
    assert len(config["data"]["fingerprint"]) == 64
    names = {path.name for path in tiny_run.iterdir()}
    assert "tiny_digits.vocab.290.model" in names
    assert {p.name for p in (tiny_run / "checkpoints").glob("*step-*")} == {
        "step-00000002",
        "step-00000004",
        "average-2-step-00000004",
    }


def test_the_same_command_resumes_a_run_until_it_is_complete(
    run_command, tiny_flags, run_copy
):
    flags = [*tiny_flags, f"--output_dir={run_copy}"]
    code, out, err = run_command("trainer", *flags, "--train_steps=6")
    assert code == 0
    assert "from update 4" in err
    assert "step: 6\n" in out
    code, out, err = run_command("trainer", *flags, "--train_steps=6")
    assert code == 0
    assert "step: 6\n" in out
    for command, line in zip(
        ("decoder", "evaluator", "exporter"), err.splitlines()[-3:], strict=True
    ):
        assert f"t2t-lite-{command} --output_dir={run_copy} --usr_dir=" in line
    losses = [each for each in read_metrics(run_copy) if "loss" in each]
    assert [each["step"] for each in losses] == [1, 4, 6]


@pytest.mark.slow
def test_a_run_resumes_with_its_own_seed(run_command, tiny_flags, tmp_path):
    run = f"--output_dir={tmp_path}"
    flags = [*tiny_flags, run, "--seed=7", "--train_steps=1"]
    assert run_command("trainer", *flags)[0] == 0
    code, _, err = run_command("trainer", run, "--train_steps=2")
    assert code == 0, err
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 7


def test_dry_run_reports_sizes_and_costs_and_saves_nothing(
    run_command, tiny_flags, tiny_run, tmp_path
):
    assert tiny_run.exists()  # this fixture generated the data
    code, out, _ = run_command(
        "trainer", *tiny_flags, f"--output_dir={tmp_path / 'run'}", "--dry_run"
    )
    assert code == 0
    for line in (
        r"data: 40 pairs; .*",
        r"parameters: [\d,]+",
        r"vocabulary: 290 and 290",
        r"largest batch: 2 x 4 sentences of 64 tokens per side",
        r"peak memory: \d+\.\d+ GiB",
        r"seconds per update: \d+\.\d+",
        r"time for 4 updates: \d+\.\d s",
        r"FLOPs of 4 updates: \d.*",
    ):
        assert re.search(f"^{line}$", out, re.MULTILINE), line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_dry_run_without_data_reports_what_is_missing(run_command, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "train.en.gz").touch()
    data = f"--data_dir={tmp_path / 'data'}"
    flags = ["--hparams=transformer_toy", TINY, data, "--dry_run"]
    code, out, _ = run_command(
        "trainer", "--problem=multi30k_ende", f"--raw_dir={raw}", *flags
    )
    assert code == 0
    assert f"missing: {tmp_path / 'data'} has no data of multi30k_ende" in out
    assert f"{raw} holds no file train.de.gz" in out
    assert "vocabulary: 8,000 and 8,000\n" in out
    tfds = f"--tfds_dir={tmp_path / 'tfds'}"
    code, out, _ = run_command("trainer", "--problem=wmt_ende", tfds, *flags)
    assert code == 0
    assert "wmt14_translate/de-en (1.7 GB)" in out
    code, _, err = run_command(
        "trainer", "--problem=multi30k_ende", tfds, *flags
    )
    assert code == 2
    assert "--tfds_dir" in err
    assert not (tmp_path / "data").exists()


def test_training_cost_is_printed_last_and_saved_in_the_config(
    run_command, tiny_flags, run_copy
):
    flags = [*tiny_flags, f"--output_dir={run_copy}", "--sustained_tflops=2"]
    code, out, _ = run_command("trainer", *flags)
    assert code == 0
    cost = json.loads((run_copy / "config.json").read_text())["training_cost"]
    # Four updates of two micro-batches, from a corpus of 40 pairs.
    assert 4 * 10 < cost["target_tokens"] < 4 * 512
    assert cost["flops_as_table_2"] == pytest.approx(cost["seconds"] * 2e12)
    first, second = out.splitlines()[-2:]
    assert f"{cost['flops_counted']:.3g} FLOPs counted" in first
    assert second.endswith("FLOPs (time x devices x 2 TFLOP/s)")
    assert run_command("trainer", *flags[:-1])[1].splitlines()[-1] == first


def test_print_hparams_shows_all_hparams_with_overrides(run_command):
    from t2t_lite import registry

    code, out, _ = run_command(
        "trainer",
        "--hparams=transformer_base",
        "--hparams_override=norm_placement=pre,batch_tokens=4096",
        "--print_hparams",
    )
    assert code == 0
    lines = dict(line.split("=") for line in out.splitlines())
    assert lines.keys() == registry.hparams("transformer_base").to_dict().keys()
    assert lines["norm_placement"] == "pre"
    assert lines["batch_tokens"] == "4096"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "problem and hparams"),
        (["--problem=spellout_ende"], "hparams=None"),
        (["--problem=spellout_edne", "--hparams=transformer_toy"], "_ende"),
        (["--problem=spellout_ende", "--hparams=transformer_bsae"], "_base"),
        ([*TOY, "--hparams_override=train_step=3"], "train_steps"),
        ([*TOY, "--hparams_override=num_heads"], "key=value"),
        ([*TOY, "--traim_steps=3"], "--train_steps"),
        ([*TOY, "--train_steps=-1"], "'-1'"),
        ([*TOY, "--usr_dir=/no/such/folder"], "/no/such/folder"),
        ([*TOY, "--best_metric=f1"], "best_metric"),
        ([*COOLDOWN, "--train_steps=20000"], "cooldown=0"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run_command, flags, message):
    code, out, err = run_command("trainer", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_folder_without_a_run_is_named(run_command, tmp_path):
    code, out, err = run_command("trainer", f"--output_dir={tmp_path}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"output_dir={tmp_path}" in err


def test_a_second_trainer_is_refused_and_changes_nothing(
    run_command, tiny_flags, run_copy, tmp_path
):
    from t2t_lite.training.signals import run_lock

    before = (run_copy / "config.json").read_bytes()
    first_start = tmp_path / "first"
    for folder in (run_copy, first_start):
        with run_lock(folder):
            code, _, err = run_command(
                "trainer",
                *tiny_flags,
                f"--output_dir={folder}",
                "--hparams_override=beam_size=9,train_steps=9",
            )
        assert code == 1
        assert f"Another trainer is writing to {folder}" in err
    assert (run_copy / "config.json").read_bytes() == before
    assert [path.name for path in first_start.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_created_is_an_error(
    run_command, tiny_flags, tmp_path
):
    (tmp_path / "run").write_text("a file in the way")
    code, _, err = run_command(
        "trainer", *tiny_flags, f"--output_dir={tmp_path / 'run'}"
    )
    assert code == 1
    assert "run cannot be written: File exists" in err


@pytest.fixture
def own_text(tiny_usr_dir, tmp_path, monkeypatch):
    """Flags for a TSV file; default folders are in the folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    pairs = (f"{'a ' * (i % 9)}{i}\t{'b ' * (i % 9)}{i}\n" for i in range(60))
    (tmp_path / "all.tsv").write_text("".join(pairs))
    return [
        "--problem=text",
        f"--pairs={tmp_path / 'all.tsv'}",
        "--name=mine",
        "--vocab_size=275",
        "--holdout=4",
        "--target_language=en",
        f"--data_dir={tmp_path / 'data'}",
    ]


@pytest.mark.slow
def test_own_text_is_trained_and_evaluated(
    run_command, own_text, tiny_usr_dir, tmp_path
):
    assert run_command("datagen", *own_text)[0] == 0
    (tmp_path / "all.tsv").unlink()
    small = [
        "--hparams=tiny_digits_set",
        f"--usr_dir={tiny_usr_dir}",
        "--train_steps=2",
    ]
    text, data = own_text[0], own_text[-1]
    code, out, err = run_command("trainer", text, data, *small)
    assert code == 0, err
    run = tmp_path / "t2t-lite" / "runs" / "mine" / "tiny_digits_set"
    assert f"output_dir: {run}\n" in out
    config = json.loads((run / "config.json").read_text())
    assert config["problem"] == "text"
    assert config["problem_options"]["name"] == "mine"

    code, out, err = run_command("evaluator", f"--output_dir={run}", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["problem"], report["split"]) == ("mine", "dev")
    assert (report["metric"], report["sentences"]) == ("bleu", 4)
    assert "language en" in report["tokenized_bleu_procedure"]

    named = "--problem=mine", "--hparams=tiny_digits_set", "--split=test"
    assert run_command("evaluator", *named)[0] == 0
    # The run contains its options and the path of its data.
    run_flag = f"--output_dir={run}"
    code, out, err = run_command("trainer", text, run_flag, *small)
    assert code == 0, err
    assert "step: 2\n" in out


def test_shared_embedding_of_two_vocabularies_is_refused_early(
    run_command, own_text, tmp_path
):
    flags = [*own_text, "--hparams=transformer_toy", "--separate_vocabularies"]
    code, out, err = run_command("trainer", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--hparams_override=shared_embedding=false" in err
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_the_error_for_lost_data_has_flags_to_restore_it(run_command, tmp_path):
    pairs, data, run = (tmp_path / name for name in ("p.tsv", "data", "run"))
    numbers = [f"{n} {n * 7 % 50}" for n in range(400)]
    pairs.write_text("".join(f"{text}\t{text}\n" for text in numbers))
    flags = ["--problem=text", f"--pairs={pairs}", "--vocab_size=280"]
    folders = [f"--data_dir={data}", f"--output_dir={run}"]
    code, _, err = run_command("datagen", *flags, folders[0], "--seed=9")
    assert code == 0, err
    train = ["--hparams=transformer_toy", *folders]
    code, _, err = run_command("trainer", *flags, *train, "--train_steps=2")
    assert code == 0, err

    shutil.rmtree(data)
    _, _, err = run_command("evaluator", folders[1], "--split=test")
    match = re.search("is lost, t2t-lite-datagen (.*) generates", err)
    assert run_command("datagen", *shlex.split(match[1]))[0] == 0
    code, _, err = run_command("evaluator", folders[1], "--split=test")
    assert code == 0, err

    shutil.rmtree(data)
    _, _, err = run_command("trainer", folders[1], "--train_steps=4")
    match = re.search(r"(--data_dir=\S+) generates", err)
    again = [folders[1], match[1], "--train_steps=4"]
    code, _, err = run_command("trainer", *again)
    assert code == 0, err
