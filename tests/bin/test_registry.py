"""The registry command lists and shows problems, hparams sets and runs."""

import json

import pytest

from t2t_lite import registry


@pytest.fixture
def show(run_command):
    """Return a function that runs the command and parses its JSON."""

    def show(*flags):
        code, out, err = run_command("registry", *flags, "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        return json.loads(out)

    return show


def test_list_has_a_line_for_every_problem_and_hparams_set(run_command, show):
    _, out, _ = run_command("registry")
    names = registry.problem_names() + registry.hparams_names()
    for name in names:
        (line,) = [x for x in out.splitlines() if x.split()[:1] == [name]]
        assert len(line.split()) > 3
    listing = show()
    assert [*listing["problems"], *listing["hparams"]] == names


def test_a_set_shows_every_hparam(show):
    expected = registry.hparams("transformer_big").to_dict()
    assert show("transformer_big") == {"name": "transformer_big"} | expected


def test_vocab_size_counts_the_parameters_of_the_real_model(run_command, show):
    flags = [
        "transformer_toy",
        "--vocab_size=100",
        "--hparams_override=hidden_size=8,filter_size=16,num_hidden_layers=1",
    ]
    report = show(*flags)
    attention = 4 * 8 * 8
    feed_forward = 8 * 16 + 16 + 16 * 8 + 8
    norm = 2 * 8
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    assert report["parameters"] == 100 * 8 + encoder + decoder
    assert report["parameters_by_part"]["decoder feed-forward"] == feed_forward
    _, out, _ = run_command("registry", *flags)
    (total,) = [x for x in out.splitlines() if x.startswith("  total ")]
    assert total.split()[-1] == f"{report['parameters']:,}"


def test_flops_are_given_per_update_and_in_total(show):
    flops = show("transformer_big", "--vocab_size=37000")["flops"]
    per_token = [flops[f"training_per_{s}_token"] for s in ("source", "target")]
    assert flops["training_per_update"] == 25000 * sum(per_token)
    assert flops["training"] == 300000 * flops["training_per_update"]


def test_table_3_compares_parameters_with_the_paper(run_command, show):
    _, out, _ = run_command("registry", "--table3")
    sets = show("--table3")["sets"]
    assert [row.split()[:3] for row in out.splitlines()[2:]] == [
        [name, f"{count:,}", str(paper)]
        for name, count, paper, _ in (row.values() for row in sets)
    ]
    papers = {row["paper_millions"] for row in sets}
    assert papers == {65, 58, 60, 36, 50, 80, 28, 168, 53, 90, 213}


def test_a_problem_shows_its_options(run_command, show):
    rows = {row["option"]: row for row in show("text")["options"]}
    assert rows["source"]["default"] == "none"
    assert rows["vocab_size"]["default"] == "8000"
    _, out, _ = run_command("registry", "text")
    assert rows["vocab_size"]["meaning"] in out
    assert "options" not in show("wmt_ende")
    assert show("wsj_parsing")["vocab_size"] == 16_000


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["transfomer_bse"], "transformer_base"),
        (
            ["transformer_toy", "--hparams_override=hidden_sise=8"],
            "hidden_size",
        ),
        (["transformer_base", "--length=9"], "--vocab_size"),
        (["spellout_ende", "--vocab_size=9"], "'spellout_ende'"),
    ],
)
def test_wrong_usage_is_one_line_with_a_hint(run_command, flags, hint):
    code, out, err = run_command("registry", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err


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


def test_runs_are_listed_with_step_score_and_date(run_command, show, tmp_path):
    _make_run(
        tmp_path / "runs" / "a",
        {"step": 1, "dev_loss": 5.5, "dev_perplexity": 244.7, "dev_bleu": 3.0},
        {"step": 2, "dev_loss": 5.0, "dev_perplexity": 148.4, "dev_bleu": 26.3},
        {"step": 3, "loss": 4.0},
    )
    _make_run(tmp_path / "runs" / "b", {"step": 1, "dev_loss": 5.5})
    _make_run(tmp_path / "runs" / "c", config={"format": 1})
    _make_run(tmp_path / "runs" / "a" / "huggingface" / "1", config={"x": 1})
    runs = show(f"--runs={tmp_path}")["runs"]
    assert [(run["step"], run["score"]) for run in runs] == [
        (3, "bleu 26.30"),
        (1, "loss 5.50"),
        (0, ""),
    ]
    assert runs[0]["folder"] == str(tmp_path / "runs" / "a")
    assert runs[0]["problem"] == "wmt_ende"
    assert "config.json" in runs[2]["problem"]
    _, out, _ = run_command("registry", f"--runs={tmp_path}")
    assert out.splitlines()[0].split() == list(runs[0])
    assert out.splitlines()[1].split()[:2] == [f"{tmp_path}/runs/a", "wmt_ende"]


def test_an_empty_and_a_missing_folder_are_reported(run_command, tmp_path):
    code, out, _ = run_command("registry", f"--runs={tmp_path}")
    assert (code, str(tmp_path) in out) == (0, True)
    code, _, err = run_command("registry", f"--runs={tmp_path}/no")
    assert (code, f"{tmp_path}/no" in err) == (1, True)


def test_both_directions_have_the_same_vocabulary_and_metric(show):
    forward, backward = show("spellout_ende"), show("spellout_ende_rev")
    for key in ("vocabulary", "fingerprint", "metric"):
        assert forward[key] == backward[key]
    names = [forward["name"], backward["name"]]
    assert names == ["spellout_ende", "spellout_ende_rev"]
