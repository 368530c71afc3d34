"""Tags that select one of two target languages, in all commands."""

import json

import pytest

import t2t_lite
from support.lines import records
from t2t_lite.errors import UsageError

pytestmark = pytest.mark.slow

PAIRS = {
    "ab.tsv": [(f"a {i}", f"b {i}") for i in range(60)],
    "ac.tsv": [(f"a {i}", f"c {i}") for i in range(20)],
    "dev_ab.tsv": [("a 61", "b 61"), ("a 62", "b 62")],
    "dev_ac.tsv": [("a 63", "c 63")],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_usr_dir):
    """The folder of a run with two tags, trained for four updates."""
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
def decode_json(run, decode):
    """Return a function that decodes lines: (exit code, records, stderr)."""

    def decode_json(lines, *flags):
        flags = [f"--output_dir={run}", "--format=json", *flags]
        code, out, err = decode(lines, *flags)
        return code, records(out), err

    return decode_json


def sources_and_tokens(results):
    return [
        (each["source"], each["hypotheses"][0]["tokens"]) for each in results
    ]


def test_tags_by_flag_in_json_and_in_the_text_are_equivalent(decode_json):
    sources = ["a 5", "", "a 7"]
    _, typed, _ = decode_json(["<2b> a 5", "", "<2b> a 7"])
    code, by_flag, _ = decode_json(sources, "--tag=2b")
    assert code == 0
    assert sources_and_tokens(by_flag) == sources_and_tokens(typed)
    requests = [json.dumps({"text": text, "tag": "2b"}) for text in sources]
    _, from_json, _ = decode_json(requests, "--input_format=json", "--tag=2c")
    assert sources_and_tokens(from_json) == sources_and_tokens(typed)
    _, other, _ = decode_json(sources, "--tag=<2c>")
    tagged = [source for source, _ in sources_and_tokens(other)]
    assert tagged == ["<2c> a 5", "", "<2c> a 7"]


def test_the_error_for_an_unknown_tag_lists_the_known_tags(decode_json):
    code, results, err = decode_json(["a"], "--tag=2d")
    assert (code, results) == (2, [])
    assert "<2b>, <2c>" in err
    line = json.dumps({"text": "a", "tag": "2d"})
    code, (result,), _ = decode_json([line], "--input_format=json")
    assert code == 1 and "<2b>, <2c>" in result["error"]


def test_the_evaluator_reports_each_tag(run, run_command):
    code, out, _ = run_command("evaluator", f"--output_dir={run}", "--json")
    report = json.loads(out)
    assert code == 0 and report["sentences"] == 3
    by_tag = report["by_tag"]
    assert [by_tag[t]["sentences"] for t in ("<2b>", "<2c>")] == [2, 1]


def test_tags_in_python_and_in_an_export_equal_those_of_the_decoder(
    run, run_command, decode_json, tmp_path
):
    sources = ["a 5", "a 7"]
    _, results, _ = decode_json(sources, "--tag=2b")
    expected = [each["hypotheses"][0]["text"] for each in results]
    loaded = t2t_lite.load(run)
    requests = [t2t_lite.Request(text, tag="2b") for text in sources]
    typed = [f"<2b> {text}" for text in sources]
    assert loaded(requests) == loaded(typed) == expected
    with pytest.raises(UsageError, match="<2b>, <2c>"):
        loaded(t2t_lite.Request("a", tag="2d"))
    code, _, _ = run_command(
        "exporter", f"--output_dir={run}", f"--export_dir={tmp_path / 'export'}"
    )
    assert code == 0
    exported = t2t_lite.load(tmp_path / "export")
    assert exported(typed) == expected
    with pytest.raises(UsageError, match="tag .*'2b'"):
        exported(requests)


def test_the_model_card_lists_the_corpora(run):
    card = (run / "card.md").read_text("utf-8")
    facts = card.partition("## Data")[2].partition("```json")[2]
    corpora = json.loads(facts.partition("```")[0])["corpora"]
    found = {corpus["tag"]: corpus for corpus in corpora}["<2c>"]
    counts = found["files"], found["pairs"], found["copies"]
    assert counts == (["ac.tsv"], 20, 60)
