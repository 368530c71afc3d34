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
from support.rounding import approx_score
from t2t_lite.decoding.answers import Hypothesis, Translation
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.translator import Translator

LINES = ["1 2 3", "", "4", "7 8 9 1 1", "\u2603 snow\u2028man"]


@pytest.fixture
def stdin(monkeypatch, tmp_path):
    """Gives the next command these lines as its stdin."""

    def give(*lines, end="\n"):
        path = tmp_path / "stdin"
        path.write_bytes("".join(line + end for line in lines).encode())
        monkeypatch.setattr("sys.stdin", open(path, encoding="utf-8"))

    return give


def translation(text):
    return Translation(1, "", [Hypothesis(text, 0.0, [])])


def test_line_i_out_answers_line_i_in(run_command, tiny_run, stdin):
    stdin(*LINES)
    code, out, err = run_command("decoder", f"--output_dir={tiny_run}")
    assert code == 0
    answers = out.split("\n")
    assert answers.pop() == ""
    assert len(answers) == len(LINES)
    assert answers[1] == ""
    assert err.startswith("Weights: the average of 2 up to step 4 (")

    stdin(*reversed(LINES))
    _, out, _ = run_command(
        "decoder", f"--output_dir={tiny_run}", "--batch_size=1"
    )
    assert out.split("\n")[:-1] == answers[::-1]


def test_windows_line_ends_and_no_last_one_change_nothing(
    run_command, tiny_run, stdin
):
    stdin("1 2", "3")
    _, expected, _ = run_command("decoder", f"--output_dir={tiny_run}")
    stdin("1 2", "3", end="\r\n")
    _, windows, _ = run_command("decoder", f"--output_dir={tiny_run}")
    stdin("1 2\n3", end="")
    _, unended, _ = run_command("decoder", f"--output_dir={tiny_run}")
    assert expected == windows == unended
    assert expected.count("\n") == 2


def test_a_byte_order_mark_is_no_text(run_command, tiny_run, stdin, tmp_path):
    stdin("1 2", "3")
    _, expected, _ = run_command("decoder", f"--output_dir={tiny_run}")
    stdin("\ufeff1 2", "3")
    _, marked, _ = run_command("decoder", f"--output_dir={tiny_run}")
    path = tmp_path / "marked.txt"
    path.write_text("1 2\n3\n", "utf-8-sig")
    _, from_file, _ = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--decode_from_file={path}"
    )
    assert expected == marked == from_file
    path.write_text("1 2\n3\n", "utf-16")
    code, _, err = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--decode_from_file={path}"
    )
    assert code == 1
    assert str(path) in err and "UTF-16" in err


def test_only_trees_are_drawn(run_command, tiny_run):
    code, out, err = run_command(
        "decoder", f"--output_dir={tiny_run}", "--draw"
    )
    assert (code, out) == (2, "")
    assert "--draw is for trees; the answers of tiny_digits are plain " in err


def test_over_long_line_is_cut_with_a_note(run_command, tiny_run, stdin):
    stdin("1", "2 " * 500, "3")
    code, out, err = run_command("decoder", f"--output_dir={tiny_run}")
    assert (code, out.count("\n")) == (0, 3)
    assert "line 2: " in err and "max_length" in err


def test_notes_come_in_order_and_do_not_bury_the_rest(
    run_command, tiny_run, stdin
):
    lines = ["1", *("2 " * length for length in (300, 500, 400, 600, 350))]
    stdin(*lines)
    flags = [f"--output_dir={tiny_run}", "--batch_size=2"]
    _, _, err = run_command("decoder", *flags)
    starts = [line.partition(":")[0] for line in err.splitlines()[1:]]
    assert starts[:3] == ["line 2", "line 3", "line 4"]
    assert starts[3] == "and 2 more lines like these (--verbose shows all)."
    stdin(*lines)
    _, _, err = run_command("decoder", *flags, "--verbose")
    assert all(f"line {number}: a text may" in err for number in range(2, 7))


def test_a_long_file_shows_how_far_it_is(
    run_command, tiny_run, monkeypatch, tmp_path
):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("1 2\n" * 30)
    monkeypatch.setattr("t2t_lite.progress._SECONDS_BETWEEN_LINES", 0)
    code, _, err = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        f"--decode_from_file={source}",
        f"--decode_to_file={target}",
    )
    assert code == 0
    last = err.splitlines()[-1]
    assert last.startswith("decoding: 30 lines  ")
    assert "lines/s" in last and last.endswith("ETA 0:00:00")


def test_ctrl_c_keeps_the_whole_lines_and_says_where(
    run_command, tiny_run, stdin, monkeypatch, tmp_path
):
    def interrupted(*args, **kwargs):
        for answer in ("eins", "zwei"):
            yield translation(answer)
        raise KeyboardInterrupt

    monkeypatch.setattr("t2t_lite.decoding.lines.translate_lines", interrupted)
    target = tmp_path / "out"
    target.write_text("of another day\n")
    stdin("1", "2", "3")
    code, _, err = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--decode_to_file={target}"
    )
    assert code == 130
    assert err.splitlines()[-2:] == [
        f"{target}.partial has the first 2 lines.",
        "t2t-lite-decoder: stopped by Ctrl-C.",
    ]
    assert (tmp_path / "out.partial").read_text() == "eins\nzwei\n"
    assert target.read_text() == "of another day\n"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_keeps_the_whole_lines(
    run_command, tiny_run, stdin, monkeypatch, tmp_path
):
    def full(*args, **kwargs):
        yield translation("eins")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("t2t_lite.decoding.lines.translate_lines", full)
    stdin("1", "2")
    code, _, err = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        f"--decode_to_file={tmp_path / 'out'}",
    )
    assert code == 1
    assert "No space left on device; free some space" in err.splitlines()[-1]
    assert (tmp_path / "out.partial").read_text() == "eins\n"
    assert not (tmp_path / "out").exists()


def interrupted_after(count):
    """`translate_lines` with a Ctrl-C behind so many answers."""

    def interrupted(*args, **kwargs):
        yield from itertools.islice(translate_lines(*args, **kwargs), count)
        raise KeyboardInterrupt

    return interrupted


@pytest.fixture
def file_to_file(tiny_run, tmp_path):
    """Flags that decode a file of requests, of which one is none."""
    source = tmp_path / "in"
    lines = [json.dumps({"text": f"{n} {n % 7}"}) for n in range(70)]
    source.write_text("\n".join([*lines[:9], '{"text": 5}', *lines[9:]]))
    return [
        f"--output_dir={tiny_run}",
        f"--decode_from_file={source}",
        "--input_format=json",
        "--batch_size=2",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "text"])
def test_the_same_command_goes_on_behind_the_last_whole_line(
    run_command, file_to_file, monkeypatch, tmp_path, kind
):
    file_to_file.append(f"--format={kind}")
    whole, target = tmp_path / "whole", tmp_path / "out"
    partial = tmp_path / "out.partial"
    run_command("decoder", *file_to_file, f"--decode_to_file={whole}")
    flags = [*file_to_file, f"--decode_to_file={target}"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "t2t_lite.decoding.lines.translate_lines", interrupted_after(40)
        )
        code, _, err = run_command("decoder", *flags)
    assert (code, partial.read_bytes().count(b"\n")) == (130, 40)
    assert f"{partial} has the first 40 lines." in err
    assert not target.exists()
    with open(partial, "ab") as file:
        file.write(b'{"line": 41, "sou')
    code, _, err = run_command("decoder", *flags)
    assert "Going on behind line 40." in err
    assert target.read_bytes() == whole.read_bytes()
    # The request without an answer is one of those that were there.
    assert (code, "1 request(s) had an error" in err) == (1, True)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "whole", "out"}


def test_lines_of_something_else_are_not_gone_on_with(
    run_command, file_to_file, monkeypatch, tmp_path
):
    flags = [*file_to_file, f"--decode_to_file={tmp_path / 'out'}"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "t2t_lite.decoding.lines.translate_lines", interrupted_after(3)
        )
        run_command("decoder", *flags)
    partial = tmp_path / "out.partial"
    kept = partial.read_bytes()
    changes = {
        "--beam_size=2": "--beam_size was None and is 2",
        "--checkpoint=2": "weights was ",
        "--nbest=2": "--nbest was 1 and is 2",
    }
    for flag, change in changes.items():
        code, _, err = run_command("decoder", *flags, flag)
        assert (code, partial.read_bytes()) == (2, kept)
        assert f"{partial} has the first 3 lines" in err
        assert change in err and "--overwrite" in err
    source = tmp_path / "in"
    source.write_bytes(source.read_bytes() + b"\n")
    code, _, err = run_command("decoder", *flags)
    assert (code, "input was " in err) == (2, True)
    # What changes the speed only may change.
    code, _, err = run_command(
        "decoder", *flags, "--overwrite", "--batch_tokens=50", "--replicas=2"
    )
    assert code == 1 and "Going on" not in err
    assert (tmp_path / "out").read_bytes().startswith(kept)
    assert not partial.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        [],
        pytest.param(
            ["--batch_tokens=40", "--replicas=2"], marks=pytest.mark.slow
        ),
    ],
)
def test_every_way_in_gives_the_same_answers(
    run_command, tiny_run, monkeypatch, stdin, tmp_path, flags
):
    lines = [
        "1 2",
        "",
        " \t",
        "7\t8",
        "é\u2028\u202e3",
        "\N{DOG FACE} 4",
        "5 " * 90,
    ]
    flags = [f"--output_dir={tiny_run}", *flags]
    stdin(*lines)
    _, stream, _ = run_command("decoder", *flags)
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    _, of_file, _ = run_command(
        "decoder", *flags, f"--decode_from_file={source}"
    )
    run_command(
        "decoder",
        *flags,
        f"--decode_from_file={source}",
        f"--decode_to_file={target}",
    )
    requests = (json.dumps({"text": line}) for line in lines)
    stdin(*requests)
    _, in_json, _ = run_command(
        "decoder", *flags, "--input_format=json", "--format=text"
    )
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    target.unlink()
    run_command(
        "decoder",
        *flags,
        f"--decode_from_file={packed}",
        f"--decode_to_file={target}",
    )
    stdin(*lines)
    _, typed, _ = run_command("decoder", *flags, "--interactive")
    replicas = 2 if len(flags) > 1 else 1
    loaded = t2t_lite.load(tiny_run, replicas=replicas)(lines)
    assert stream.split("\n") == [*loaded, ""]
    assert stream == of_file == target.read_text("utf-8") == in_json == typed


@pytest.mark.slow
def test_a_killed_decoder_goes_on(run_command, file_to_file, tmp_path):
    whole, target = tmp_path / "whole", tmp_path / "out"
    run_command("decoder", *file_to_file, f"--decode_to_file={whole}")
    flags = [*file_to_file, f"--decode_to_file={target}"]
    partial = tmp_path / "out.partial"
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_lite.bin.decoder", *flags],
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
        if partial.exists() and partial.stat().st_size:
            process.kill()
            process.wait()
    if not target.exists():  # else it was as fast as we are
        assert partial.read_bytes()
        run_command("decoder", *flags)
    assert target.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("out.*")) + list(tmp_path.glob(".*"))


def test_json_is_one_object_a_line(run_command, tiny_run, stdin):
    stdin("1 2", "é")
    flags = [f"--output_dir={tiny_run}", "--format=json", "--nbest=3"]
    code, out, _ = run_command("decoder", *flags)
    assert code == 0
    first, second = map(json.loads, out.splitlines())
    assert first.keys() == {"line", "source", "hypotheses"}
    assert (first["line"], first["source"]) == (1, "1 2")
    assert (second["line"], second["source"]) == (2, "é")
    assert 1 <= len(first["hypotheses"]) <= 3
    scores = [each["score"] for each in first["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    best = first["hypotheses"][0]
    assert best.keys() == {"text", "score", "tokens"}
    assert all(isinstance(token, int) for token in best["tokens"])


def alike(one, other):
    """Whether two answers are equal but for the last bits of their scores."""
    (best,), (other_best,) = one["hypotheses"], other["hypotheses"]
    near = {**best, "score": approx_score(best["score"])}
    return other_best == near and {**one, "hypotheses": 0} == {
        **other,
        "hypotheses": 0,
    }


def test_json_lines_are_answered_line_for_line(run_command, tiny_run, stdin):
    flags = [f"--output_dir={tiny_run}"]
    stdin("1 2", "3")
    _, out, _ = run_command("decoder", *flags, "--format=json")
    first, second = map(json.loads, out.splitlines())
    stdin(
        '{"text": "1 2", "id": "\\ud800"}',
        '{"text": "1 2", "txt": 5, "id": 7}',
        "1 2",
        '{"text": "3"}',
        '{"text": "3", "prefix": "th"}',
    )
    code, out, err = run_command("decoder", *flags, "--input_format=json")
    answers = [json.loads(line) for line in out.splitlines()]
    assert alike(answers[0], {**first, "id": "\ud800"})
    assert answers[1].keys() == {"line", "id", "error"}
    assert (answers[1]["line"], answers[1]["id"]) == (2, 7)
    assert answers[2].keys() == {"line", "error"}
    assert alike(answers[3], {**second, "line": 4})
    assert len(answers) == 5
    assert (code, len(err.splitlines())) == (1, 2)
    assert "request(s) had an error instead of an answer" in err


def test_a_request_without_an_answer_is_an_empty_line_of_text(
    run_command, tiny_run, stdin
):
    flags = [f"--output_dir={tiny_run}", "--input_format=json"]
    stdin('{"text": "1 2"}', '{"text": 5}', '{"text": "1 2"}')
    code, out, err = run_command("decoder", *flags, "--format=text")
    first, second, third, end = out.split("\n")
    assert (code, second, end) == (1, "", "")
    assert first == third
    assert "line 2: text must be a string; got 5." in err


def test_pairs_may_be_json_lines(run_command, tiny_run, stdin):
    flags = [f"--output_dir={tiny_run}", "--score"]
    stdin("1\tone", "2\ttwo")
    _, out, _ = run_command("decoder", *flags, "--format=json")
    expected = [json.loads(line) for line in out.splitlines()]
    stdin(
        '{"source": "1", "target": "one", "id": 1}',
        '{"source": "2", "target": "two"}',
        '{"source": "3"}',
    )
    code, out, _ = run_command("decoder", *flags, "--input_format=json")
    *scored, refused = map(json.loads, out.splitlines())
    assert scored == [{**expected[0], "id": 1}, expected[1]]
    assert refused.keys() == {"line", "error"}
    assert code == 1


def test_nbest_text_keeps_one_line_a_source(run_command, tiny_run, stdin):
    stdin("1 2", "3")
    _, out, _ = run_command("decoder", f"--output_dir={tiny_run}", "--nbest=2")
    assert out.count("\n") == 2
    assert all(line.count("\t") <= 1 for line in out.splitlines())


def test_file_to_file_gives_what_the_stream_gives(
    run_command, tiny_run, stdin, tmp_path
):
    stdin(*LINES)
    _, expected, _ = run_command("decoder", f"--output_dir={tiny_run}")
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{x}\n" for x in LINES), encoding="utf-8")
    code, out, _ = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        f"--decode_from_file={source}",
        f"--decode_to_file={target}",
    )
    assert (code, out) == (0, "")
    assert target.read_bytes() == expected.encode()
    assert {path.name for path in tmp_path.iterdir()} >= {"in", "out"}
    assert not list(tmp_path.glob(".*.tmp"))


def test_failure_leaves_an_old_output_file_alone(
    run_command, tiny_run, stdin, tmp_path
):
    target = tmp_path / "out"
    target.write_text("kept\n")
    stdin("no tab here")
    code, _, err = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        "--score",
        f"--decode_to_file={target}",
    )
    assert code == 1
    assert "line 1 has 0 tabs" in err
    assert target.read_text() == "kept\n"
    assert not list(tmp_path.glob(".*.tmp"))


def test_score_of_a_translation_is_the_searchs_own(
    run_command, tiny_run, stdin
):
    stdin("1 2 3")
    flags = [f"--output_dir={tiny_run}", "--format=json"]
    _, out, _ = run_command("decoder", *flags)
    best = json.loads(out)["hypotheses"][0]
    stdin(f"1 2 3\t{best['text']}")
    code, out, _ = run_command("decoder", *flags, "--score")
    report = json.loads(out)
    assert code == 0
    assert (report["line"], report["target"]) == (1, best["text"])
    if report["tokens"] == len(best["tokens"]):  # segmented the same way
        assert report["score"] == approx_score(best["score"])


def test_score_prints_a_number_a_pair(run_command, tiny_run, stdin):
    stdin("1\tone", "2\ttwo")
    _, out, _ = run_command("decoder", f"--output_dir={tiny_run}", "--score")
    assert [float(line) < 0 for line in out.splitlines()] == [True, True]


def test_interactive_answers_until_the_end_of_input(
    run_command, tiny_run, monkeypatch
):
    outs = []
    for mark in ("", "\ufeff"):  # a byte order mark is no text
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{mark}1 2\n3\n"))
        code, out, err = run_command(
            "decoder", f"--output_dir={tiny_run}", "--interactive"
        )
        assert (code, out.count("\n")) == (0, 2)
        assert err.startswith("Loading the model.\nWeights: ")
        outs.append(out)
    assert outs[0] == outs[1]


def test_typed_lines_are_counted(run_command, tiny_run, stdin):
    stdin("1 2", "", "{")
    code, out, _ = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        "--interactive",
        "--format=json",
    )
    assert code == 0
    numbers = [json.loads(line)["line"] for line in out.splitlines()]
    assert numbers == [1, 2, 3]


def test_a_compiled_search_gives_the_same_answers(run_command, tiny_run, stdin):
    flags = [f"--output_dir={tiny_run}", "--interactive"]
    typed = []
    for more in ([], ["--jit"]):
        stdin(*LINES[:4])
        code, out, _ = run_command("decoder", *flags, *more)
        assert code == 0
        typed.append(out)
    assert typed[0] == typed[1]
    stdin("1\t2")
    code, out, err = run_command("decoder", flags[0], "--jit", "--score")
    assert (code, out) == (2, "")
    assert "--jit compiles searches" in err


def test_interactive_asks_when_it_can_answer(
    run_command, tiny_run, monkeypatch
):
    events = []
    warm_up = Translator.warm_up

    def warmed(translator, *args):
        warm_up(translator, *args)
        events.append("warm")

    def ask(prompt):
        events.append("asked")
        raise EOFError

    monkeypatch.setattr(Translator, "warm_up", warmed)
    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run_command("decoder", f"--output_dir={tiny_run}", "--interactive")
    assert events == ["warm", "asked"]


@pytest.mark.parametrize("which", ["latest", "average", "2", "default"])
def test_checkpoint_in_use_is_named(run_command, tiny_run, stdin, which):
    stdin("1")
    code, _, err = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--checkpoint={which}"
    )
    assert code == 0
    step = "step 2" if which == "2" else "step 4"
    assert err.startswith("Weights: ") and step in err


def test_paragraphs_stay_one_line(run_command, tiny_run, stdin):
    flags = [f"--output_dir={tiny_run}", "--format=json"]
    stdin("1 2. 3 4.", "", "5")
    code, out, _ = run_command("decoder", *flags, "--split_sentences")
    first, blank, third = map(json.loads, out.splitlines())
    stdin("1 2.", "3 4.", "", "5")
    _, out, _ = run_command("decoder", *flags)
    one, other, *rest = map(json.loads, out.splitlines())
    texts = [each["hypotheses"][0]["text"] for each in (one, other)]
    assert code == 0
    assert first["source"] == "1 2. 3 4."
    assert first["hypotheses"][0]["text"] == " ".join(filter(None, texts))
    assert [blank["hypotheses"], third["hypotheses"]] == [
        each["hypotheses"] for each in rest
    ]


def test_bad_requests_are_one_line(run_command, tiny_run, stdin, tmp_path):
    source = tmp_path / "in"
    source.write_text("1\n")
    run = f"--output_dir={tiny_run}"
    missing = f"--decode_from_file={tmp_path}/missing"
    same = [f"--decode_from_file={source}", f"--decode_to_file={source}"]
    partial = tmp_path / "in.partial"
    partial.write_text("1\n")
    grown = [f"--decode_from_file={partial}", f"--decode_to_file={source}"]
    cases = [
        ([], 2, "Give --output_dir, or --problem and --hparams"),
        ([f"--output_dir={tmp_path}"], 1, "it has no config.json"),
        ([f"--output_dir={source}"], 1, "in: it is no folder"),
        ([run, missing], 1, f"there is no file {tmp_path}/missing"),
        ([run, f"--decode_from_file={tmp_path}"], 1, "is a folder."),
        ([run, *same], 2, "which --decode_to_file writes"),
        ([run, *grown], 2, "in.partial, which --decode_to_file writes"),
        ([run, "--decode_to_file=/dev/null"], 2, "Leave it out, and write > /"),
        ([run, f"--decode_to_file={tmp_path}/no/out"], 1, "no folder"),
        ([run, "--nbest=9"], 2, "--nbest must be at most the beam size"),
        ([run, "--checkpoint=3"], 1, "There is no checkpoint of step 3"),
        ([run, "--checkpoint=bset"], 2, "A checkpoint is named by one of"),
        ([run, "--interactive", "--score"], 2, "asks for lines: leave out"),
        ([run, "--split_sentences", "--nbest=2"], 2, "one translation of each"),
        ([run, "--split_sentences", "--score"], 2, "--score does not go"),
        ([run, "--problem=other"], 2, "--problem=other is not what"),
        ([run, "--hparams=other"], 2, "--hparams=other is not what"),
        ([run, f"--decode_to_file={tmp_path}"], 1, "is a folder."),
    ]
    for flags, code, message in cases:
        stdin("1")
        got, out, err = run_command("decoder", *flags)
        assert (got, out) == (code, ""), flags
        assert message in err, flags
        assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")],
)
def test_a_stream_is_answered_before_it_ends_and_a_signal_is_clean(
    tiny_run, number, name
):
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_lite.bin.decoder"]
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
    process.send_signal(number)
    process.wait(timeout=60)
    err = process.stderr.read().decode()
    process.stdin.close()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"t2t-lite-decoder: stopped by {name}."
    assert len(err.splitlines()) == 2, err
