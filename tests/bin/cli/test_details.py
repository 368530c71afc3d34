"""What the decoder tells beside a translation, and how it chooses one."""

import json
import math

import pytest

from support.rounding import approx_score
from t2t_lite.evaluation.minimum_bayes_risk import choose

LINES = ["1 2 3", "", "7 8 9 1 1"]
PAIRS = ["1 2\tone two", "3\t", "\tsix", "4 5 6\tfour  five six"]


@pytest.fixture
def decode(run_command, tiny_run, tmp_path):
    """Decodes lines: `(exit code, lines of stdout, stderr)`."""

    def run(lines, *flags):
        path = tmp_path / "lines"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        place = [f"--output_dir={tiny_run}", f"--decode_from_file={path}"]
        code, out, err = run_command("decoder", *place, *flags)
        return code, out.splitlines(), err

    return run


def records(lines):
    return [json.loads(line) for line in lines]


def test_score_tells_the_score_of_each_token_in_json(decode):
    code, out, _ = decode(PAIRS, "--score", "--format=json")
    assert code == 0
    for record, pair in zip(records(out), PAIRS, strict=True):
        assert f"{record['source']}\t{record['target']}" == pair
        scores = record["token_log_probabilities"]
        assert len(scores) == len(record["pieces"]) == record["tokens"]
        assert record["pieces"][-1] == "</s>"
        total = record["log_probability"]
        assert sum(scores) == approx_score(total)


def test_token_scores_of_hypotheses(decode):
    flags = ["--format=json", "--nbest=2"]
    _, plain, _ = decode(LINES, *flags)
    code, out, _ = decode(LINES, *flags, "--token_scores")
    assert code == 0
    for record, before in zip(records(out), records(plain), strict=True):
        for each in record["hypotheses"]:
            scores = each.pop("token_log_probabilities")
            assert len(scores) == len(each.pop("pieces")) == len(each["tokens"])
        assert [h["tokens"] for h in record["hypotheses"]] == [
            h["tokens"] for h in before["hypotheses"]
        ]
        assert record.keys() == before.keys()


@pytest.mark.slow
@pytest.mark.parametrize("of", ["tokens", "words"])
def test_alignments_stand_behind_bars(decode, of):
    flags = [f"--alignment={of}", "--nbest=2"]
    _, plain, _ = decode(LINES, "--nbest=2")
    code, out, _ = decode(LINES, *flags)
    _, as_json, _ = decode(LINES, *flags, "--format=json")
    assert code == 0
    for line, before, record in zip(out, plain, records(as_json), strict=True):
        shown = [part.rpartition(" ||| ") for part in line.split("\t")]
        assert [text for text, _, _ in shown] == before.split("\t")
        assert [pairs.split() for _, _, pairs in shown] == [
            [f"{s}-{t}" for s, t in each["alignment"]]
            for each in record["hypotheses"]
        ]
        assert ("source_pieces" in record) == (of == "tokens")


def test_given_pairs_are_aligned(decode):
    code, out, _ = decode(PAIRS, "--score", "--alignment=words")
    assert code == 0
    scores, pairs = zip(*(line.split(" ||| ") for line in out), strict=True)
    assert all(float(score) < 0 for score in scores)
    # A target word has a source word, if there are any, unless the model looks
    # at the space before one.
    ends = [{pair.partition("-")[2] for pair in row.split()} for row in pairs]
    assert ends[1:3] == [set(), set()]
    assert ends[0] <= {"0", "1"} and set() < ends[3] <= {"0", "1", "2"}


@pytest.mark.slow
def test_a_summary_is_one_report_on_all_pairs(decode):
    _, out, _ = decode(PAIRS, "--score", "--format=json")
    pairs = records(out)
    code, out, _ = decode(PAIRS, "--score", "--summary", "--format=json")
    ((report),) = records(out)
    assert code == 0
    nats = -sum(pair["log_probability"] for pair in pairs)
    tokens = sum(pair["tokens"] for pair in pairs)
    assert report["sentences"] == 4 and report["tokens"] == tokens
    assert report["words"] == 2 + 0 + 1 + 3 + 4  # and four ends
    assert report["log_probability"] == pytest.approx(-nats, abs=1e-3)
    assert report["cross_entropy"] == pytest.approx(nats / tokens, rel=1e-4)
    assert report["perplexity"] == pytest.approx(
        math.exp(nats / tokens), rel=1e-3
    )
    assert report["word_perplexity"] == pytest.approx(
        math.exp(nats / 10), rel=1e-3
    )
    _, (line,), _ = decode(PAIRS, "--score", "--summary")
    assert line.startswith(f"sentences 4  tokens {tokens}  words 10  log_prob")
    _, out, _ = decode([], "--score", "--summary", "--format=json")
    assert records(out)[0]["perplexity"] is None
    code, (line,), _ = decode([], "--score", "--summary")
    assert code == 0
    assert line == (
        "sentences 0  tokens 0  words 0  log_probability 0.0000  "
        "cross_entropy none  perplexity none  word_perplexity none"
    )


@pytest.mark.slow
def test_the_translation_most_like_the_others_is_given(decode):
    _, out, _ = decode(LINES, "--nbest=4", "--format=json")
    flags = ["--mbr=chrf"]  # of as many as there are beams
    code, chosen, _ = decode(LINES, *flags)
    _, told, _ = decode(LINES, *flags, "--nbest=4", "--format=json")
    assert code == 0
    for record, line, more in zip(
        records(out), chosen, records(told), strict=True
    ):
        texts = [each["text"] for each in record["hypotheses"]]
        index, utilities = choose(texts, "chrf")
        assert line == texts[index]
        found = [(h["text"], h["utility"]) for h in more["hypotheses"]]
        assert found[0] == (line, pytest.approx(utilities[index]))
        assert sorted(text for text, _ in found) == sorted(texts)
        assert [u for _, u in found] == sorted(utilities, reverse=True)


@pytest.mark.slow
def test_of_samples_the_one_most_like_all_is_given(decode):
    flags = ["--sample", "--nbest=6", "--seed=3"]
    _, drawn, _ = decode(LINES, *flags, "--token_scores", "--format=json")
    code, chosen, _ = decode(LINES, *flags, "--mbr=chrf")
    assert code == 0
    for record, line in zip(records(drawn), chosen, strict=True):
        samples = record["hypotheses"]
        texts = [each["text"] for each in samples]
        assert line == texts[choose(texts, "chrf")[0]]
        for each in samples:  # their scores are the model's, however drawn
            penalty = ((5 + len(each["tokens"])) / 6) ** 0.6
            total = sum(each["token_log_probabilities"]) / penalty
            assert total == approx_score(each["score"])


def test_an_ensemble_has_token_scores_but_no_attention(decode, tiny_run):
    flags = [f"--ensemble={tiny_run}", "--format=json"]
    code, out, _ = decode(LINES, *flags, "--token_scores")
    assert code == 0
    for each in (record["hypotheses"][0] for record in records(out)):
        penalty = ((5 + len(each["tokens"])) / 6) ** 0.6
        total = sum(each["token_log_probabilities"]) / penalty
        assert total == approx_score(each["score"])
    code, _, err = decode(LINES, *flags, "--alignment=words")
    assert code == 2 and "needs one model: leave out the ensemble" in err


def test_what_does_not_go_together_is_refused(decode):
    for flags, message in (
        (["--token_scores"], "give --format=json"),
        (["--summary"], "--summary reports on pairs: give --score"),
        (["--alignment=words", "--draw"], "does not go with --draw"),
        (["--alignment_layer=1"], "needs --alignment=tokens or words"),
        (["--alignment=words", "--alignment_layer=2"], "the model's 1; got"),
        (["--mbr=chrf", "--sample"], "over samples needs --nbest"),
        (["--mbr=chrf", "--score"], "--mbr chooses a translation: leave out"),
    ):
        code, out, err = decode(["1"], *flags)
        assert (code, out) == (2, []), flags
        assert message in err
