"""Data generation: files, reports, own text, inspection, import of shards."""

import json
import sys

import pytest

from support import t2t_shards

NAMES = "zero one two three four five six seven eight nine".split()


@pytest.fixture
def flags(tiny_usr_dir, tmp_path):
    return [
        "--problem=tiny_digits",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={tmp_path / 'data'}",
    ]


@pytest.fixture
def datagen(run_command):
    """Return a function that runs the command; errors have an empty stdout."""

    def datagen(*flags):
        code, out, err = run_command("datagen", *flags)
        assert not code or out == ""
        return code, out, err

    return datagen


def test_files_and_report_have_the_documented_names(datagen, flags, tmp_path):
    code, out, _ = datagen(*flags, "--json")
    report = json.loads(out)
    assert (code, out.count("\n")) == (0, 1)
    assert report["problem"] == "tiny_digits"
    assert report["splits"]["train"] == {
        "examples": 40,
        "dropped": {},
        "damaged": {},
    }
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert "tiny_digits.manifest.json" in names
    assert "tiny_digits.vocab.290.model" in names
    for split in ("train", "dev", "test"):
        shards = [n for n in names if n.startswith(f"tiny_digits-{split}-")]
        assert f"tiny_digits-{split}-00000-of-{len(shards):05d}" in shards
    _, out, _ = datagen(*flags)
    assert out.splitlines() == [
        f"{split}: {pairs} pairs, none dropped"
        for split, pairs in (("train", 40), ("dev", 4), ("test", 4))
    ]


def test_same_seed_gives_the_same_files(datagen, flags, tmp_path):
    def files(*more):
        assert datagen(*flags, *more)[0] == 0
        return {
            path.name: path.read_bytes()
            for path in (tmp_path / "data").iterdir()
            if not path.name.endswith(".json")
        }

    first = files()
    assert files("--overwrite") == first
    assert files("--overwrite", "--seed=2") != first


def test_the_error_for_a_runner_without_beam_names_the_extra(
    datagen, flags, monkeypatch
):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    module = "t2t_lite.datagen.apache_beam"
    monkeypatch.delitem(sys.modules, module, raising=False)
    code, _, err = datagen(*flags, "--runner=DirectRunner")
    assert (code, "t2t-lite[beam]" in err) == (1, True)


@pytest.fixture
def text_flags(tmp_path):
    """Flags for own text: 60 pairs of digits and their names."""
    lines = []
    for number in range(60):
        digits = str(number * 37 + 1)
        named = " ".join(NAMES[int(digit)] for digit in digits)
        lines.append(f"{' '.join(digits)}\t{named}\n")
    (tmp_path / "all.tsv").write_text("".join(lines))
    return [
        "--problem=text",
        f"--pairs={tmp_path / 'all.tsv'}",
        "--vocab_size=290",
        "--holdout=3",
        f"--data_dir={tmp_path / 'data'}",
    ]


def test_flags_of_own_text_are_needed_only_once(datagen, text_flags, tmp_path):
    code, out, _ = datagen(*text_flags)
    assert code == 0
    for line in ("train: 54 pairs,", "dev: 3 pairs,", "test: 3 pairs,"):
        assert line in out
    manifest = tmp_path / "data" / "text.manifest.json"
    before = manifest.read_bytes()
    assert json.loads(before)["definition"]["options"] == {
        "pairs": str(tmp_path / "all.tsv"),
        "holdout": 3,
        "vocab_size": 290,
    }
    again = text_flags[0], text_flags[-1], "--overwrite"
    assert datagen(*again)[:2] == (0, out)
    assert manifest.read_bytes() == before
    assert datagen("--problem=text_rev", text_flags[-1])[:2] == (0, out)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--problem=multi30k_edne"], 2, ["multi30k_ende"]),
        ([], 2, ["--source and --target"]),
        (["--source=a"], 2, ["--source", "--target"]),
        (["--pairs=none.tsv"], 1, ["none.tsv"]),
        (["--pairs=a.tsv", "--raw_dir=x"], 2, ["--raw_dir"]),
        (["--pairs=a.tsv", "--name=wmt_ende"], 2, ["another problem"]),
        (["--holdout=0"], 2, ["holdout", "'0'"]),
        (["--problem=wmt_ende", "--source=a"], 2, ["source", "wmt_ende"]),
        (["--direct_num_workers=2"], 2, ["--direct_num_workers"]),
        (["--", "--direct_num_workers=2"], 2, ["--runner"]),
        (["--pairs=a.tsv", "b.tsv"], 2, ["'b.tsv'", "commas"]),
        (["--runner=DirectRunner", "--processes=2"], 2, ["--processes"]),
        (["--runner=DirectRunner", "--raw_dir=gs://b"], 2, ["gs://b"]),
        (["--inspect", "--problem=multi30k_ende"], 1, ["multi30k_ende"]),
        (["--inspect", "--overwrite"], 2, ["--inspect", "--overwrite"]),
    ],
)
def test_errors_for_bad_requests_name_the_cause_and_make_no_data(
    datagen, tmp_path, flags, code, words
):
    if not any(flag.startswith("--problem") for flag in flags):
        flags = ["--problem=text", *flags]
    got, _, err = datagen(f"--data_dir={tmp_path / 'data'}", *flags)
    assert got == code, err
    assert all(word in err for word in words), err
    assert not list(tmp_path.glob("data/*manifest*"))


def test_inspection_shows_counts_and_pairs(datagen, flags):
    _, counts, _ = datagen(*flags)
    flags[0] += "_rev"
    code, out, _ = datagen(*flags, "--inspect")
    assert (code, out[: len(counts)]) == (0, counts)
    pairs = [pair.splitlines() for pair in out.split("\n\n")[1:]]
    assert len({source for source, _ in pairs}) == 10
    for pair in pairs:
        source, target = (side.split(" tokens: ") for side in pair)
        assert int(source[0]) > 1 < int(target[0])
        names = [NAMES[int(digit)] for digit in target[1].split()]
        assert source[1].split() == names
    _, out, _ = datagen(*flags, "--inspect", "--json")
    assert json.loads(out)["splits"]["train"]["examples"] == 40


@pytest.fixture
def shards(tmp_path):
    """A folder of packed tensor2tensor shards, and the flags to import it."""
    folder = t2t_shards.write_shards(
        tmp_path, t2t_shards.ROWS, name="translate_packed"
    )
    vocabulary = folder / t2t_shards.VOCABULARY
    flags = ["--problem=translate_packed", f"--vocabulary={vocabulary}"]
    return folder, [f"--import_shards={folder}", *flags]


@pytest.mark.slow
def test_imported_shards_can_be_used_for_training(run_command, shards):
    folder, flags = shards
    train = ["--problem=text", "--name=translate_packed"]
    train += [f"--data_dir={folder}", f"--output_dir={folder / 'run'}"]
    code, _, err = run_command("trainer", *train, "--hparams=transformer_toy")
    assert (code, err.count("\n")) == (2, 1)
    assert (
        f"t2t-lite-datagen --import_shards={folder} --problem=translate_pac"
        in err
    )
    code, out, err = run_command("datagen", *flags)
    assert (code, out.splitlines()) == (
        0,
        [
            "train: 5 pairs in 3 packed rows, none dropped",
            "dev: 2 pairs in 1 packed rows, none dropped",
        ],
    )
    assert " ".join(train[:2]) in err
    train += [
        "--hparams=transformer_toy",
        "--hparams_override=packing=true,hidden_size=8,filter_size=8,"
        "num_hidden_layers=1,num_heads=1,"
        "max_length=16,batch_tokens=32,beam_size=1",
    ]
    for steps in (1, 2):
        given = (*train, f"--train_steps={steps}")
        code, out, err = run_command("trainer", *given)
        assert code == 0, err
        assert f"step: {steps}" in out
    code, out, _ = run_command(
        "evaluator", f"--output_dir={folder / 'run'}", "--split=dev", "--json"
    )
    assert (code, json.loads(out)["sentences"]) == (0, 2)
    code, _, err = run_command("datagen", *train[:3], "--overwrite")
    assert code == 1
    assert "translate_packed has imported shards" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--overwrite"], "--overwrite"),
        (["--source=a.txt"], "--source"),
        (["--data_dir=elsewhere"], "elsewhere"),
        (["--import_shards=nowhere"], "nowhere"),
        (["--vocabulary="], "--vocabulary"),
        (["--problem=b@d"], "b@d"),
    ],
)
def test_flags_that_conflict_with_an_import_are_named(
    run_command, shards, more, message
):
    folder, flags = shards
    before = sorted(folder.iterdir())
    code, out, err = run_command("datagen", *flags, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(folder.iterdir()) == before
