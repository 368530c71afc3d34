"""`t2t_lite.load`: a run and an export translate alike, in plain Python."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys

import pytest

import t2t_lite
from support.rounding import approx_score
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.training.run import Run

TEXTS = ["1 2 3", "", "7"]


@pytest.fixture(scope="module")
def of_run(tiny_run):
    return t2t_lite.load(tiny_run)


@pytest.fixture(scope="module")
def of_export(tiny_export):
    return t2t_lite.load(tiny_export)


def test_text_returns_a_text_and_list_returns_a_list(of_run):
    answers = of_run(TEXTS)
    assert len(answers) == 3
    assert answers[1] == ""
    assert of_run(TEXTS[0]) == answers[0]
    assert of_run(iter(TEXTS), batch_size=1) == answers
    assert of_run([]) == []


def test_nbest_gives_hypotheses_best_first(of_run):
    found = of_run(TEXTS[0], nbest=3)
    assert found[0].text == of_run(TEXTS[0])
    assert 1 < len(found) <= 3
    assert all(isinstance(each.tokens, list) for each in found)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert of_run(TEXTS[:1], nbest=3) == [found]
    assert [len(each) for each in of_run(TEXTS, nbest=1)] == [1, 1, 1]


@pytest.mark.slow
def test_search_options_are_keywords(of_run):
    (greedy,) = of_run(TEXTS[0], nbest=1, beam_size=1)
    (plain,) = of_run(TEXTS[0], nbest=1, beam_size=1, alpha=0)
    assert plain.tokens == greedy.tokens
    penalty = ((5 + len(greedy.tokens)) / 6) ** 0.6
    assert plain.score == pytest.approx(greedy.score * penalty)


def test_batches_and_replicas_change_no_result(of_run, tiny_run):
    answers = of_run(TEXTS)
    assert of_run(TEXTS, batch_tokens=9) == answers
    assert t2t_lite.load(tiny_run, replicas=2)(TEXTS, batch_size=1) == answers


def test_a_search_that_cannot_be_compiled_is_refused(tiny_run):
    with pytest.raises(UsageError, match="sample.*jit"):
        t2t_lite.load(tiny_run, jit=True)(TEXTS, sample=True)


def test_run_equals_the_decoder_and_names_its_weights(of_run, tiny_run, decode):
    _, out, _ = decode(TEXTS)
    assert out == of_run(TEXTS)
    assert "tiny_digits, the average of 2 up to step 4" in repr(of_run)
    assert "step 2" in repr(t2t_lite.load(tiny_run, checkpoint=2))


def test_export_translates_like_its_run(of_run, of_export, tiny_export):
    assert of_export(TEXTS) == of_run(TEXTS)
    assert of_export(TEXTS[0], batch_size=1) == of_run(TEXTS[0])
    assert of_export(TEXTS, mbr="chrf") == of_run(TEXTS, mbr="chrf")
    answers = (load(TEXTS, nbest=2) for load in (of_export, of_run))
    for ours, theirs in zip(*answers, strict=True):
        assert [each.text for each in ours] == [each.text for each in theirs]
        assert [each.score for each in ours] == approx_score(
            [each.score for each in theirs]
        )
        assert [each.tokens for each in ours] == [None] * len(theirs)
    assert str(tiny_export) in repr(of_export)


def test_hypotheses_have_token_details_on_request(of_run):
    (found,) = of_run(TEXTS[0], nbest=1, token_scores=True, alignment="words")
    (plain,) = of_run(TEXTS[0], nbest=1)
    assert (found.text, found.tokens) == (plain.text, plain.tokens)
    assert len(found.token_log_probabilities) == len(found.tokens)
    assert {target for _, target in found.alignment} == set(
        range(len(found.text.split()))
    )
    assert plain.token_log_probabilities is plain.alignment is None


def test_mbr_returns_the_hypothesis_most_similar_to_all_others(of_run):
    found = of_run(TEXTS[0], nbest=4, mbr="chrf")
    assert of_run(TEXTS[0], mbr="chrf") == found[0].text  # of 4 beams
    utilities = [each.utility for each in found]
    assert utilities == sorted(utilities, reverse=True)


@pytest.mark.slow
def test_given_pairs_are_scored(of_run):
    one = of_run.score("1 2", "one two")
    assert one.score < 0
    assert len(one.tokens) == len(one.token_log_probabilities)
    sources, targets = ["1 2", "3"], ["one two", "three"]
    first, second = of_run.score(sources, targets, alignment="words")
    assert first.score == approx_score(one.score)
    assert second.text == "three"
    assert second.alignment == [[0, 0]]
    plain = of_run.score("1 2", "one two", alpha=0)
    assert plain.score == approx_score(one.log_probability)
    assert of_run.score([], []) == []


def test_export_scores_like_its_run(of_run, of_export):
    sources = ["1 2", "3", "", "4 5 6\n"]
    targets = ["one two", "three", "", "one"]
    found = of_export.score(sources, targets, batch_size=3)
    wanted = of_run.score(sources, targets)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.text == theirs.text and ours.tokens is None
        assert ours.score == approx_score(theirs.score)
        assert ours.log_probability == approx_score(theirs.log_probability)
        assert ours.pieces is ours.token_log_probabilities is None


def test_truncated_text_is_logged(of_run, of_export, caplog):
    caplog.set_level("WARNING", logger="t2t_lite")
    for translator in (of_run, of_export):
        caplog.clear()
        translator(["1", "2 " * 500])
        (record,) = caplog.records
        assert record.getMessage().startswith("line 2: ")


@pytest.mark.parametrize(
    ("which", "message", "call"),
    [
        ("of_run", "nbest", lambda run: run("1", nbest=0)),
        ("of_run", "batch_tokens", lambda run: run("1", batch_tokens=0)),
        ("of_run", "got 1", lambda run: run([1])),
        ("of_run", "nbest", lambda run: run("1", alignment="words")),
        ("of_run", "ter", lambda run: run("1", mbr="ter")),
        ("of_run", "1 and 2", lambda run: run.score(["1"], ["a", "b"])),
        ("of_run", "1 and 1", lambda run: run.score("1", ["one"])),
        ("of_export", "beam_size=4", lambda export: export("1", nbest=9)),
        ("of_export", "alpha", lambda export: export("1", alpha=1)),
        ("of_export", "alpha", lambda export: export.score("1", "a", alpha=1)),
        ("of_export", "batch_size", lambda export: export("", batch_tokens=9)),
        ("of_export", "align", lambda x: x("1", nbest=1, alignment="words")),
    ],
)
def test_invalid_argument_is_named_in_the_error(request, which, message, call):
    with pytest.raises(UsageError, match=message):
        call(request.getfixturevalue(which))


@pytest.mark.parametrize("options", [{"usr_dir": "."}, {"jit": True}])
def test_export_accepts_no_options_of_runs(tiny_export, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        t2t_lite.load(tiny_export, **options)


def test_a_missing_checkpoint_and_a_damaged_export_are_named(
    tiny_run, tiny_export, tmp_path
):
    with pytest.raises(T2TLiteError, match="no checkpoint.*3"):
        t2t_lite.load(tiny_run, checkpoint=3)
    export = shutil.copytree(tiny_export, tmp_path / "export")
    (weights,) = export.glob("*/variables/*.data-*")
    os.truncate(weights, 99)
    with pytest.raises(T2TLiteError, match=str(export)):
        t2t_lite.load(export)
    (tmp_path / "saved_model.pb").write_text("no export")
    with pytest.raises(T2TLiteError, match=str(tmp_path)):
        t2t_lite.load(tmp_path)


def test_a_model_for_other_libraries_and_zero_replicas_are_refused(
    tiny_run, tmp_path
):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="path must be"):
        t2t_lite.load(tmp_path)
    with pytest.raises(UsageError, match="replicas"):
        t2t_lite.load(tiny_run, replicas=0)


def test_a_member_of_an_ensemble_may_be_in_the_home_folder(
    of_run, tiny_run, monkeypatch
):
    monkeypatch.setenv("HOME", str(tiny_run.parent))
    twice = t2t_lite.load(tiny_run, ensemble=[f"~/{tiny_run.name}"])
    assert twice(TEXTS) == of_run(TEXTS)


def test_runs_with_equal_vocabularies_of_any_name_form_an_ensemble(
    of_run, tiny_run, run_copy
):
    config = json.loads((run_copy / "config.json").read_text())
    ((name, checksum),) = config["vocabulary"].items()
    config["problem"] = "text"
    config["problem_options"] = {"name": "other", "vocabulary": "/x.model"}
    config["vocabulary"] = {"other.vocab.model": checksum}
    (run_copy / name).rename(run_copy / "other.vocab.model")
    (run_copy / "config.json").write_text(json.dumps(config))
    other = Run.open(run_copy, to_decode=True)
    twice = t2t_lite.load(tiny_run, ensemble=[other])
    assert twice(TEXTS) == of_run(TEXTS)


def test_an_ensemble_of_opposite_directions_is_refused(tiny_run, run_copy):
    config = json.loads((run_copy / "config.json").read_text())
    config["problem"] += "_rev"
    (run_copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="direction"):
        t2t_lite.load(tiny_run, ensemble=[run_copy])


def test_invalid_utf8_has_attention_as_the_replacement_character(of_run):
    assert of_run.attention("1 \ud83d").texts[0] == "1 " + 3 * "\ufffd"


def test_an_unknown_folder_is_refused_before_tensorflow_is_loaded(tmp_path):
    code = (
        "import sys, t2t_lite\n"
        "try:\n"
        "    t2t_lite.load(sys.argv[1])\n"
        "except t2t_lite.errors.UsageError:\n"
        "    assert 'tensorflow' not in sys.modules\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


@pytest.mark.parametrize(
    "texts", [None, b"x", 3, {"a": "b"}, ["a", None], [["a"]], [b"a\nb"]]
)
def test_input_that_is_not_text_is_named_in_one_line(of_run, texts):
    for call in (of_run, lambda x: of_run.score(x, x), of_run.attention):
        with pytest.raises(UsageError, match=r"^A text must be a str; got .+$"):
            call(texts)


def error_in_fork(function):
    """Return the error message of a function in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            function()
        except T2TLiteError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


def test_translator_cannot_be_forked_or_copied(of_run, of_export, tiny_run):
    assert "spawn" in error_in_fork(lambda: of_run("1"))
    assert "spawn" in error_in_fork(lambda: of_export.score("1", "1"))
    assert "spawn" in error_in_fork(lambda: t2t_lite.load(tiny_run))
    for copy_of in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UsageError, match="load"):
            copy_of(of_run)
