"""Runs of ours as folders of tensor2tensor."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from support.places import SHARED_DATA
from support.t2t_train_dir import (
    PIECES,
    VALUES,
    variables_of,
    write_train_dir,
)
from t2t_lite import plugins, registry
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor import exporting
from t2t_lite.interop.tensor2tensor.exporting import export_run, values_of
from t2t_lite.interop.tensor2tensor.hparams import hparams_of
from t2t_lite.interop.tensor2tensor.importing import Source, import_run
from t2t_lite.interop.tensor2tensor.train_dir import read_train_dir
from t2t_lite.model.transformer import Transformer

RECORDED = SHARED_DATA / "t2t/forward"


def imported(folder, output_dir, vocabulary, space=None):
    plugins.load_plugins()
    text = registry.problem("text", {"vocabulary": str(vocabulary)})
    source = Source(read_train_dir(folder), [vocabulary], space)
    return import_run(source, output_dir, text, seed=1).run


def logits(run, ids):
    model, _ = run.load_model()
    return np.asarray(model({"inputs": ids, "targets": ids}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre", "position_encoding": "learned"},
        {"num_heads": 3, "hidden_size": 33, "norm_epsilon": 1e-3},
        {"key_depth": 16, "value_depth": 24, "shared_embedding": False},
        {"num_encoder_layers": 3, "num_decoder_layers": 1},
        {"position_encoding": "none", "max_relative_position": 5},
        {"embedding_scale": "none", "source_vector": True, "vocab_divisor": 8},
        {"residual_dropout": 0.3, "max_length": 99},
    ],
)
def test_values_mean_the_same_model_again(changes):
    model = {"position_encoding": "concatenated", "shift_whole_rows": True}
    hparams = HParams(**{**model, **changes})
    assert hparams_of(values_of(hparams)).model_part() == hparams.model_part()


@pytest.mark.parametrize("name", ["tiny", "base_v3_small", "relative"])
def test_variables_are_those_of_tensor2tensor(name):
    """By lists of variables that tensor2tensor 1.15.7 made."""
    if not RECORDED.exists():
        pytest.skip("tensor2tensor's recorded lists are not there")
    values, recorded = (
        json.loads((RECORDED / f"{name}.{ending}.json").read_text())
        for ending in ("hparams", "varlist")
    )
    (rows,) = {int(n.split("_")[2]) for n, *_ in recorded if "symbol_" in n}
    hparams = hparams_of(values)
    model = Transformer.from_hparams(hparams, rows, rows).build_weights()
    weights = {v.path.partition("/")[2]: np.asarray(v) for v in model.weights}
    found = exporting.variables_of(hparams, weights)
    shapes = {name: list(shape) for name, shape, *_ in recorded}
    assert {n: list(v.shape) for n, v in found.items()} == shapes


def test_an_imported_run_is_exported_as_it_was(tmp_path):
    values = {**VALUES, "symbol_modality_num_shards": 16}
    variables = variables_of(values, len(PIECES))
    vocabulary = write_train_dir(tmp_path / "t2t", values, variables, step=7)
    run = imported(tmp_path / "t2t", tmp_path / "run", vocabulary, space=8)
    there = tmp_path / "again"
    assert export_run(run, "default", there, "translate_xxyy").step == 7
    assert sorted(path.name for path in there.iterdir()) == [
        "checkpoint",
        "flags.txt",
        "hparams.json",
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
        f"vocab.translate_xxyy.{len(PIECES)}.subwords",
    ]
    newest = tf.train.latest_checkpoint(str(there))
    assert pathlib.Path(newest).name == "model.ckpt-7"
    reader = tf.train.load_checkpoint(newest)
    names = set(reader.get_variable_to_shape_map())
    assert names == variables.keys() | {"global_step"}
    assert reader.get_tensor("global_step") == 7
    for name, value in variables.items():
        found = reader.get_tensor(name)
        if "target_space" in name:
            assert not np.any(np.delete(found, 8, axis=0))
            found, value = found[8], value[8]
        np.testing.assert_array_equal(found, value)


def test_the_papers_positions_become_a_table(tmp_path):
    variables = variables_of(VALUES, len(PIECES))
    vocabulary = write_train_dir(tmp_path / "t2t", VALUES, variables)
    run = imported(tmp_path / "t2t", tmp_path / "run", vocabulary)
    run.hparams = run.hparams.replace(
        position_encoding="interleaved",
        max_length=10,
        longest_source=20,
        extra_decode_length=3,
    )
    export_run(run, "default", tmp_path / "again", None)
    again = imported(tmp_path / "again", tmp_path / "other", vocabulary)
    assert again.hparams.position_encoding == "learned"
    assert again.hparams.max_length == 23
    ids = np.arange(2, 25)[None]
    np.testing.assert_allclose(logits(again, ids), logits(run, ids), atol=1e-5)


def test_what_tensor2tensor_cannot_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no attention_window; got 4."):
        values_of(HParams(attention_window=4))
    vocabulary = write_train_dir(
        tmp_path / "t2t", VALUES, variables_of(VALUES, len(PIECES))
    )
    run = imported(tmp_path / "t2t", tmp_path / "run", vocabulary)
    with pytest.raises(UsageError, match="t2t_dir must be a new folder; "):
        export_run(run, "default", tmp_path / "t2t", None)
    run.encoders["inputs"].path.write_bytes(b"\0")
    with pytest.raises(UsageError, match="is of another kind."):
        export_run(run, "default", tmp_path / "again", None)
    assert not (tmp_path / "again").exists()
