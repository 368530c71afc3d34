"""Lines through the decoder: order, formats, files, options and signals."""

import errno
import gzip
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import t2t_lite
from support.lines import records, write
from support.rounding import approx_score
from t2t_lite.decoding.stream import translate_lines

LINES = ["1 2 3", "", "4", "7 8 9 1 1", "\u2603 snow\u2028man"]
PAIRS = ["1 2\tone two", "3\t", "\tsix", "4 5 6\tfour  five six"]


@pytest.fixture
def stdin(monkeypatch, tmp_path):
    """Give the next command these lines as its stdin."""

    def give(*lines):
        path = write(tmp_path / "stdin", lines)
        monkeypatch.setattr("sys.stdin", open(path, encoding="utf-8"))

    return give


def test_output_line_i_translates_input_line_i(decode):
    code, translations, err = decode(LINES)
    assert (code, len(translations), translations[1]) == (0, len(LINES), "")
    assert "the average of 2 up to step 4" in err
    _, backwards, _ = decode(reversed(LINES), "--batch_size=1")
    assert backwards == translations[::-1]


@pytest.mark.slow
def test_line_ends_and_a_byte_order_mark_change_nothing(
    run_command, tiny_run, decode, tmp_path
):
    _, expected, _ = decode(["1 2", "3"])
    path = tmp_path / "lines"
    flags = [f"--output_dir={tiny_run}", f"--decode_from_file={path}"]
    for content in (b"\xef\xbb\xbf1 2\r\n3\r\n", b"1 2\n3"):
        path.write_bytes(content)
        assert run_command("decoder", *flags)[1].splitlines() == expected


@pytest.mark.slow
def test_notes_on_truncated_lines_are_in_order_and_limited(decode):
    lines = ["1", *("2 " * length for length in (300, 500, 400, 600, 350))]
    code, out, err = decode(lines, "--batch_size=2")
    assert (code, len(out)) == (0, 6)
    notes = err.splitlines()[1:]
    starts = [line.partition(":")[0] for line in notes[:3]]
    assert starts == ["line 2", "line 3", "line 4"]
    assert len(notes) == 4 and "--verbose" in notes[3]
    _, _, err = decode(lines, "--batch_size=2", "--verbose")
    assert all(f"line {number}: " in err for number in range(2, 7))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--batch_tokens=40", "--replicas=2"]])
def test_all_kinds_of_input_give_the_same_translations(
    run_command, tiny_run, stdin, tmp_path, flags
):
    lines = ["1 2", "", " \t", "7\t8", "5 " * 90]
    lines += ["é\u2028\u202e3", "\N{DOG FACE} 4"]
    flags = [f"--output_dir={tiny_run}", *flags]
    source, target = write(tmp_path / "in", lines), tmp_path / "out"
    compressed = tmp_path / "in.gz"
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    outs = []
    for more in ([], ["--interactive"], [f"--decode_from_file={source}"]):
        stdin(*lines)
        outs.append(run_command("decoder", *flags, *more)[1])
    stdin(*(json.dumps({"text": line}) for line in lines))
    in_json = ["--input_format=json", "--format=text"]
    outs.append(run_command("decoder", *flags, *in_json)[1])
    for path in (source, compressed):
        to_file = f"--decode_from_file={path}", f"--decode_to_file={target}"
        assert run_command("decoder", *flags, *to_file)[:2] == (0, "")
        outs.append(target.read_bytes().decode())
    replicas = 2 if len(flags) > 1 else 1
    loaded = t2t_lite.load(tiny_run, replicas=replicas)(lines)
    assert outs == ["".join(f"{line}\n" for line in loaded)] * 6
    assert not list(tmp_path.glob(".*.tmp"))


def test_json_is_one_object_a_line(decode):
    code, out, _ = decode(["1 2", "é"], "--format=json", "--nbest=3")
    assert code == 0
    first, second = records(out)
    assert first.keys() == {"line", "source", "hypotheses"}
    assert (first["line"], first["source"]) == (1, "1 2")
    assert (second["line"], second["source"]) == (2, "é")
    assert 1 <= len(first["hypotheses"]) <= 3
    scores = [each["score"] for each in first["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    best = first["hypotheses"][0]
    assert best.keys() == {"text", "score", "tokens"}
    assert all(isinstance(token, int) for token in best["tokens"])
    _, out, _ = decode(["1 2", "é"], "--nbest=2")
    assert [line.count("\t") <= 1 for line in out] == [True, True]


@pytest.mark.slow
def test_each_json_request_has_one_line_of_output(decode):
    _, plain, _ = decode(["1 2", "3"])
    requests = [
        '{"text": "1 2", "id": "\\ud800"}',
        '{"text": "1 2", "txt": 5, "id": 7}',
        "1 2",
        '{"text": "3"}',
    ]
    code, out, err = decode(requests, "--input_format=json")
    results = records(out)
    assert results[0]["id"] == "\ud800"
    assert results[1].keys() == {"line", "id", "error"}
    assert (results[1]["line"], results[1]["id"]) == (2, 7)
    assert results[2].keys() == {"line", "error"}
    assert [results[k]["hypotheses"][0]["text"] for k in (0, 3)] == plain
    assert (code, "2 request(s)" in err) == (1, True)
    # In text output, an invalid request is an empty line.
    code, out, err = decode(requests, "--input_format=json", "--format=text")
    assert (code, out) == (1, [plain[0], "", "", plain[1]])
    assert "line 2: " in err


@pytest.mark.slow
def test_pairs_are_scored_as_text_and_as_json(decode):
    code, out, _ = decode(PAIRS, "--score")
    assert (code, len(out)) == (0, 4) and all(float(x) < 0 for x in out)
    _, as_json, _ = decode(PAIRS, "--score", "--format=json")
    for pair, score, record in zip(PAIRS, out, records(as_json), strict=True):
        assert f"{record['source']}\t{record['target']}" == pair
        assert record["score"] == approx_score(float(score))
        scores = record["token_log_probabilities"]
        assert len(scores) == len(record["pieces"]) == record["tokens"]
        assert record["pieces"][-1] == "</s>"
        assert sum(scores) == approx_score(record["log_probability"])
    requests = [
        '{"source": "1 2", "target": "one two", "id": 1}',
        '{"source": "3"}',
    ]
    code, out, _ = decode(requests, "--score", "--input_format=json")
    scored, refused = records(out)
    assert scored["id"] == 1
    assert scored["score"] == approx_score(records(as_json)[0]["score"])
    assert (code, refused.keys()) == (1, {"line", "error"})


@pytest.mark.slow
def test_alignments_follow_three_bars(decode):
    flags = ["--alignment=words", "--nbest=2"]
    _, plain, _ = decode(LINES, "--nbest=2")
    code, out, _ = decode(LINES, *flags)
    _, as_json, _ = decode(LINES, *flags, "--format=json")
    assert code == 0
    for line, texts, record in zip(out, plain, records(as_json), strict=True):
        shown = [part.rpartition(" ||| ") for part in line.split("\t")]
        assert [text for text, _, _ in shown] == texts.split("\t")
        assert [pairs.split() for _, _, pairs in shown] == [
            [f"{s}-{t}" for s, t in each["alignment"]]
            for each in record["hypotheses"]
        ]
    code, out, _ = decode(["1 2\tone two"], "--score", "--alignment=words")
    assert code == 0 and " ||| " in out[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "of_model", "of_search"),
    [
        (["--beam_size=2", "--alpha=0"], {}, {"beam_size": 2, "alpha": 0.0}),
        (["--sample", "--seed=5"], {}, {"sample": True, "seed": 5}),
        (["--mbr=chrf"], {}, {"mbr": "chrf"}),
        (["--token_scores"], {}, {"token_scores": True}),
        (["--alignment=words"], {}, {"alignment": "words"}),
        (["--ensemble=2"], {"ensemble": ["2"]}, {}),
        (["--checkpoint=2"], {"checkpoint": 2}, {}),
    ],
)
def test_flags_are_equivalent_to_keywords_in_python(
    decode, tiny_run, flags, of_model, of_search
):
    code, out, _ = decode(LINES, "--format=json", "--nbest=2", *flags)
    loaded = t2t_lite.load(tiny_run, **of_model)(LINES, nbest=2, **of_search)
    assert code == 0
    for record, hypotheses in zip(records(out), loaded, strict=True):
        for item, found in zip(record["hypotheses"], hypotheses, strict=True):
            assert (item["text"], item["tokens"]) == (found.text, found.tokens)
            assert item["score"] == approx_score(found.score)
            assert item.get("alignment") == found.alignment
            for name in ("token_log_probabilities", "utility"):
                assert item.get(name) == pytest.approx(getattr(found, name))


@pytest.mark.slow
def test_requests_have_their_own_options(decode):
    requests = [
        {"text": "1 2 3", "prefix": "4 4"},
        {"text": "1 2 3", "constraints": ["9 8"], "bad_phrases": ["7"]},
        {"text": "1 2 3", "seed": 4},
    ]
    flags = ["--input_format=json", "--beam_size=8"]
    code, out, err = decode(map(json.dumps, requests), *flags)
    first, second, third = records(out)
    assert first["hypotheses"][0]["text"].startswith("4 4")
    assert "9 8" in second["hypotheses"][0]["text"]
    assert "seed" in third["error"]
    assert code == 1 and "1 request(s)" in err


@pytest.mark.slow
def test_the_sentences_of_a_line_give_one_line(decode):
    flags = ["--format=json"]
    lines = ["1 2. 3 4.", "", "5"]
    code, out, _ = decode(lines, *flags, "--split_sentences")
    first, blank, third = records(out)
    _, out, _ = decode(["1 2.", "3 4.", "", "5"], *flags)
    one, other, *rest = records(out)
    texts = [each["hypotheses"][0]["text"] for each in (one, other)]
    assert (code, first["source"]) == (0, lines[0])
    assert first["hypotheses"][0]["text"] == " ".join(filter(None, texts))
    assert [blank["hypotheses"], third["hypotheses"]] == [
        each["hypotheses"] for each in rest
    ]


@pytest.mark.slow
def test_interactive_lines_are_translated_until_the_end(
    run_command, tiny_run, monkeypatch
):
    flags = [f"--output_dir={tiny_run}", "--interactive", "--format=json"]
    outs = []
    for bom, jit in (("", []), ("\ufeff", ["--jit"])):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{bom}1 2\n\n3"))
        code, out, _ = run_command("decoder", *flags, *jit)
        assert code == 0
        outs.append(records(out.splitlines()))
    assert [each["line"] for each in outs[0]] == [1, 2, 3]
    texts = [[x["hypotheses"][0]["text"] for x in out] for out in outs]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--decode_to_file=/dev/null"], 2, ["/dev/null"]),
        (["--decode_to_file=/no/out"], 1, ["/no"]),
        (["--decode_to_file=/"], 2, ["regular file"]),
        (["--nbest=9"], 2, ["nbest", "beam_size=4"]),
        (["--checkpoint=3"], 1, ["no checkpoint", "3"]),
        (["--checkpoint=bset"], 2, ["bset"]),
        (["--problem=other"], 2, ["--problem=other", "tiny_digits"]),
        (["--hparams=other"], 2, ["--hparams=other"]),
        (["--tag=2b"], 2, ["2b"]),
        (["--tokenize"], 2, ["--tokenize"]),
        (["--constrained=true"], 2, ["trees"]),
        (["--jit", "--score"], 2, ["--jit", "--score"]),
        (["--interactive", "--score"], 2, ["--interactive"]),
        (["--score", "--nbest=2"], 2, ["--nbest", "--score"]),
        (["--score", "--sample"], 2, ["--sample", "--score"]),
        (["--split_sentences", "--score"], 2, ["--split_sentences", "--score"]),
        (["--mbr=chrf", "--score"], 2, ["--mbr", "--score"]),
        (["--sample", "--mbr=chrf"], 2, ["mbr", "nbest"]),
        (["--backend=ctranslate2", "--jit"], 2, ["--jit"]),
        (["--split_sentences", "--nbest=2"], 2, ["--split_sentences", "nbest"]),
        (["--token_scores"], 2, ["--token_scores", "--format=json"]),
        (["--ensemble=2", "--alignment=words"], 2, ["ensemble"]),
        (["--top_p=0.5"], 2, ["top_p"]),
        (["--no_repeat_ngram_size=-1"], 2, ["--no_repeat_ngram_size"]),
        (["--suppress_tokens=nothing"], 2, ["'nothing'"]),
        (["--quantization=int8"], 2, ["--backend=ctranslate2"]),
        (["--backend=ctranslate2", "--replicas=2"], 2, ["--replicas"]),
        (["--backend=ctranslate2", "--alignment=words"], 2, ["--alignment"]),
    ],
)
def test_a_bad_request_is_one_line_that_names_the_flag(
    decode, flags, code, words
):
    got, out, err = decode(["1"], *flags)
    assert (got, out) == (code, [])
    assert all(word in err.splitlines()[-1] for word in words), err
    assert "Traceback" not in err


def test_errors_for_invalid_paths_name_them(run_command, tiny_run, tmp_path):
    source = write(tmp_path / "in", ["1"])
    partial = write(tmp_path / "in.partial", ["1"])
    run = f"--output_dir={tiny_run}"
    to_source = f"--decode_to_file={source}"
    for flags, code, word in (
        ([], 2, "--output_dir"),
        ([f"--output_dir={tmp_path}"], 1, "config.json"),
        ([f"--output_dir={source}"], 1, str(source)),
        ([run, f"--decode_from_file={tmp_path}/missing"], 1, "missing"),
        ([run, f"--decode_from_file={tmp_path}"], 1, "folder"),
        ([run, "--decode_from_file="], 2, "--decode_from_file"),
        ([run, f"--decode_from_file={source}", to_source], 2, str(source)),
        ([run, f"--decode_from_file={partial}", to_source], 2, "in.partial"),
    ):
        got, out, err = run_command("decoder", *flags)
        assert (got, out) == (code, ""), flags
        assert word in err, flags


@pytest.fixture
def file_to_file(tiny_run, tmp_path):
    """Flags that decode a file of requests, one of them invalid."""
    lines = [json.dumps({"text": f"{n} {n % 7}"}) for n in range(70)]
    source = write(tmp_path / "in", [*lines[:9], '{"text": 5}', *lines[9:]])
    return [
        f"--output_dir={tiny_run}",
        f"--decode_from_file={source}",
        f"--decode_to_file={tmp_path / 'out'}",
        "--input_format=json",
        "--batch_size=2",
    ]


@pytest.fixture
def run_until(run_command, monkeypatch):
    """Return a function that stops the decoder with an error after N lines."""

    def run(flags, count, error=KeyboardInterrupt):
        def interrupted(*args, **kwargs):
            yield from itertools.islice(translate_lines(*args, **kwargs), count)
            raise error

        with monkeypatch.context() as patch:
            name = f"{translate_lines.__module__}.translate_lines"
            patch.setattr(name, interrupted)
            return run_command("decoder", *flags)

    return run


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (KeyboardInterrupt(), 75, "Ctrl-C"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "free some"),
    ],
)
def test_an_interruption_keeps_the_complete_lines(
    run_until, file_to_file, tmp_path, error, code, word
):
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    target.write_text("of another day\n")
    got, _, err = run_until(file_to_file, 3, error)
    assert (got, partial.read_bytes().count(b"\n")) == (code, 3)
    assert str(partial) in err and word in err.splitlines()[-1]
    assert target.read_text() == "of another day\n"
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "text"])
def test_the_same_command_resumes_after_the_last_complete_line(
    run_command, run_until, file_to_file, tmp_path, kind
):
    # With one search, chunks are small, and the first is not translated again.
    flags = [*file_to_file, f"--format={kind}", "--replicas=1"]
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    run_command("decoder", *flags)
    whole = target.read_bytes()
    target.unlink()
    run_until(flags, 40)
    with open(partial, "ab") as file:
        file.write(b'{"line": 41, "sou')
    code, _, err = run_command("decoder", *flags)
    assert "after line 40" in err
    assert target.read_bytes() == whole
    # The invalid request is in the part that was kept.
    assert (code, "1 request(s)" in err) == (1, True)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


@pytest.mark.slow
def test_a_command_with_other_options_does_not_resume(
    run_command, run_until, file_to_file, tmp_path
):
    run_until(file_to_file, 3)
    source, partial = tmp_path / "in", tmp_path / "out.partial"
    kept = partial.read_bytes()
    for flag, change in {
        "--beam_size=2": "--beam_size",
        "--checkpoint=2": "weights",
        "--nbest=2": "--nbest",
    }.items():
        code, _, err = run_command("decoder", *file_to_file, flag)
        assert (code, partial.read_bytes()) == (2, kept)
        assert change in err and "--overwrite" in err
    source.write_bytes(source.read_bytes() + b"\n")
    code, _, err = run_command("decoder", *file_to_file)
    assert (code, "input" in err) == (2, True)
    # Flags that change only the speed are not compared.
    speed = "--batch_tokens=50", "--replicas=2"
    run_command("decoder", *file_to_file, "--overwrite", *speed)
    assert (tmp_path / "out").read_bytes().startswith(kept)
    assert not partial.exists()


@pytest.mark.slow
def test_a_line_is_translated_before_the_next_and_a_signal_ends_it(tiny_run):
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_lite.bin.main", "decoder"]
        + [f"--output_dir={tiny_run}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    process.stdin.write(b"1 2\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    err = process.stderr.read().decode()
    process.stdin.close()
    assert process.returncode == 130, err
    assert "SIGTERM" in err.splitlines()[-1]
    assert len(err.splitlines()) == 2, err
