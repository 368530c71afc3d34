"""A tiny run of two directions by tags: trained, decoded, scored, exported."""

import json

import pytest

pytestmark = pytest.mark.slow

PAIRS = {
    "ab.tsv": [(f"a {i}", f"b {i}") for i in range(60)],
    "ac.tsv": [(f"a {i}", f"c {i}") for i in range(20)],
    "dev_ab.tsv": [("a 61", "b 61"), ("a 62", "b 62")],
    "dev_ac.tsv": [("a 63", "c 63")],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_usr_dir):
    """The folder of a run trained for four updates."""
    from t2t_lite.bin import trainer

    folder = tmp_path_factory.mktemp("tags")
    for name, pairs in PAIRS.items():
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / name).write_text(lines)
    dev = f"{folder}/dev_ab.tsv:2b,{folder}/dev_ac.tsv:2c"
    flags = [
        "--problem=text",
        f"--pairs={folder}/ab.tsv:0.5:2b,{folder}/ac.tsv:0.5:2c",
        f"--dev_pairs={dev}",
        f"--test_pairs={dev}",
        "--vocab_size=280",
        "--hparams=tiny_digits_set",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'run'}",
    ]
    assert trainer.main(flags) == 0
    return folder / "run"


@pytest.fixture
def decode(run, run_command, monkeypatch, tmp_path):
    """The lines that the decoder writes for some lines, as JSON."""

    def decode(lines, *flags):
        path = tmp_path / "lines"
        path.write_text("".join(f"{line}\n" for line in lines))
        code, out, err = run_command(
            "decoder",
            f"--output_dir={run}",
            f"--decode_from_file={path}",
            "--format=json",
            *flags,
        )
        return code, [json.loads(line) for line in out.splitlines()], err

    return decode


def texts(answers):
    return [
        (each["source"], each["hypotheses"][0]["tokens"]) for each in answers
    ]


def test_a_tag_is_the_same_given_by_flag_in_json_or_typed(decode):
    sources = ["a 5", "", "a 7"]
    _, typed, _ = decode(["<2b> a 5", "", "<2b> a 7"])
    code, by_flag, _ = decode(sources, "--tag=2b")
    assert code == 0
    assert texts(by_flag) == texts(typed)
    requests = [json.dumps({"text": text, "tag": "2b"}) for text in sources]
    _, asked, _ = decode(requests, "--input_format=json", "--tag=2c")
    assert texts(asked) == texts(typed)
    assert by_flag[0]["source"] == "<2b> a 5"
    _, other, _ = decode(sources, "--tag=<2c>")
    assert [source for source, _ in texts(other)] == [
        "<2c> a 5",
        "",
        "<2c> a 7",
    ]


def test_each_sentence_of_a_paragraph_has_the_tag(decode):
    _, one, _ = decode(["A 5. A 7."], "--tag=2b", "--split_sentences")
    _, apart, _ = decode(["<2b> A 5.", "<2b> A 7."])
    joined = [
        token for each in apart for token in each["hypotheses"][0]["tokens"]
    ]
    assert one[0]["hypotheses"][0]["tokens"] == joined


def test_pairs_are_scored_with_the_tag(decode):
    _, typed, _ = decode(["<2b> a 5\tb 5"], "--score")
    _, by_flag, _ = decode(["a 5\tb 5"], "--score", "--tag=2b")
    pair = json.dumps({"source": "a 5", "target": "b 5", "tag": "2b"})
    _, asked, _ = decode([pair], "--score", "--input_format=json")
    _, without, _ = decode(["a 5\tb 5"], "--score")
    assert by_flag == typed == asked != without


def test_an_unknown_tag_is_refused_and_the_known_ones_are_named(decode):
    code, answers, err = decode(["a"], "--tag=2d")
    assert (code, answers) == (2, [])
    assert "one of those of the corpora, <2b>, <2c>; got '2d'." in err
    line = json.dumps({"text": "a", "tag": "2d"})
    code, (answer,), _ = decode([line], "--input_format=json")
    assert code == 1 and "<2b>, <2c>; got '2d'." in answer["error"]


def test_a_run_without_tags_says_so(run_command, tiny_run):
    code, _, err = run_command(
        "decoder", f"--output_dir={tiny_run}", "--tag=2b"
    )
    assert code == 2 and "which have none; got '2b'." in err


def test_the_evaluator_reports_each_tag(run, run_command):
    code, out, _ = run_command("evaluator", f"--output_dir={run}", "--json")
    report = json.loads(out)
    assert code == 0 and report["sentences"] == 3
    assert {t: of["sentences"] for t, of in report["by_tag"].items()} == {
        "<2b>": 2,
        "<2c>": 1,
    }
    _, out, _ = run_command("evaluator", f"--output_dir={run}")
    assert "  by_tag: <2b> score 0.00, sentences 2, <2c> score 0.00, " in out


def test_python_and_an_export_take_the_tag_as_the_decoder_does(
    run, run_command, decode, tmp_path
):
    import t2t_lite
    from t2t_lite.errors import UsageError

    sources = ["a 5", "a 7"]
    _, answers, _ = decode(sources, "--tag=2b")
    expected = [each["hypotheses"][0]["text"] for each in answers]
    loaded = t2t_lite.load(run)
    asked = [t2t_lite.Request(text, tag="2b") for text in sources]
    typed = [f"<2b> {text}" for text in sources]
    assert loaded(asked) == loaded(typed) == expected
    with pytest.raises(UsageError, match="<2b>, <2c>; got '2d'"):
        loaded(t2t_lite.Request("a", tag="2d"))
    code, _, _ = run_command(
        "exporter", f"--output_dir={run}", f"--export_dir={tmp_path / 'export'}"
    )
    assert code == 0
    exported = t2t_lite.load(tmp_path / "export")
    assert exported(typed) == expected
    with pytest.raises(UsageError, match="tag .*got '2b'"):
        exported(asked)


def test_the_card_of_the_run_has_its_corpora(run):
    card = (run / "card.md").read_text("utf-8")
    facts = card.partition("## Data")[2].partition("```json")[2]
    corpora = json.loads(facts.partition("```")[0])["corpora"]
    found = {corpus["tag"]: corpus for corpus in corpora}["<2c>"]
    assert (found["files"], found["pairs"], found["copies"]) == (
        ["ac.tsv"],
        20,
        60,
    )
