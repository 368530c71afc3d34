"""`t2t_lite.load`: a run and an export translate alike, in plain Python."""

import subprocess
import sys

import pytest

import t2t_lite
from support.rounding import approx_score
from t2t_lite.errors import T2TLiteError, UsageError

TEXTS = ["1 2 3", "", "7"]


@pytest.fixture(scope="module")
def of_run(tiny_run):
    return t2t_lite.load(tiny_run)


@pytest.fixture(scope="module")
def export(tiny_run, tmp_path_factory):
    """A folder with one export, and what only looks like one."""
    from t2t_lite.bin import exporter

    folder = tmp_path_factory.mktemp("export")
    for none in ("1", "9.bak", "notes"):
        (folder / none).mkdir()
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}"]
    assert exporter.main([*flags, "--noverify"]) == 0
    return folder


@pytest.fixture(scope="module")
def of_export(export):
    return t2t_lite.load(export)


def test_a_text_gives_a_text_and_a_list_gives_a_list(of_run):
    answers = of_run(TEXTS)
    assert len(answers) == 3
    assert answers[1] == ""
    assert of_run(TEXTS[0]) == answers[0]
    assert of_run(iter(TEXTS), batch_size=1) == answers
    assert of_run([]) == []


def test_nbest_gives_hypotheses_best_first(of_run):
    found = of_run(TEXTS[0], nbest=3)
    assert found[0].text == of_run(TEXTS[0])
    assert all(isinstance(each.tokens, list) for each in found)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert of_run(TEXTS[:1], nbest=3) == [found]
    assert [len(each) for each in of_run(TEXTS, nbest=1)] == [1, 1, 1]


def test_search_options_are_keywords(of_run):
    (greedy,) = of_run(TEXTS[0], nbest=1, beam_size=1)
    (plain,) = of_run(TEXTS[0], nbest=1, beam_size=1, alpha=0)
    assert plain.tokens == greedy.tokens
    penalty = ((5 + len(greedy.tokens)) / 6) ** 0.6
    assert plain.score == pytest.approx(greedy.score * penalty)


def test_how_texts_go_together_changes_no_answer(of_run, of_export, tiny_run):
    answers = of_run(TEXTS)
    assert of_run(TEXTS, batch_tokens=9) == answers
    several = t2t_lite.load(tiny_run, replicas=2)
    assert several(TEXTS, batch_size=1) == answers
    with pytest.raises(UsageError, match="batch_tokens must be at least 1"):
        of_run(TEXTS, batch_tokens=0)
    with pytest.raises(UsageError, match="does not tell how many tokens"):
        of_export(TEXTS, batch_tokens=9)


def test_compiled_searches_answer_alike(of_run, of_export, tiny_run, export):
    assert t2t_lite.load(tiny_run, jit=True)(TEXTS) == of_run(TEXTS)
    with pytest.raises(UsageError, match="jit are for runs"):
        t2t_lite.load(export, jit=True)


def test_sentences_of_a_text_are_translated_by_themselves(of_run):
    one, other = of_run(["1 2.", "3."])
    assert of_run("1 2. 3.", split_sentences=True) == f"{one} {other}".strip()
    with pytest.raises(
        UsageError, match="split_sentences gives one hypothesis"
    ):
        of_run("1 2. 3.", split_sentences=True, nbest=2)


def test_a_run_is_the_decoder_and_names_its_weights(
    of_run, tiny_run, run_command, tmp_path
):
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    _, out, _ = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--decode_from_file={lines}"
    )
    assert out.split("\n")[:-1] == of_run(TEXTS)
    assert repr(of_run) == (
        f"<Translator of {tiny_run}, tiny_digits, "
        "the average of 2 up to step 4>"
    )
    assert repr(t2t_lite.load(tiny_run, checkpoint=2)).endswith("step 2>")


def test_an_export_answers_as_its_run(of_run, of_export, export):
    assert of_export(TEXTS) == of_run(TEXTS)
    assert of_export(TEXTS[0], batch_size=1) == of_run(TEXTS[0])
    for ours, theirs in zip(
        of_export(TEXTS, nbest=2), of_run(TEXTS, nbest=2), strict=True
    ):
        assert [each.text for each in ours] == [each.text for each in theirs]
        assert [each.score for each in ours] == approx_score(
            [each.score for each in theirs]
        )
        assert [each.tokens for each in ours] == [None] * len(theirs)
    assert repr(of_export) == f"<Translator of {export / '2'}, an export>"


def test_hypotheses_tell_of_their_tokens_if_asked(of_run):
    (found,) = of_run(TEXTS[0], nbest=1, token_scores=True, alignment="words")
    (plain,) = of_run(TEXTS[0], nbest=1)
    assert (found.text, found.tokens) == (plain.text, plain.tokens)
    assert len(found.token_log_probabilities) == len(found.tokens)
    assert {target for _, target in found.alignment} == set(
        range(len(found.text.split()))
    )
    assert plain.token_log_probabilities is plain.alignment is None


def test_the_translation_most_like_all_is_taken(of_run, of_export):
    assert of_export(TEXTS, mbr="chrf") == of_run(TEXTS, mbr="chrf")
    found = of_run(TEXTS[0], nbest=4, mbr="chrf")
    assert of_run(TEXTS[0], mbr="chrf") == found[0].text  # of 4 beams
    utilities = [each.utility for each in found]
    assert utilities == sorted(utilities, reverse=True)


def test_given_pairs_are_scored(of_run):
    one = of_run.score("1 2", "one two")
    assert one.score < 0 and one.tokens == len(one.token_log_probabilities)
    sources, targets = ["1 2", "3"], ["one two", "three"]
    first, second = of_run.score(sources, targets, alignment="words")
    assert first.score == approx_score(one.score)
    assert (second.source, second.target) == ("3", "three")
    assert second.alignment == [[0, 0]]
    plain = of_run.score("1 2", "one two", alpha=0)
    assert plain.score == approx_score(one.log_probability)
    assert of_run.score([], []) == []


def test_an_export_scores_as_its_run_does(of_run, of_export):
    sources = ["1 2", "3", "", "4 5 6\n"]
    targets = ["one two", "three", "", "one"]
    pairs = zip(
        of_export.score(sources, targets, batch_size=3),
        of_run.score(sources, targets),
        strict=True,
    )
    for ours, theirs in pairs:
        assert (ours.line, ours.tokens) == (theirs.line, theirs.tokens)
        assert ours.score == approx_score(theirs.score)
        assert ours.log_probability == approx_score(theirs.log_probability)
        assert ours.pieces is ours.token_log_probabilities is None
    one = of_export.score("1 2", "one two")
    assert one.log_probability == approx_score(
        of_run.score("1 2", "one two").log_probability
    )
    assert of_export.score([], []) == []


def test_a_text_that_is_cut_is_logged(of_run, of_export, caplog):
    caplog.set_level("WARNING", logger="t2t_lite")
    for translator in (of_run, of_export):
        caplog.clear()
        translator(["1", "2 " * 500])
        (record,) = caplog.records
        assert record.getMessage().startswith("line 2: ")


def test_what_does_not_go_is_one_clear_error(
    of_run, of_export, tiny_run, export, tmp_path
):
    for error, message, call in (
        (UsageError, "load needs the folder", lambda: t2t_lite.load(tmp_path)),
        (
            UsageError,
            "are for runs",
            lambda: t2t_lite.load(export, usr_dir="."),
        ),
        (
            T2TLiteError,
            "no checkpoint of step 3",
            lambda: t2t_lite.load(tiny_run, checkpoint=3),
        ),
        (UsageError, "at most the beam size", lambda: of_run("1", nbest=9)),
        (UsageError, "at most the beam size", lambda: of_export("1", nbest=9)),
        (UsageError, "got alpha", lambda: of_export("1", alpha=1)),
        (UsageError, "nbest must be at least 1", lambda: of_run("1", nbest=0)),
        (UsageError, "A text must be a str; got 1", lambda: of_run([1])),
        (UsageError, "give nbest", lambda: of_run("1", alignment="words")),
        (UsageError, "got 'ter'", lambda: of_run("1", mbr="ter")),
        (
            UsageError,
            "got alignment",
            lambda: of_export("1", alignment="words", nbest=1),
        ),
        (UsageError, "got alpha", lambda: of_export.score("1", "a", alpha=1)),
        (UsageError, "got 1 and 2", lambda: of_run.score(["1"], ["a", "b"])),
        (UsageError, "got 1 and 1", lambda: of_run.score("1", ["one"])),
        (UsageError, "needs a problem", lambda: of_run("1", constrained=True)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_a_damaged_export_is_named(tmp_path):
    (tmp_path / "saved_model.pb").write_text("no export")
    with pytest.raises(T2TLiteError, match=f"Cannot load .*{tmp_path}: Cannot"):
        t2t_lite.load(tmp_path)


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


def test_a_request_that_cannot_be_met_is_an_error(of_run):
    with pytest.raises(UsageError, match="which have none; got '2de'"):
        of_run(t2t_lite.Request(TEXTS[0], tag="2de"))
