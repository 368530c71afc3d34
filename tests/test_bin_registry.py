import json

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
        "transformer_tiny",
        "--vocab_size=100",
        "--hparams_override=hidden_size=8,filter_size=16,num_hidden_layers=1",
        "--json",
    )
    attention = 4 * 8 * 8
    feed_forward = 8 * 16 + 16 + 16 * 8 + 8
    norm = 2 * 8
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    assert json.loads(out)["parameters"] == 100 * 8 + encoder + decoder


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


def test_unknown_name_is_answered_with_the_nearest(run_command):
    code, out, err = run_command("registry", "transfomer_bse")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'transfomer_bse'" in err
    assert "Did you mean" in err and "transformer_base" in err


def test_unknown_override_is_answered_with_the_nearest(run_command):
    code, _, err = run_command(
        "registry", "transformer_tiny", "--hparams_override=hidden_sise=8"
    )
    assert code == 2
    assert "Did you mean hidden_size" in err


def test_vocab_size_of_a_problem_is_wrong_usage(run_command):
    code, _, err = run_command("registry", "spellout_ende", "--vocab_size=9")
    assert code == 2 and "is a problem" in err
