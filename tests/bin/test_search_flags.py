"""The options of a search, as flags and in requests, through the decoder."""

import json

import pytest

import t2t_lite

LINES = ["1 2 3", "", "7 8 9 1 1"]


@pytest.fixture
def decode(run_command, tiny_run, tmp_path):
    """What the decoder answers to lines: its exit code, answers, stderr."""

    def run(lines, *flags):
        source = tmp_path / "source"
        source.write_text("".join(f"{line}\n" for line in lines))
        code, out, err = run_command(
            "decoder",
            f"--output_dir={tiny_run}",
            f"--decode_from_file={source}",
            *flags,
        )
        return code, out.splitlines(), err

    return run


@pytest.mark.slow
def test_samples_come_again_with_their_seed(decode, tiny_run):
    flags = ["--sample", "--temperature=2", "--nbest=3", "--format=json"]
    code, out, _ = decode(LINES, *flags, "--seed=5")
    assert code == 0
    assert decode(LINES, *flags, "--seed=5")[1] == out
    assert decode(LINES, *flags, "--seed=6")[1] != out
    hypotheses = json.loads(out[0])["hypotheses"]
    assert len(hypotheses) == 3
    loaded = t2t_lite.load(tiny_run)(
        LINES[0], sample=True, temperature=2.0, nbest=3, seed=5
    )
    assert [x.text for x in loaded] == [x["text"] for x in hypotheses]


@pytest.mark.slow
def test_requests_say_how_a_translation_begins_and_what_is_in_it(decode):
    requests = [
        {"text": "1 2 3", "prefix": "4 4", "id": "a"},
        {"text": "1 2 3", "constraints": ["9 8"], "avoid": ["7"]},
        {"text": "1 2 3", "seed": 4},
        {"text": "1 2 3"},
    ]
    code, out, err = decode(
        map(json.dumps, requests), "--input_format=json", "--beam_size=8"
    )
    first, second, third, fourth = map(json.loads, out)
    assert first["hypotheses"][0]["text"].startswith("4 4")
    best = second["hypotheses"][0]
    assert "9 8" in best["text"] and "missing" not in best
    assert "seed is for samples" in third["error"]
    assert code == 1 and "1 request(s)" in err
    assert (
        fourth["hypotheses"][0]["text"] == decode(LINES, "--beam_size=8")[1][0]
    )


@pytest.mark.slow
def test_checkpoints_of_a_run_and_other_runs_are_an_ensemble(
    decode, tiny_run, run_command
):
    code, out, err = decode(LINES, f"--ensemble=2:{tiny_run}")
    assert code == 0 and len(out) == 3
    assert err.count("step") >= 3  # the weights of three models
    loaded = t2t_lite.load(tiny_run, ensemble=["2", tiny_run])
    assert loaded(LINES) == out
    code, _, err = decode(LINES, "--ensemble=77")
    assert code in (1, 2) and "77" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--top_p=0.5"], "top_p is for samples"),
        (
            ["--sample", "--beam_size=2"],
            "beam_size and sample do not go together",
        ),
        (["--sample", "--mbr=chrf"], "--mbr over samples needs --nbest"),
        (["--no_repeat_ngram_size=-1"], "must be a whole number from 0 to 100"),
        (["--suppress=nothing"], "must have the piece 'nothing'"),
        (
            ["--constrained=true", "--avoid=a"],
            "avoid and constrained do not go together",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(decode, flags, message):
    code, out, err = decode(LINES, *flags)
    assert code == 2 and not out
    assert message in err.splitlines()[-1]
