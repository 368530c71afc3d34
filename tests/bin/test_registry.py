import json

import numpy as np
import pytest

from t2t_lite import registry


def test_lists_every_problem_and_set_with_a_line(run_command):
    code, out, err = run_command("registry")
    assert (code, err) == (0, "")
    for name in registry.problem_names() + registry.hparams_names():
        (line,) = [x for x in out.splitlines() if x.split()[:1] == [name]]
        assert len(line.split()) > 3


def test_json_listing_is_one_object_on_one_line(run_command):
    _, out, _ = run_command("registry", "--json")
    listing = json.loads(out)
    assert list(listing["problems"]) == registry.problem_names()
    assert list(listing["hparams"]) == registry.hparams_names()
    assert out.count("\n") == 1


def test_a_set_is_shown_with_every_hparam(run_command):
    _, out, _ = run_command("registry", "transformer_big", "--json")
    report = json.loads(out)
    expected = registry.hparams("transformer_big").to_dict()
    assert report == {"name": "transformer_big"} | expected


def test_vocab_size_counts_the_parameters_of_the_real_model(run_command):
    _, out, _ = run_command(
        "registry",
        "transformer_toy",
        "--vocab_size=100",
        "--hparams_override=hidden_size=8,filter_size=16,num_hidden_layers=1",
        "--json",
    )
    attention = 4 * 8 * 8
    feed_forward = 8 * 16 + 16 + 16 * 8 + 8
    norm = 2 * 8
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    report = json.loads(out)
    assert report["parameters"] == 100 * 8 + encoder + decoder
    assert report["parameters_by_part"]["decoder feed-forward"] == feed_forward
    assert report["memory_bytes"]["weights"] == 4 * report["parameters"]


@pytest.mark.parametrize(
    "freeze", ["encoder", "embeddings", "decoder,embeddings"]
)
@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_is_left_to_train_is_what_the_patterns_leave(
    run_command, freeze, shared, norm
):
    from t2t_lite.model.transformer import Transformer
    from t2t_lite.training.optimizer.freezing import frozen_paths

    changes = f"shared_embedding={shared},norm_placement={norm}"
    _, out, _ = run_command(
        "registry",
        "transformer_toy",
        "--vocab_size=100",
        f"--hparams_override={changes}",
        f"--freeze={freeze}",
        "--json",
    )
    hparams = registry.hparams("transformer_toy").override(changes)
    weights = Transformer.from_hparams(hparams, 100, 100).build_weights()
    sizes = {v.path: int(np.prod(v.shape)) for v in weights.trainable_variables}
    frozen = frozen_paths(sizes, freeze.split(","))
    left = sum(n for path, n in sizes.items() if path not in frozen)
    assert json.loads(out)["trained_parameters"] == left


def test_what_the_registry_cannot_count_is_told_of(run_command):
    flags = ("registry", "transformer_toy", "--vocab_size=100")
    code, _, err = run_command(*flags, "--freeze=encoder_layer_0/*")
    assert code == 2
    assert "--dry_run counts any pattern" in err
    code, out, _ = run_command(*flags, "--freeze=encoder")
    assert code == 0
    assert "  trained " in out
    code, _, err = run_command(
        "registry", "transformer_toy", "--freeze=encoder"
    )
    assert code == 2
    assert "--freeze goes with --vocab_size" in err


def test_flops_are_of_an_update_and_of_all(run_command):
    _, out, _ = run_command(
        "registry", "transformer_big", "--vocab_size=37000", "--json"
    )
    flops = json.loads(out)["flops"]
    each = [flops[f"training_per_{s}_token"] for s in ("source", "target")]
    assert flops["training_per_update"] == 25000 * sum(each)
    assert flops["training"] == 300000 * flops["training_per_update"]


def test_numbers_are_printed_with_their_sum(run_command):
    _, out, _ = run_command("registry", "transformer_base", "--vocab_size=9")
    (total,) = [x for x in out.splitlines() if x.startswith("  in all ")][:1]
    _, report, _ = run_command(
        "registry", "transformer_base", "--vocab_size=9", "--json"
    )
    assert total.split()[-1] == f"{json.loads(report)['parameters']:,}"


def test_table_3_has_every_row_beside_the_papers(run_command):
    code, out, _ = run_command("registry", "--table3")
    assert code == 0
    _, report, _ = run_command("registry", "--table3", "--json")
    sets = json.loads(report)["sets"]
    rows = [
        line.split()[:3]
        for line in out.splitlines()
        if line.startswith("transformer_")
    ]
    assert rows == [
        [
            row["name"],
            f"{row['parameters'] / 1e6:.1f}",
            str(row["paper_millions"]),
        ]
        for row in sets
    ]
    papers = {row["paper_millions"] for row in sets}
    assert papers == {65, 58, 60, 36, 50, 80, 28, 168, 53, 90, 213}


def test_a_problem_is_shown_in_both_directions(run_command):
    _, out, _ = run_command("registry", "spellout_ende", "--json")
    _, reverse, _ = run_command("registry", "spellout_ende_rev", "--json")
    there, back = json.loads(out), json.loads(reverse)
    assert there["vocabulary"] == back["vocabulary"]
    assert there["fingerprint"] == back["fingerprint"]
    assert (there["name"], back["name"]) == (
        "spellout_ende",
        "spellout_ende_rev",
    )


@pytest.mark.parametrize(
    ("name", "option", "meaning", "default"),
    [
        ("text", "source", "source text, one", "none"),
        ("text", "vocab_size", "pieces of a vocabulary", "8000"),
        ("wsj_parsing", "leaves", "what a word is in the target", "XX"),
    ],
)
def test_the_options_of_a_problem_are_a_table(
    run_command, name, option, meaning, default
):
    _, report, _ = run_command("registry", name, "--json")
    rows = {row["option"]: row for row in json.loads(report)["options"]}
    assert rows[option]["meaning"].startswith(meaning)
    assert rows[option]["default"] == default
    _, out, _ = run_command("registry", name)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "option meaning default example" in lines
    assert any(line.startswith(f"{option} {meaning[:10]}") for line in lines)
    _, out, _ = run_command("registry", "wmt_ende")
    assert "option" not in out


def test_unknown_name_is_answered_with_the_nearest(run_command):
    code, out, err = run_command("registry", "transfomer_bse")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'transfomer_bse'" in err
    assert "Did you mean" in err and "transformer_base" in err


def test_unknown_override_is_answered_with_the_nearest(run_command):
    code, _, err = run_command(
        "registry", "transformer_toy", "--hparams_override=hidden_sise=8"
    )
    assert code == 2
    assert "Did you mean hidden_size" in err


def test_length_without_a_vocabulary_is_wrong_usage(run_command):
    code, _, err = run_command("registry", "transformer_base", "--length=9")
    assert code == 2
    assert "--length goes with --vocab_size" in err


def test_vocab_size_of_a_problem_is_wrong_usage(run_command):
    code, _, err = run_command("registry", "spellout_ende", "--vocab_size=9")
    assert code == 2 and "is a problem" in err


def _make_run(folder, *records, config=None):
    folder.mkdir(parents=True)
    config = config or {
        "format": 1,
        "problem": "wmt_ende",
        "problem_fingerprint": "0" * 64,
        "hparams_set": "transformer_base",
        "hparams": {},
        "data": {"dir": "/data", "fingerprint": "0" * 64},
        "seed": 1,
        "vocabulary": {"v.model": "0" * 64},
        "usr_dir": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines + '{"step": 9, "cut o')


def test_runs_are_listed_with_step_score_and_date(run_command, tmp_path):
    _make_run(
        tmp_path / "runs" / "a",
        {"step": 1, "dev_loss": 5.5, "dev_perplexity": 244.7, "dev_bleu": 3.0},
        {"step": 2, "dev_loss": 5.0, "dev_perplexity": 148.4, "dev_bleu": 26.3},
        {"step": 3, "loss": 4.0},
    )
    _make_run(tmp_path / "runs" / "b", {"step": 1, "dev_loss": 5.5})
    _make_run(tmp_path / "runs" / "c", config={"format": 1})
    code, out, _ = run_command("registry", f"--runs={tmp_path}", "--json")
    runs = json.loads(out)["runs"]
    assert code == 0
    assert [(run["step"], run["score"]) for run in runs] == [
        (3, "bleu 26.30"),
        (1, "loss 5.50"),
        (0, ""),
    ]
    assert runs[0]["folder"] == str(tmp_path / "runs" / "a")
    assert runs[0]["problem"] == "wmt_ende"
    assert "config.json is damaged" in runs[2]["problem"]
    _, out, _ = run_command("registry", f"--runs={tmp_path}")
    assert out.splitlines()[0].split() == list(runs[0])
    assert out.splitlines()[1].startswith(f"{tmp_path}/runs/a  wmt_ende  ")


def test_no_runs_and_no_folder_are_said(run_command, tmp_path):
    code, out, _ = run_command("registry", f"--runs={tmp_path}")
    assert (code, out) == (0, f"There is no run in {tmp_path}.\n")
    code, _, err = run_command("registry", f"--runs={tmp_path}/no")
    assert (code, "there is no folder" in err) == (1, True)
