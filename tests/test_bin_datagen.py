import json

import pytest


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
    assert report["splits"]["train"] == {"examples": 40, "dropped": {}}
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
        "train: 40 examples",
        "dev: 4 examples",
        "test: 4 examples",
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
        "from t2t_lite.raw_files import read_parallel\n"
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


def test_unknown_problem_is_answered_with_the_nearest(run_command):
    code, _, err = run_command("datagen", "--problem=multi30k_edne")
    assert code == 2
    assert "Did you mean multi30k_ende" in err
