"""Initialization of a new run with the weights of another one."""

import json
import re
import shutil

import numpy as np
import pytest

from support.words import HPARAMS, Words, create_run
from t2t_lite import train
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.registry import problem, register_problem
from t2t_lite.training import checkpoints
from t2t_lite.training.config import find_config
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import Job
from t2t_lite.training.warm_start import check_warm_start, load_initial_weights


class OtherWords(Words):
    letters = "bc"


@pytest.fixture
def begin(forget_plugins, tmp_path):
    """Return a function that creates a run, with `init_from` if given."""
    register_problem("initial_words")(Words)
    register_problem("initial_other_words")(OtherWords)

    def make(folder, words="words", hparams=HPARAMS, init_from=None, **options):
        task = problem(f"initial_{words}")
        data = tmp_path / f"data_{words}"
        DataGenerator(task, data, progress=False).run()
        start = TrainingOptions(init_from=init_from, **options)
        output_dir = tmp_path / folder
        job = Job(task, hparams, None, output_dir, data, start, None)
        facts = check_warm_start(job)
        return create_run(output_dir, task, data, hparams=hparams, facts=facts)

    return make


def _save(run, step=7):
    tensors = checkpoints.model_tensors(run.model())
    checkpoints.save(run.checkpoints_dir, tensors, {"step": step})
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _loaded(run):
    model = run.model()
    load_initial_weights(run, model)
    tensors = checkpoints.model_tensors(model)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def test_run_with_the_same_vocabulary_loads_all_weights(begin):
    old = begin("old")
    saved = _save(old)
    # Dropout is not a size, and a key_depth of 4 is the default here.
    new = begin(
        "new",
        init_from=old.output_dir,
        hparams=HPARAMS.replace(residual_dropout=0.3, key_depth=4),
    )
    loaded = _loaded(new)
    for name, value in saved.items():
        np.testing.assert_array_equal(loaded[name], value)
    source = new.config["initialized_from"]
    assert source["run"] == str(old.output_dir)
    assert source["step"] == 7
    found = checkpoints.list_checkpoints(old.checkpoints_dir)[0]
    assert source["checksum"] == found.checksum


def test_init_from_may_be_a_checkpoint(begin):
    old = begin("old")
    _save(old, 7)
    first = checkpoints.list_checkpoints(old.checkpoints_dir)[0]
    _save(old, 9)
    new = begin("new", init_from=first.path)
    assert new.config["initialized_from"]["step"] == 7


def test_another_vocabulary_is_refused(begin):
    old = begin("old")
    _save(old)
    with pytest.raises(UsageError, match="vocabulary of"):
        begin("new", "other_words", init_from=old.output_dir)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        ({}, {"hidden_size": 16, "norm_placement": "pre"}),
        ({}, {"num_decoder_layers": 2, "embedding_scale": "none"}),
        ({}, {"target_space_embedding": True, "vocab_divisor": 64}),
        ({}, {"norm_epsilon": 0.001, "max_relative_position": 4}),
        ({"position_encoding": "learned"}, {"max_length": 64}),
    ],
)
def test_different_sizes_are_named_in_the_error(begin, base, changes):
    base = HPARAMS.replace(**base)
    old = begin("old", hparams=base)
    _save(old)
    with pytest.raises(UsageError) as error:
        begin("new", init_from=old.output_dir, hparams=base.replace(**changes))
    for name, value in changes.items():
        found = f"{name} is \\S+ in that run and {value} in this one"
        assert re.search(found, str(error))


@pytest.mark.parametrize("dry_run", [False, True])
def test_refused_warm_start_generates_no_data(begin, tmp_path, dry_run):
    folders = {"output_dir": tmp_path / "new", "data_dir": tmp_path / "data"}
    for options in ({"init_from": tmp_path}, {"freeze": "encodr"}):
        options |= {**folders, "dry_run": dry_run}
        with pytest.raises(UsageError, match=next(iter(options))):
            train("initial_words", HPARAMS, **options)
    assert not any(folder.exists() for folder in folders.values())


def test_weights_that_changed_before_loading_are_refused(begin):
    old = begin("old")
    _save(old)
    new = begin("new", init_from=old.output_dir)
    shutil.rmtree(old.checkpoints_dir)
    with pytest.raises(T2TLiteError, match="is missing or has changed"):
        load_initial_weights(new, new.model())


def test_init_from_of_an_existing_run_cannot_change(begin, tmp_path):
    old = begin("old")
    _save(old)
    begin("new", init_from=old.output_dir)
    shutil.rmtree(old.output_dir)  # no longer needed
    config = find_config(tmp_path / "new")

    def facts(init_from):
        options = TrainingOptions(init_from=init_from)
        folders = tmp_path / "new", tmp_path
        job = Job(None, HPARAMS, None, *folders, options, config)
        return check_warm_start(job)

    assert facts(old.output_dir) == facts(None) == {}
    with pytest.raises(T2TLiteError, match="init_from.*/other"):
        facts("/other")


@pytest.mark.slow
def test_fine_tuning_by_command(tiny_run, tiny_flags, run_command, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(tiny_run, source)
    flags = [
        *tiny_flags,
        f"--output_dir={tmp_path / 'tuned'}",
        f"--init_from={source}",
        "--freeze=encoder,embeddings",
    ]
    code, out, err = run_command("trainer", *flags, "--train_steps=2")
    assert code == 0, err
    assert "step: 2\n" in out
    name = "average-2-step-00000004"
    assert f" the average of 2 up to step 4 of {source}." in err
    # The decoder: 2 attentions of 4 * 8 * 8, 280 feed-forward, 3 norms of 16.
    assert re.search(r"\n840 of 3,\d{3} parameters are trained\.\n", err)
    tuned = checkpoints.Reader(
        checkpoints.list_checkpoints(tmp_path / "tuned" / "checkpoints")[0].path
    )
    before = checkpoints.Reader(source / "checkpoints" / name)
    for path in set(before.shapes) - {"state"}:
        same = np.array_equal(tuned[path], before[path])
        assert same == ("decoder_" not in path), path
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert config["freeze"] == ["embeddings", "encoder"]
    words = config["conditions"]["command"]
    assert f"--init_from={source / 'checkpoints' / name}" in words
    # A run cannot change its frozen weights.
    code, out, err = run_command("trainer", *flags[:-1], "--train_steps=4")
    assert code == 1
    assert "freeze is 'embeddings,encoder' in the run, but absent" in err
