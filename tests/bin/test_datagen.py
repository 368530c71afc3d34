import json
import sys

import pytest

from support import t2t_shards


@pytest.fixture
def flags(tiny_usr_dir, tmp_path):
    return [
        "--problem=tiny_digits",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={tmp_path / 'data'}",
    ]


def test_files_have_the_names_of_the_contract(run_command, flags, tmp_path):
    code, out, _ = run_command("datagen", *flags, "--json")
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


def test_without_json_there_is_a_line_a_split(run_command, flags):
    code, out, _ = run_command("datagen", *flags)
    assert code == 0
    assert out.splitlines() == [
        "train: 40 pairs",
        "dev: 4 pairs",
        "test: 4 pairs",
    ]


def test_same_seed_gives_the_same_files(run_command, flags, tmp_path):
    def files():
        return {
            path.name: path.read_bytes()
            for path in (tmp_path / "data").iterdir()
            if not path.name.endswith(".json")
        }

    run_command("datagen", *flags)
    first = files()
    code, _, _ = run_command("datagen", *flags, "--overwrite")
    assert code == 0
    assert files() == first
    run_command("datagen", *flags, "--overwrite", "--seed=2")
    assert files() != first


def test_stale_data_is_refused(run_command, flags, tmp_path, monkeypatch):
    from t2t_lite import plugins, registry

    run_command("datagen", *flags)
    plugins.load_plugins(flags[1].partition("=")[2])
    problem = type(registry.problem("tiny_digits"))
    monkeypatch.setattr(problem, "vocab_size", 291)
    code, out, err = run_command("datagen", *flags)
    assert (code, out) == (1, "")
    assert "vocab_size was 290, is 291" in err
    assert "--overwrite" in err


def test_damaged_shard_is_named(run_command, flags, tmp_path):
    run_command("datagen", *flags)
    (shard, *_) = sorted((tmp_path / "data").glob("tiny_digits-train-*"))
    shard.write_bytes(shard.read_bytes()[:-7])
    code, _, err = run_command(
        "trainer",
        *flags,
        "--hparams=tiny_digits_set",
        f"--output_dir={tmp_path / 'run'}",
    )
    assert code == 1
    assert f"{shard} is damaged" in err
    assert "--overwrite" in err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "train.en"),
        ({"train.en": "a\nb\n", "train.de": "a\n"}, "train.de"),
        ({"train.en": "", "train.de": ""}, "got a corpus without any"),
    ],
)
def test_missing_unequal_and_empty_files_are_named(
    run_command, forget_plugins, tmp_path, files, message
):
    usr_dir, raw_dir = tmp_path / "usr", tmp_path / "raw"
    usr_dir.mkdir()
    raw_dir.mkdir()
    (usr_dir / "usr_files.py").write_text(
        "from t2t_lite import Text2TextProblem\n"
        "from t2t_lite.problem import read_parallel\n"
        "from t2t_lite.registry import register_problem\n"
        "@register_problem('usr_files')\n"
        "class UsrFiles(Text2TextProblem):\n"
        "    vocab_size = 280\n"
        "    def samples(self, split, raw):\n"
        "        return read_parallel(\n"
        "            raw.path('train.en'), raw.path('train.de'))\n"
    )
    for name, text in files.items():
        (raw_dir / name).write_text(text)
    code, out, err = run_command(
        "datagen",
        "--problem=usr_files",
        f"--usr_dir={usr_dir}",
        f"--raw_dir={raw_dir}",
        f"--data_dir={tmp_path / 'data'}",
    )
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err
    assert not list((tmp_path / "data").glob("*manifest*"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--direct_num_workers=2"], "Unknown flag --direct_num_workers"),
        (["--", "--direct_num_workers=2"], "after --runner=RUNNER and --"),
        (["--runner=DirectRunner", "--processes=2"], "--processes is for this"),
        (["--runner=DirectRunner", "--data_dir=gs://b"], "got gs://b."),
    ],
)
def test_flags_that_do_not_go_with_a_runner_or_without(
    run_command, flags, more, message
):
    code, out, err = run_command("datagen", *flags, *more)
    assert (code, out) == (2, "")
    assert message in err


def test_a_runner_without_beam_says_what_to_install(
    run_command, flags, monkeypatch
):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    module = "t2t_lite.datagen.apache_beam"
    monkeypatch.delitem(sys.modules, module, raising=False)
    code, out, err = run_command("datagen", *flags, "--runner=DirectRunner")
    assert (code, out) == (1, "")
    assert "pip install 't2t-lite[beam]'" in err


def test_unknown_problem_is_answered_with_the_nearest(run_command):
    code, _, err = run_command("datagen", "--problem=multi30k_edne")
    assert code == 2
    assert "Did you mean multi30k_ende" in err


def digits_tsv(path, count=60):
    words = "zero one two three four five six seven eight nine".split()
    with open(path, "w") as file:
        for number in range(count):
            digits = str(number * 37 + 1)
            named = " ".join(words[int(digit)] for digit in digits)
            file.write(f"{' '.join(digits)}\t{named}\n")
    return path


@pytest.fixture
def text_flags(tmp_path):
    return [
        "--problem=text",
        f"--pairs={digits_tsv(tmp_path / 'all.tsv')}",
        "--vocab_size=290",
        "--holdout=3",
        f"--data_dir={tmp_path / 'data'}",
    ]


def test_own_text_needs_its_flags_once(run_command, text_flags, tmp_path):
    code, out, _ = run_command("datagen", *text_flags)
    assert code == 0
    assert out.splitlines() == [
        "train: 54 pairs",
        "dev: 3 pairs",
        "test: 3 pairs",
    ]
    manifest = tmp_path / "data" / "text.manifest.json"
    before = manifest.read_bytes()
    assert json.loads(before)["definition"]["options"] == {
        "pairs": str(tmp_path / "all.tsv"),
        "holdout": 3,
        "vocab_size": 290,
    }
    again = text_flags[0], text_flags[-1], "--overwrite"
    assert run_command("datagen", *again)[:2] == (0, out)
    assert manifest.read_bytes() == before
    reverse = "--problem=text_rev", text_flags[-1]
    assert run_command("datagen", *reverse)[:2] == (0, out)


def test_own_text_of_other_flags_is_refused(run_command, text_flags, tmp_path):
    run_command("datagen", *text_flags)
    code, out, err = run_command("datagen", *text_flags, "--vocab_size=300")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert (
        "options.vocab_size was 290, is 300. Use another --data_dir or" in err
    )
    assert "--overwrite and the flags given here" in err
    overwrite = "--vocab_size=300", "--overwrite"
    assert run_command("datagen", *text_flags, *overwrite)[0] == 0
    named = *text_flags, "--name=mine"
    assert run_command("datagen", *named)[0] == 0
    files = {path.name for path in (tmp_path / "data").iterdir()}
    assert {"text.vocab.300.model", "mine.vocab.290.model"} <= files


def test_a_name_chooses_among_data(run_command, text_flags, tmp_path):
    data_dir = text_flags[-1]
    run_command("datagen", *text_flags, "--name=one")
    assert run_command("datagen", "--problem=text", data_dir)[0] == 0
    run_command("datagen", *text_flags, "--name=two", "--holdout=4")
    code, _, err = run_command("datagen", "--problem=text", data_dir)
    assert code == 2
    assert f"{tmp_path / 'data'} holds the data of one, two: name one" in err
    two = run_command("datagen", "--problem=text", data_dir, "--name=two")
    assert "dev: 4 pairs" in two[1]
    code, _, err = run_command(
        "datagen", "--problem=text", data_dir, "--name=tow"
    )
    assert code == 2
    assert "holds no data of tow: give its files" in err
    assert "Did you mean two?" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            [],
            "holds no data of text: give its files with --source and --target",
        ),
        (["--source=a"], "got --source without --target"),
        (["--pairs=none.tsv"], "--pairs: there is no file /"),
        (["--pairs=a.tsv", "--raw_dir=x"], "leave --raw_dir out; got /"),
        (["--pairs=a.tsv", "--tfds_dir=x"], "reads no TensorFlow Datasets"),
        (["--pairs=a.tsv", "--name=wmt_ende"], "that of another problem; got "),
        (["--holdout=0"], "must be a whole number, at least 1; got '0'"),
        (
            ["--problem=wmt_ende", "--source=a"],
            "--source goes with --problem=text; got --problem=wmt_ende.",
        ),
        (
            ["--problem=wmt_ende", "--separate_vocabularies"],
            "--separate_vocabularies goes with --problem=text; got",
        ),
    ],
)
def test_wrong_flags_of_own_text_are_one_line(
    run_command, tmp_path, flags, message
):
    flags = ["--problem=text", f"--data_dir={tmp_path / 'data'}", *flags]
    code, out, err = run_command("datagen", *flags)
    assert (code, out) == (1 if "there is no file" in message else 2, "")
    assert message in err.splitlines()[-1]
    assert not list(tmp_path.glob("data/*manifest*"))


def test_inspection_makes_no_data(run_command, flags, tmp_path):
    code, out, err = run_command("datagen", *flags, "--inspect")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "make it with t2t-lite-datagen --problem=tiny_digits" in err
    code, _, err = run_command(
        "datagen", "--problem=text", flags[2], "--inspect"
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "--source and --target, or --pairs, to t2t-lite-datagen" in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("flag", ["overwrite", "raw_dir=x", "processes=1"])
def test_inspection_takes_no_flag_that_makes_data(run_command, flags, flag):
    code, _, err = run_command("datagen", *flags, "--inspect", f"--{flag}")
    assert code == 2
    assert f"leave --{flag.partition('=')[0]} out." in err


def test_inspection_shows_what_is_there(run_command, flags):
    run_command("datagen", *flags)
    code, out, _ = run_command("datagen", *flags, "--inspect")
    assert code == 0
    lines = out.splitlines()
    assert ["pairs", "40", "4", "4"] in map(str.split, lines)
    assert "tiny_digits.vocab.290.model, 290 pieces" in out
    drawn = lines[
        lines.index("Pairs of train drawn at random (--seed=1)") + 1 :
    ]
    sources, targets = drawn[1:30:3], drawn[2:30:3]
    names = "zero one two three four five six seven eight nine".split()
    for source, target in zip(sources, targets, strict=True):
        assert [names[int(digit)] for digit in source.split()] == target.split()
    assert len(set(sources)) == 10
    again = run_command("datagen", *flags, "--inspect", "--seed=2")[1]
    assert again.splitlines()[:3] == lines[:3]
    assert again != out


def test_inspection_of_own_text_in_either_direction(
    run_command, text_flags, tmp_path
):
    two = "--separate_vocabularies", "--vocab_size=280", "--name=mine"
    assert run_command("datagen", *text_flags, *two)[0] == 0
    reports = []
    for name in ("text", "text_rev"):
        code, out, _ = run_command(
            "datagen",
            f"--problem={name}",
            text_flags[-1],
            "--inspect",
            "--json",
        )
        assert (code, out.count("\n")) == (0, 1)
        reports.append(json.loads(out))
    one, other = reports
    assert (one["problem"], other["problem"]) == ("mine", "mine_rev")
    file = "mine.vocab.280.source.model"
    train, back = one["splits"]["train"], other["splits"]["train"]
    assert (train["source"]["file"], train["source"]["pieces"]) == (file, 280)
    assert train["examples"] == back["examples"] == 54
    assert train["source"] == back["target"]
    assert train["drawn"][0]["source"] == back["drawn"][0]["target"]
    assert train["target"]["byte_share"] == 0
    assert 1 < train["target"]["tokens_per_word"] < 6


def test_inspection_names_an_edited_shard(run_command, flags, tmp_path):
    run_command("datagen", *flags)
    shard = tmp_path / "data" / "tiny_digits-dev-00000-of-00001"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, out, err = run_command("datagen", *flags, "--inspect")
    assert (code, out) == (1, "")
    assert f"{shard} is damaged" in err


@pytest.fixture
def shards(tmp_path):
    """The folder of packed shards of tensor2tensor, and flags to adopt it."""
    folder = t2t_shards.write_shards(
        tmp_path, t2t_shards.ROWS, name="translate_packed"
    )
    vocabulary = folder / t2t_shards.VOCABULARY
    flags = ["--problem=translate_packed", f"--vocabulary={vocabulary}"]
    return folder, [f"--adopt={folder}", *flags]


@pytest.mark.slow  # the rooms test each step
def test_adopted_shards_are_own_text_to_train_on(run_command, shards):
    folder, flags = shards
    train = ["--problem=text", "--name=translate_packed"]
    train += [f"--data_dir={folder}", f"--output_dir={folder / 'run'}"]
    code, _, err = run_command("trainer", *train, "--hparams=transformer_toy")
    assert (code, err.count("\n")) == (2, 1)
    assert f"t2t-lite-datagen --adopt={folder} --problem=translate_pac" in err
    code, out, err = run_command("datagen", *flags)
    assert (code, out.splitlines()) == (
        0,
        [
            "train: 5 pairs in 3 packed rows",
            "dev: 2 pairs in 1 packed rows",
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
    assert "translate_packed was adopted, so its text is not here" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--overwrite"], "--overwrite"),
        (["--source=a.txt"], "--source"),
        (["--data_dir=elsewhere"], "elsewhere"),
        (["--adopt=nowhere"], "nowhere"),
        (["--vocabulary="], "--vocabulary"),
        (["--problem=b@d"], "name must be letters, digits, _ and -"),
    ],
)
def test_flags_that_conflict_with_adoption_are_named(
    run_command, shards, more, message
):
    folder, flags = shards
    before = sorted(folder.iterdir())
    code, out, err = run_command("datagen", *flags, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(folder.iterdir()) == before
