"""The card says what was trained, how well, and how again; it never breaks."""

import json
import shlex
import shutil

import numpy as np
import pytest

from t2t_lite.errors import Interrupted
from t2t_lite.reports.card import (
    as_markdown,
    card_kept,
    run_card,
    without_folders,
)
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.config import add_evaluation, read_config
from t2t_lite.training.run import Run


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of a run that has ended."""
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    (copy / "evaluations.jsonl").unlink(missing_ok=True)
    return Run.open(copy)


def _metadata(markdown):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(markdown.split("---\n")[1])


def _report(**more):
    return {
        "metric": "bleu",
        "score": 12.345,
        "signature": "nrefs:1|case:mixed",
        "split": "test",
        "beam_size": 4,
        "alpha": 0.6,
        "sentences": 4,
        **more,
    }


def test_the_trainer_leaves_a_card_that_says_all_of_it(tiny_run):
    card = json.loads((tiny_run / "card.json").read_text())
    config = read_config(tiny_run)
    assert card["problem"] == "tiny_digits"
    assert (card["step"], card["train_steps"], card["ended"]) == (4, 4, True)
    assert card["data"]["fingerprint"] == config["data"]["fingerprint"]
    assert card["data"]["vocabulary"] == config["vocabulary"]
    train = card["data"]["splits"]["train"]
    assert (train["pairs"], train["dropped"]) == (40, {})
    assert card["hparams"] == config["hparams"]
    assert (card["seed"], card["versions"]) == (1, config["versions"])
    assert card["code"].startswith("t2t-lite ")
    assert card["hardware"]["cores"] >= 1
    assert card["hardware"]["memory_bytes"] > 2**28
    assert card["training"] == config["training_cost"]
    assert card["best"]["step"] == 4
    weights = {score["weights"] for score in card["scores"]}
    # Other tests may have evaluated this run, too.
    assert weights >= {"step 4", "average-2-step-00000004"}


def test_its_text_has_what_its_data_has(tiny_run):
    text = (tiny_run / "card.md").read_text()
    card = json.loads((tiny_run / "card.json").read_text())
    assert as_markdown(card) == text
    assert "Training ended after 4 updates." in text
    for part in (
        card["data"]["fingerprint"],
        card["code"],
        card["hardware"]["processor"],
        shlex.join(card["command"]),
        "| `train` | 40 | ",
        "| `batch tokens` | `512` |",
    ):
        assert part in text


def test_the_hub_reads_its_scores(run):
    add_evaluation(run.output_dir, 4, "gone", _report())
    card = run_card(run)
    metadata = _metadata(as_markdown({**card, "source_language": "en"}))
    assert (metadata["language"], metadata["metrics"]) == (["en"], ["bleu"])
    assert metadata["pipeline_tag"] == "translation"
    (index,) = metadata["model-index"]
    result = index["results"][-1]
    assert result == {
        "task": {"type": "translation"},
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


def test_the_evaluator_puts_its_report_on_the_card(run_command, run):
    flags = [f"--output_dir={run.output_dir}", "--split=test", "--beam_size=1"]
    _, out, _ = run_command("evaluator", *flags, "--json")
    report = json.loads(out)
    card = json.loads((run.output_dir / "card.json").read_text())
    name = "the average of 2 up to step 4"
    assert card["scores"][-1] == {"weights": name, **report}
    assert report["signature"] in (run.output_dir / "card.md").read_text()


def test_of_a_moving_average_the_score_of_the_best_step_is_there(run):
    with open(run.output_dir / "metrics.jsonl", "a") as file:
        for step, score in ((2, 1.5), (4, 2.5)):
            scores = {"step": step, "dev_loss": 2.0, "dev_bleu": score}
            file.write(json.dumps({**scores, "weights": "ema"}) + "\n")
    told = [s for s in run_card(run)["scores"] if "ema" in s["weights"]]
    assert [(s["weights"], s["score"]) for s in told] == [
        ("ema at step 4", 2.5)
    ]


def test_a_report_that_somebody_spoiled_is_left_out(run):
    known = run_card(run)["scores"]
    for spoiled in ({"score": "high"}, {"metric": []}, {"score": None}):
        add_evaluation(run.output_dir, 4, "gone", _report(**spoiled))
    assert run_card(run)["scores"] == known


@pytest.mark.parametrize(
    "name",
    ["no", "---", "a`|b", "<b>", "x: [", "#\n# y", "\u2028", "🙂", "\ud83d"],
)
def test_no_name_breaks_the_card(run, name):
    card = run_card(run)
    card["scores"] = [_report(split=name, signature=name)]
    card["data"]["sources"] = [{"file": name, "bytes": 1, "sha256": "0"}]
    card["data"]["splits"]["train"]["dropped"] = {name: 3}
    card["command"] = ["t2t-lite-trainer", f"--problem={name}"]
    card |= {"problem": name, "name": name, "source_language": name}
    card["hparams"]["schedule"] = card["hparams_set"] = name
    text = as_markdown(card)
    text.encode("utf-8")
    metadata = _metadata(text)
    if name != "\ud83d":
        (index,) = metadata["model-index"]
        assert index["name"] == name
    markdown = pytest.importorskip("markdown_it").MarkdownIt().enable("table")
    tokens = markdown.parse(text.partition("\n---\n")[2])
    titles = [t for t in tokens if t.type == "heading_open"]
    assert [t.tag for t in titles] == ["h1", *["h2"] * 6]
    inner = [kind for t in tokens for kind in t.children or ()]
    assert not [t for t in [*tokens, *inner] if t.type.startswith("html")]


def test_the_card_of_a_stopped_run_says_how_far_it_came(run):
    conditions = {**run.config["conditions"], "train_steps": 10}
    run.record(conditions=conditions, training_cost=None)
    with pytest.raises(Interrupted), card_kept(run):
        assert "4 of 10 updates" in (run.output_dir / "card.md").read_text()
        (run.output_dir / "card.md").unlink()
        raise Interrupted("Stopped.")
    card = json.loads((run.output_dir / "card.json").read_text())
    assert (card["step"], card["train_steps"], card["ended"]) == (4, 10, False)
    assert card["training"]["source_tokens"] > 0
    text = (run.output_dir / "card.md").read_text()
    assert "has not ended: 4 of 10 updates were saved" in text


def test_a_card_that_cannot_be_written_stops_nothing(run, capsys):
    (run.output_dir / "card.md").unlink()
    (run.output_dir / "card.md").mkdir()
    with card_kept(run):
        pass
    assert capsys.readouterr().err.count("Warning: the card of the run") == 2


def test_a_run_that_is_older_than_cards_has_one_all_the_same(run):
    config = read_config(run.output_dir)
    del config["conditions"], config["training_cost"]["step"]
    (run.output_dir / "config.json").write_text(json.dumps(config))
    card = run_card(run)
    assert (card["ended"], card["command"]) == (True, None)
    assert "older than the record" in as_markdown(card)


@pytest.mark.slow
def test_its_command_trains_the_same_model_again(tiny_run, tmp_path):
    from t2t_lite.bin import trainer

    card = json.loads((tiny_run / "card.json").read_text())
    program, *words = card["command"]
    assert (program, "--save_steps=2" in words) == ("t2t-lite-trainer", True)
    words.remove(f"--output_dir={tiny_run}")
    assert trainer.main([*words, f"--output_dir={tmp_path}"]) == 0
    first, second = Run.open(tiny_run), Run.open(tmp_path)
    tensors = [
        checkpoint.model_tensors(each.load_model()[0])
        for each in (first, second)
    ]
    for name, value in tensors[0].items():
        np.testing.assert_allclose(tensors[1][name], value, atol=1e-6)


@pytest.mark.parametrize(
    "form,place",
    [("saved_model", "1/assets.extra/card.md"), ("ctranslate2", "1/card.md")],
)
def test_the_card_of_an_export_names_no_folder_of_this_machine(
    run, run_command, tmp_path, form, place
):
    flags = [f"--output_dir={run.output_dir}", f"--format={form}"]
    if form == "ctranslate2":
        pytest.importorskip("ctranslate2")
    else:
        flags += ["--noverify", "--warmup=0"]
    code, _, err = run_command(
        "exporter", *flags, f"--export_dir={tmp_path / 'export'}"
    )
    assert code == 0, err
    text = (tmp_path / "export" / place).read_text()
    assert "--data_dir=data" in text and "--output_dir=run" in text
    assert "average-2-step" not in text  # the exported weights speak alone
    assert str(tmp_path.parent) not in text
    assert str(run.config["data"]["dir"]) not in text


@pytest.mark.parametrize(
    "word,left",
    [
        ("--data_dir=/home/me/da ta", "--data_dir=da ta"),
        ("--source=~/a/b.en", "--source=b.en"),
        ("--pairs=/x/A.tsv:0.7,../B.tsv:0.3", "--pairs=A.tsv:0.7,B.tsv:0.3"),
        ("--usr_dir=C:\\me\\usr", "--usr_dir=C:usr"),
        ("--seed=1", "--seed=1"),
    ],
)
def test_of_a_path_its_name_is_left(word, left):
    assert without_folders(["t2t-lite-trainer", word])[1:] == [left]
