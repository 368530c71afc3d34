import subprocess
from types import SimpleNamespace

import pytest

import t2t_lite
from t2t_lite import plugins, registry
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.provenance import code_revision, command_of


@pytest.fixture
def run():
    """What a command is made from, of any problem, set and hparams."""
    plugins.load_plugins()

    def make(problem, hparams, set_name, **options):
        task = registry.problem(problem)
        return SimpleNamespace(
            problem=task.with_options(options) if options else task,
            hparams=hparams,
            config={"problem": problem, "hparams_set": set_name},
            output_dir="/run",
            data=SimpleNamespace(folder="/data"),
        )

    return make


def test_a_command_names_what_differs_from_the_set_and_from_defaults(run):
    hparams = registry.hparams("transformer_toy").override(
        "batch_tokens=999,packing=true,key_depth=4"
    )
    options = TrainingOptions(save_steps=5, deterministic=True, seed=7)
    made = run("spellout_ende_rev", hparams, "transformer_toy")
    assert command_of(made, options) == [
        "t2t-lite-trainer",
        "--problem=spellout_ende_rev",
        "--hparams=transformer_toy",
        "--hparams_override=key_depth=4,batch_tokens=999,packing=true",
        "--deterministic",
        "--seed=7",
        "--save_steps=5",
        "--data_dir=/data",
        "--output_dir=/run",
    ]


def test_options_of_own_text_are_flags(run):
    made = run(
        "text_rev",
        registry.hparams("transformer_toy").replace(shared_embedding=False),
        "transformer_toy",
        source="/corpus/a.en",
        target="/corpus/a.de",
        shared_vocabulary=False,
        filters={"length": 80, "identical": True},
    )
    words = command_of(made, TrainingOptions())
    assert {
        "--source=/corpus/a.en",
        "--separate_vocabularies",
        "--filters=identical,length=80",
    } <= set(words)


def test_corpora_are_told_as_their_flag_takes_them(run):
    pairs = "/corpus/a.tsv:0.75:web,/corpus/b.tsv:0.25"
    made = run(
        "text",
        registry.hparams("transformer_toy"),
        "transformer_toy",
        pairs=pairs,
    )
    words = command_of(made, TrainingOptions())
    assert f"--pairs={pairs}" in words


def test_hparams_without_a_name_are_told_by_the_set_most_like_them(run):
    hparams = registry.hparams("transformer_big").replace(warmup_steps=77)
    words = command_of(run("spellout_ende", hparams, None), TrainingOptions())
    assert words[2:4] == [
        "--hparams=transformer_big",
        "--hparams_override=warmup_steps=77",
    ]


def test_the_code_is_told_by_its_commit_or_its_version(monkeypatch):
    told = code_revision()
    assert told.startswith(f"t2t-lite {t2t_lite.__version__}")

    def no_git(*args, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert code_revision() == f"t2t-lite {t2t_lite.__version__}"
