"""`t2t_lite.train` trains like the command."""

import dataclasses
import json
import threading

import numpy as np
import pytest

import t2t_lite
from t2t_lite.errors import UsageError
from t2t_lite.training.options import TrainingOptions


@pytest.fixture(scope="module")
def records():
    """The records that the callback of `trained` got."""
    return []


@pytest.fixture(scope="module")
def trained(tiny_run, tiny_usr_dir, tmp_path_factory, records):
    """A run like `tiny_run`, trained by a call outside the main thread."""
    runs = []

    def train():
        runs.append(
            t2t_lite.train(
                problem="tiny_digits",
                hparams="tiny_digits_set",
                usr_dir=tiny_usr_dir,
                data_dir=tiny_usr_dir.parent / "data",
                output_dir=tmp_path_factory.mktemp("run"),
                save_steps=2,
                log_steps=2,
                callbacks=[records.append],
            )
        )

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    return runs[0]


def test_call_trains_the_same_weights_as_the_command(trained, tiny_run):
    from t2t_lite.training.run import Run

    ours, found = trained.load_model()
    assert found.step == 4
    theirs, _ = Run.open(tiny_run).load_model()
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_run_reports_its_progress(trained):
    from t2t_lite.training.run import Run

    run = Run.open(trained)  # a Run instead of its path
    assert run.progress == trained.progress
    assert run.progress.step == run.progress.best["step"] == 4
    assert run.progress.average.name == "average-2-step-00000004"
    assert run.progress.cost["target_tokens"] > 40
    assert repr(run) == (
        f"Run({str(run.output_dir)!r}, problem='tiny_digits', step=4)"
    )


def test_problem_and_hparams_may_be_objects(trained, tmp_path):
    report = t2t_lite.train(
        trained.problem,
        trained.hparams,
        data_dir=trained.data.folder,
        output_dir=tmp_path / "run",
        dry_run=True,
    )
    assert "vocabulary: 290 and 290" in report
    assert "time for 4 updates: " in report
    assert not (tmp_path / "run").exists()


def test_unnamed_values_have_no_default_folder(trained):
    with pytest.raises(UsageError, match="output_dir is required"):
        t2t_lite.train(trained.problem, trained.hparams)


def test_unregistered_problem_is_refused():
    class Nameless(t2t_lite.Problem):
        pass

    with pytest.raises(UsageError, match="@register_problem before Nameless"):
        t2t_lite.train(Nameless(), "transformer_toy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": "spellout_edne"}, "Did you mean spellout_ende"),
        ({"best_metric": "f1"}, "best_metric must be one of auto, loss, bleu"),
        ({"keep_best": 0}, "keep_best must be .*got 0"),
        ({"keep_bset": 2}, "Did you mean keep_best"),
    ],
)
def test_invalid_options_are_wrong_usage(options, message):
    names = {"problem": "spellout_ende", "hparams": "transformer_toy"}
    with pytest.raises(UsageError, match=message):
        t2t_lite.train(**names | options)


def test_every_option_is_a_flag_and_documented():
    from t2t_lite.bin import trainer

    flags = vars(trainer.main.make_parser().parse_args([]))
    documented = t2t_lite.train.__doc__
    for field in dataclasses.fields(TrainingOptions):
        assert field.name in flags
        assert f" {field.name}: {field.metadata['help'][:20]}" in (documented)


def test_name_of_a_folder_must_be_utf8():
    with pytest.raises(UsageError, match="output_dir must be .* in UTF-8"):
        t2t_lite.train(output_dir="/a/b\udcff")


def test_callbacks_get_the_records_of_the_run(trained, records):
    lines = (trained.output_dir / "metrics.jsonl").read_text().splitlines()
    assert records == [json.loads(line) for line in lines]
    history = trained.history()
    assert history["step"] == [record["step"] for record in records]
    assert history["loss"] == [record.get("loss") for record in records]
    assert any("dev_loss" in record for record in records)
    assert {len(column) for column in history.values()} == {len(records)}
