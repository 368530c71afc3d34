"""Parsing through the commands: from treebank files to a served parser."""

import json
import shutil

import numpy as np
import pytest

from support import tiny_treebank
from support.lines import records
from t2t_lite.parsing import trees
from t2t_lite.parsing.trees import parse_trees

SENTENCES = ["the cat sees a dog .", "", "cat ( bird", "dog"]
SMALL = (
    "--hparams_override=hidden_size=8,filter_size=16,num_heads=2,"
    "num_hidden_layers=1,train_steps=2,batch_tokens=256,beam_size=3,"
    "extra_decode_length=30"
)


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Trainer flags for a run of two updates."""
    treebank = tiny_treebank.write(tmp_path_factory.mktemp("treebank"))
    return [
        "--problem=wsj_parsing",
        "--hparams=transformer_parsing_small",
        f"--raw_dir={treebank}",
        f"--data_dir={tmp_path_factory.mktemp('data')}",
        SMALL,
        f"--output_dir={tmp_path_factory.mktemp('run')}",
        "--problem_options=train=1-7,dev=8,test=9,vocab_size=290",
    ]


@pytest.fixture(scope="module")
def run(flags):
    """The `--output_dir` flag of a run that is practically untrained."""
    from t2t_lite.bin import trainer

    assert trainer.main(flags) == 0
    return flags[-2]


def test_a_run_logs_dev_f1_and_resumes_with_its_options(
    run_command, flags, run
):
    folder = run.partition("=")[2]
    with open(f"{folder}/metrics.jsonl") as file:
        (score,) = [r["dev_f1"] for r in records(file) if "dev_f1" in r]
    assert 0 <= score <= 100
    code, _, err = run_command("trainer", *flags[:-1])
    assert code == 0, err


@pytest.mark.parametrize("constrained", ["true", "false"])
def test_output_line_i_is_a_tree_over_input_line_i(decode, run, constrained):
    flags = [run, f"--constrained={constrained}", "--format=json", "--nbest=2"]
    code, out, err = decode(SENTENCES, *flags)
    assert code == 0, err
    results = records(out)
    assert [result["source"] for result in results] == SENTENCES
    for result in results:
        words = list(map(trees.escape_brackets, result["source"].split()))
        for hypothesis in result["hypotheses"]:
            found = list(parse_trees([hypothesis["text"]]))
            assert [trees.words(tree) for tree in found] == [words][
                : len(found)
            ]
            assert len(found) == bool(words)
            if constrained == "true":
                assert hypothesis["repairs"] == {}
    # The untrained parser writes invalid trees, which are repaired.
    if constrained == "false":
        assert any(results[0]["hypotheses"][0]["repairs"].values())


def test_report_has_the_documented_keys(run_command, run):
    code, out, err = run_command("evaluator", run, "--split=test", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["metric"] == "bracket_f1" and report["sentences"] == 2
    assert report.keys() >= {
        *("recall", "precision", "f1", "complete_match", "errors"),
        *("repaired", "repairs", "constrained", "beam_size", "alpha"),
    }
    assert report["beam_size"] == 3 and report["alpha"] == 0.3
    _, out, _ = run_command("evaluator", run)
    assert "{" not in out and "within_cutoff: sentences 2," in out


@pytest.mark.slow
def test_an_export_serves_the_trees_of_the_decoder(
    run_command, decode, run, tmp_path
):
    export = f"--export_dir={tmp_path / 'export'}"
    flags = [export, "--constrained=true", "--attention"]
    code, out, err = run_command("exporter", run, *flags)
    assert code == 0, err
    shutil.move(out.strip(), tmp_path / "moved")
    import tensorflow as tf

    served = tf.saved_model.load(str(tmp_path / "moved"))
    results = served.signatures["serving_default"](tf.constant(SENTENCES))
    nbest = served.signatures["nbest"](tf.constant(SENTENCES))
    _, decoded, _ = decode(SENTENCES, run, "--constrained=true")
    assert [text.decode() for text in results["outputs"].numpy()] == decoded
    assert nbest["outputs"].shape == (4, 3)
    assert [text.decode() for text in nbest["outputs"][:, 0].numpy()] == decoded
    # The other signatures require trees in the format of the model.
    pairs = {"inputs": tf.constant(SENTENCES), "targets": results["targets"]}
    shown = served.signatures["attention"](**pairs)["target_tokens"].numpy()
    for tokens, target in zip(shown, results["targets"].numpy(), strict=True):
        tokens = [token for token in tokens.tolist() if token]
        assert tokens == [*target.split(), "⟨end⟩".encode()]
    assert np.isfinite(served.signatures["score"](**pairs)["scores"]).all()


def test_an_unconstrained_parser_is_not_exported(run_command, run, tmp_path):
    flags = [f"--export_dir={tmp_path}", "--constrained=false"]
    code, _, err = run_command("exporter", run, *flags)
    assert code == 2 and "--constrained=true" in err


@pytest.mark.slow
def test_dry_run_of_the_whole_treebank_needs_only_the_files(
    run_command, tmp_path
):
    sections = [f"{number:02d}" for number in range(25)]
    tiny_treebank.write(tmp_path, sections, 1)
    code, out, err = run_command(
        "trainer",
        "--problem=wsj_parsing",
        "--hparams=transformer_parsing_base",
        f"{SMALL},gradient_accumulation_steps=1",
        f"--raw_dir={tmp_path}",
        f"--data_dir={tmp_path / 'data'}",
        "--dry_run",
    )
    assert code == 0, err
    assert "corpus: found" in out
    assert "16,000 and 63" in out
    assert "peak memory" in out and "FLOPs per update" in out


@pytest.mark.slow
def test_tokenize_splits_raw_text_into_treebank_words(decode, run):
    flags = [run, "--tokenize", "--format=json"]
    code, out, err = decode(["It isn't (yet) a dog.", ""], *flags)
    assert code == 0, err
    first, second = records(out)
    assert first["source"] == "It is n't -LRB- yet -RRB- a dog ."
    (tree,) = parse_trees([first["hypotheses"][0]["text"]])
    assert trees.words(tree) == first["source"].split()
    assert second["source"] == second["hypotheses"][0]["text"] == ""
