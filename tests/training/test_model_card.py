"""Model card: facts, scores, the command line and valid Markdown."""

import shlex
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import t2t_lite
from t2t_lite import files, plugins, registry
from t2t_lite.training import checkpoints
from t2t_lite.training.config import add_evaluation, read_config
from t2t_lite.training.model_card import (
    command_of,
    make_card,
    scores_of,
    write_card,
)
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run


@pytest.fixture
def run(run_copy):
    """Return a copy of a finished run."""
    return Run.open(run_copy)


def metadata_of(card):
    return yaml.safe_load(card.split("---\n")[1])


REPORT = {
    "metric": "bleu",
    "score": 12.345,
    "signature": "nrefs:1|case:mixed",
    "split": "test",
    "beam_size": 4,
    "alpha": 0.6,
    "sentences": 4,
}


def test_trainer_writes_a_card_with_all_facts(tiny_run):
    card = (tiny_run / "card.md").read_text()
    config = read_config(tiny_run)
    assert "Training ended after 4 updates." in card
    provenance = config["conditions"]
    for part in (
        config["data"]["fingerprint"],
        t2t_lite.__version__,
        provenance["hardware"]["processor"],
        shlex.join(provenance["command"]),
        '"pairs": 40',
        '"batch_tokens": 512',
        "average-2-step-00000004",
    ):
        assert part in card


def test_metadata_has_scores_in_the_format_of_the_hub(run):
    add_evaluation(run.output_dir, 4, "gone", REPORT)
    metadata = metadata_of(make_card(run))
    assert metadata["metrics"] == ["bleu"]
    (index,) = metadata["model-index"]
    assert index["results"][-1] == {
        "task": {"type": "text2text-generation"},
        "dataset": {
            "name": "tiny_digits",
            "type": "tiny_digits",
            "split": "test",
        },
        "metrics": [
            {
                "type": "bleu",
                "value": 12.35,
                "name": "bleu, weights step 4, beam_size 4, alpha 0.6, "
                "sentences 4, signature nrefs:1|case:mixed",
            }
        ],
    }


def test_card_has_the_score_of_the_best_moving_average(run):
    with open(run.output_dir / "metrics.jsonl", "a") as file:
        for step, score in ((2, 1.5), (4, 2.5)):
            file.write(
                f'{{"step": {step}, "dev_loss": 2.0, "dev_bleu": {score}, '
                '"weights": "ema"}\n'
            )
    scores = [s for s in scores_of(run) if "ema" in s["weights"]]
    assert [(s["weights"], s["score"]) for s in scores] == [
        ("ema at step 4", 2.5)
    ]


def test_a_report_with_wrong_types_is_left_out(run):
    expected = scores_of(run)
    for wrong in ({"score": "high"}, {"metric": []}, {"score": None}):
        add_evaluation(run.output_dir, 4, "gone", REPORT | wrong)
    assert scores_of(run) == expected


@pytest.mark.parametrize(
    "name",
    ["no", "---", "a`|b", "<b>", "x: [", "#\n# y", "\u2028", "\ud83d"],
)
def test_card_is_valid_with_unusual_names(run, name):
    config = read_config(run.output_dir)
    provenance = config["conditions"]
    provenance["data"]["splits"]["train"]["dropped"] = {name: 3}
    provenance["command"] = ["t2t-lite-trainer", f"--problem={name}"]
    files.write_json(run.output_dir / "config.json", config)
    report = {**REPORT, "split": name, "signature": name}
    add_evaluation(run.output_dir, 4, "gone", report)
    card = make_card(run)
    card.encode("utf-8")
    (index,) = metadata_of(card)["model-index"]
    assert index["results"][-1]["dataset"]["split"] == name
    markdown = pytest.importorskip("markdown_it").MarkdownIt().enable("table")
    tokens = markdown.parse(card.partition("\n---\n")[2])
    titles = [t for t in tokens if t.type == "heading_open"]
    assert [t.tag for t in titles] == ["h1", *["h2"] * 5]
    inner = [kind for t in tokens for kind in t.children or ()]
    assert not [t for t in [*tokens, *inner] if t.type.startswith("html")]


def test_card_of_a_stopped_run_states_its_progress(run):
    conditions = {**run.config["conditions"], "train_steps": 10}
    run.update_config(conditions=conditions, training_cost=None)
    assert "has not ended: 4 of 10 updates are saved" in make_card(run)


def test_failed_write_of_the_card_is_a_warning(run, capsys):
    (run.output_dir / "card.md").unlink()
    (run.output_dir / "card.md").mkdir()
    write_card(run)
    assert "Warning" in capsys.readouterr().err


@pytest.mark.slow
def test_command_of_the_card_trains_the_same_model(tiny_run, tmp_path):
    from t2t_lite.bin import trainer

    program, *words = read_config(tiny_run)["conditions"]["command"]
    assert (program, "--save_steps=2" in words) == ("t2t-lite-trainer", True)
    words.remove(f"--output_dir={tiny_run}")
    assert trainer.main([*words, f"--output_dir={tmp_path}"]) == 0
    first, second = Run.open(tiny_run), Run.open(tmp_path)
    tensors = [
        checkpoints.model_tensors(each.load_model()[0])
        for each in (first, second)
    ]
    for name, value in tensors[0].items():
        np.testing.assert_allclose(tensors[1][name], value, atol=1e-6)


def test_card_of_an_export_contains_no_local_path(run, run_command, tmp_path):
    conditions = run.config["conditions"]
    conditions["command"].append("--pairs=/x/A.tsv:0.7:web,../B.tsv:0.3")
    kept = ["--test_pairs=tfds:wmt/de-en", "--freeze=encoder_layer_0/*"]
    conditions["command"] += kept
    run.update_config(conditions=conditions)
    export = tmp_path / "export"
    flags = [f"--output_dir={run.output_dir}", f"--export_dir={export}"]
    code, _, err = run_command("exporter", *flags, "--warmup=0")
    assert code == 0, err
    text = (export / "1" / "assets.extra" / "card.md").read_text()
    assert "--pairs=A.tsv:0.7:web,B.tsv:0.3" in text
    assert all(word in text for word in kept)
    assert "--data_dir=data" in text and "--output_dir=run" in text
    assert "average-2-step" not in text  # only the exported weights are listed
    assert str(tmp_path.parent) not in text
    assert str(run.config["data"]["dir"]) not in text


@pytest.fixture
def a_run():
    """Return a function that makes a stand-in for a run."""
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


def test_command_lists_changes_of_the_set_and_of_defaults(a_run):
    hparams = registry.hparams("transformer_toy").override(
        "batch_tokens=999,packing=true,key_depth=4"
    )
    options = TrainingOptions(save_steps=5, deterministic=True)
    made = a_run("spellout_ende_rev", hparams, "transformer_toy")
    made.config["seed"] = 7  # a run that resumes keeps its seed
    assert command_of(made, options) == [
        "t2t-lite-trainer",
        "--problem=spellout_ende_rev",
        "--hparams=transformer_toy",
        "--hparams_override=key_depth=4,batch_tokens=999,packing=true",
        "--deterministic",
        "--save_steps=5",
        "--seed=7",
        "--data_dir=/data",
        "--output_dir=/run",
    ]


def test_command_has_flags_for_options_of_text_problems(a_run):
    made = a_run(
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


def test_command_names_the_set_closest_to_unnamed_hparams(a_run):
    hparams = registry.hparams("transformer_big").replace(warmup_steps=77)
    words = command_of(a_run("spellout_ende", hparams, None), TrainingOptions())
    assert words[2:4] == [
        "--hparams=transformer_big",
        "--hparams_override=warmup_steps=77",
    ]
