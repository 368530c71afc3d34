"""Parsing through the commands: from treebank files to a served parser."""

import json
import shutil

import numpy as np
import pytest

from support import tiny_treebank
from t2t_lite.parsing import trees
from t2t_lite.parsing.tree_reader import parse_line

SENTENCES = ["the cat sees a dog .", "", "cat ( bird", "dog"]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    return tiny_treebank.write(tmp_path_factory.mktemp("treebank"))


@pytest.fixture(scope="module")
def flags(treebank, tmp_path_factory):
    return [
        "--problem=wsj_parsing",
        "--hparams=transformer_parsing_small",
        f"--raw_dir={treebank}",
        f"--data_dir={tmp_path_factory.mktemp('data')}",
        "--problem_options=train=1-7,dev=8,test=9,vocab_size=290",
    ]


SMALL = (
    "--hparams_override=hidden_size=8,filter_size=16,num_heads=2,"
    "num_hidden_layers=1,train_steps=2,batch_tokens=256,beam_size=3,"
    "extra_decode_length=30"
)


@pytest.fixture(scope="module")
def run(flags, tmp_path_factory):
    """A run of two updates: a parser that knows nothing."""
    from t2t_lite.bin import trainer

    output_dir = tmp_path_factory.mktemp("run")
    code = trainer.main([*flags, SMALL, f"--output_dir={output_dir}"])
    assert code == 0
    return output_dir


def test_metrics_have_the_f1_of_dev(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    scores = [r["dev_f1"] for r in map(json.loads, lines) if "dev_f1" in r]
    assert len(scores) == 1 and 0 <= scores[0] <= 100


def test_a_model_is_scored_on_gold_trees_in_one_command(
    run_command, run, tmp_path
):
    gold, text = tmp_path / "gold.mrg", tmp_path / "text"
    gold.write_text(
        "( (S\n  (NP-SBJ (DT The) (NN cat))\n  (VP (VBZ is) (RB n't)"
        " (NP (-NONE- *)))\n  (. .)))\n"
    )
    text.write_text("The cat isn't.\n")
    reports = []
    for flags in ([], [f"--text={text}"]):
        code, out, err = run_command(
            "bracket_f1",
            f"--gold={gold}",
            f"--output_dir={run}",
            *flags,
            "--json",
        )
        assert code == 0, err
        reports.append(json.loads(out))
    assert reports[0] == reports[1]
    assert (reports[0]["valid"], reports[0]["words"]) == (1, 4)


def test_later_commands_know_the_options(run_command, flags, run):
    without = [flag for flag in flags if "options" not in flag]
    again = [*without, SMALL, f"--output_dir={run}"]
    code, _, err = run_command("trainer", *again)
    assert code == 0, err


@pytest.mark.parametrize("constrained", ["true", "false"])
def test_line_i_out_is_a_tree_over_line_i_in(
    run_command, run, tmp_path, constrained
):
    (tmp_path / "in.txt").write_text("".join(f"{s}\n" for s in SENTENCES))
    code, out, err = run_command(
        "decoder",
        f"--output_dir={run}",
        f"--decode_from_file={tmp_path / 'in.txt'}",
        f"--constrained={constrained}",
        "--format=json",
        "--nbest=2",
    )
    assert code == 0, err
    answers = list(map(json.loads, out.splitlines()))
    assert [answer["source"] for answer in answers] == SENTENCES
    for answer in answers:
        words = list(map(trees.escape_brackets, answer["source"].split()))
        for hypothesis in answer["hypotheses"]:
            found = parse_line(hypothesis["text"])
            assert [trees.words(tree) for tree in found] == [words][
                : len(found)
            ]
            assert len(found) == bool(words)
            if constrained == "true":
                assert hypothesis["repairs"] == {}
    # A parser that knows nothing writes nonsense, which is repaired.
    if constrained == "false":
        assert any(answers[0]["hypotheses"][0]["repairs"].values())


def test_report_is_that_of_the_contract(run_command, run):
    code, out, err = run_command(
        "evaluator", f"--output_dir={run}", "--split=test", "--json"
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["metric"] == "bracket_f1" and report["sentences"] == 2
    assert report.keys() >= {
        *("recall", "precision", "f1", "complete_match", "errors"),
        *("repaired", "repairs", "constrained", "beam_size", "alpha"),
    }
    assert report["beam_size"] == 3 and report["alpha"] == 0.3


def test_report_for_people_has_no_braces(run_command, run):
    code, out, _ = run_command("evaluator", f"--output_dir={run}")
    assert code == 0 and "bracket_f1 " in out
    assert "{" not in out and "within_cutoff: sentences 2," in out


@pytest.mark.slow
def test_served_trees_are_those_of_the_decoder(
    run_command, run_process, run, tmp_path
):
    code, out, err = run_command(
        "exporter",
        f"--output_dir={run}",
        f"--export_dir={tmp_path / 'export'}",
        "--constrained=true",
        "--attention",
    )
    assert code == 0, err
    shutil.move(out.strip(), tmp_path / "moved")
    import tensorflow as tf

    served = tf.saved_model.load(str(tmp_path / "moved"))
    answers = served.signatures["serving_default"](tf.constant(SENTENCES))
    nbest = served.signatures["nbest"](tf.constant(SENTENCES))
    (tmp_path / "in.txt").write_text("".join(f"{s}\n" for s in SENTENCES))
    code, out, _ = run_command(
        "decoder",
        f"--output_dir={run}",
        f"--decode_from_file={tmp_path / 'in.txt'}",
        "--constrained=true",
    )
    decoded = out.split("\n")[:-1]
    assert [text.decode() for text in answers["outputs"].numpy()] == decoded
    assert nbest["outputs"].shape == (4, 3)
    assert [text.decode() for text in nbest["outputs"][:, 0].numpy()] == decoded
    # The other signatures take a tree as the model writes it.
    pairs = {"inputs": tf.constant(SENTENCES), "targets": answers["targets"]}
    shown = served.signatures["attention"](**pairs)["target_tokens"].numpy()
    for tokens, target in zip(shown, answers["targets"].numpy(), strict=True):
        tokens = [token for token in tokens.tolist() if token]
        assert tokens == [*target.split(), "⟨end⟩".encode()]
    assert np.isfinite(served.signatures["score"](**pairs)["scores"]).all()


def test_an_unconstrained_parser_is_not_exported(run_command, run, tmp_path):
    code, _, err = run_command(
        "exporter",
        f"--output_dir={run}",
        f"--export_dir={tmp_path}",
        "--constrained=false",
    )
    assert code == 2 and "--constrained=true" in err


def test_only_answers_with_a_form_can_be_constrained(run_command, tiny_run):
    code, _, err = run_command(
        "evaluator", f"--output_dir={tiny_run}", "--constrained=true"
    )
    assert code == 2 and "such as trees" in err


def test_dry_run_of_the_whole_treebank_needs_only_the_files(
    run_command, tmp_path
):
    sections = [f"{number:02d}" for number in range(25)]
    tiny_treebank.write(tmp_path, sections, 1)
    code, out, err = run_command(
        "trainer",
        "--problem=wsj_parsing",
        "--hparams=transformer_parsing_base",
        "--hparams_override=hidden_size=8,filter_size=16,num_heads=2,"
        "num_hidden_layers=1,batch_tokens=256,micro_batches=1",
        f"--raw_dir={tmp_path}",
        f"--data_dir={tmp_path / 'data'}",
        "--dry_run",
    )
    assert code == 0, err
    assert "found: 20 files of train, 200-2199" in out
    assert "vocabulary: 16,000 and 63" in out
    assert "peak memory" in out and "FLOPs per update" in out


def test_raw_text_is_split_into_the_words_of_a_treebank(
    run_command, run, tmp_path
):
    (tmp_path / "in.txt").write_text("It isn't (yet) a dog.\n\n")
    flags = [f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in.txt'}"]
    code, out, err = run_command(
        "decoder", *flags, "--tokenize", "--format=json"
    )
    assert code == 0, err
    first, second = map(json.loads, out.splitlines())
    assert first["source"] == "It is n't -LRB- yet -RRB- a dog ."
    (tree,) = parse_line(first["hypotheses"][0]["text"])
    assert trees.words(tree) == first["source"].split()
    assert second["source"] == second["hypotheses"][0]["text"] == ""


def test_trees_are_drawn_for_people(run_command, run, tmp_path):
    (tmp_path / "in.txt").write_text("dog sees\n\n")
    flags = [f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in.txt'}"]
    code, out, err = run_command("decoder", *flags, "--draw")
    assert code == 0, err
    assert "dog" in out and "sees" in out and "(" not in out.split("dog")[1]
    assert out.endswith("\n\n\n")  # behind the drawing, and for no words
    for flag in ("--nbest=2", "--format=json", "--score"):
        code, _, err = run_command("decoder", *flags, "--draw", flag)
        assert code == 2 and "--draw" in err


def test_only_a_problem_of_words_takes_raw_text(
    run_command, tiny_run, tmp_path
):
    (tmp_path / "in.txt").write_text("1 2\n")
    code, _, err = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        f"--decode_from_file={tmp_path / 'in.txt'}",
        "--tokenize",
    )
    assert code == 2 and "leave --tokenize out" in err
