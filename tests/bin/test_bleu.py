import json
import random

import pytest

WORDS = (
    "ein Mann in einem blauen Hemd steht auf der Straße und hält zwei Kinder "
    "im Park mit ihrem großen Hund ÄRGER naïve 1,000 3.14 2016 U.S.A. 1990s … "
    'Schwarz-Weiß-Foto "Guten Tag" »wirklich« (vielleicht) 50% 20€ $5 C++ '
    "a_b e-mail@host.de don't Ende. Frage? Ja! Punkt; 12:30 – 漢字かな 中文。 "
    "Привет, мир! 😀 x² ½ Ⅷ ٣ A/B #tag & <b>"
).split()


@pytest.fixture
def files(tmp_path):
    def write(hypotheses, references):
        paths = tmp_path / "hypotheses", tmp_path / "references"
        for path, lines in zip(paths, (hypotheses, references), strict=True):
            path.write_bytes("".join(f"{x}\n" for x in lines).encode())
        return [f"--hypothesis={paths[0]}", f"--reference={paths[1]}"]

    return write


def test_identical_files_score_100(run_command, files):
    lines = ["Zwei Hunde spielen im Schnee .", "Ein Mann fährt ein rotes Rad ."]
    code, out, err = run_command("bleu", *files(lines, lines), "--json")
    report = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert report["metric"] == "bleu"
    assert report["score"] == pytest.approx(100)
    assert report["sentences"] == 2
    assert "case:mixed" in report["signature"]
    assert "tok:13a" in report["signature"]


def test_lowercase_forgives_case(run_command, files):
    flags = files(["EIN KLEINES ROTES HAUS"], ["ein kleines rotes haus"])
    _, cased, _ = run_command("bleu", *flags, "--json")
    _, lower, _ = run_command("bleu", *flags, "--json", "--lowercase")
    assert json.loads(cased)["score"] == 0
    assert json.loads(lower)["score"] == pytest.approx(100)


def test_without_json_the_score_is_for_people(run_command, files):
    code, out, _ = run_command("bleu", *files(["a b c d"], ["a b c d"]))
    assert code == 0
    assert out.startswith("bleu 100.00\n  signature: ")


def test_line_separators_of_unicode_do_not_split_lines(run_command, files):
    lines = ["one\u2028still one\x0bstill\r", "", "three"]
    code, out, _ = run_command("bleu", *files(lines, lines), "--json")
    assert code == 0
    assert json.loads(out)["sentences"] == 3


def test_unequal_files_are_refused_with_both_counts(run_command, files):
    code, out, err = run_command("bleu", *files(["a"], ["a", "b"]))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "hypotheses has 1" in err
    assert "references has 2" in err


def test_missing_and_empty_files_are_said(run_command, files, tmp_path):
    flags = files([], [])
    code, _, err = run_command("bleu", *flags)
    assert code == 1 and "has no lines to score" in err
    code, _, err = run_command("bleu", f"--hypothesis={tmp_path}/no", flags[1])
    assert code == 1 and f"Cannot read {tmp_path}/no: No such file" in err


def test_flags_that_are_needed_are_named(run_command):
    code, _, err = run_command("bleu")
    assert (code, err) == (2, "t2t-lite-bleu: --hypothesis is required.\n")


def test_tokenized_bleu_stands_beside_the_other(run_command, files):
    flags = files(["Das ist ein Rad-Turnier."], ["Das ist ein Rad-Rennen."])
    flags += ["--tokenized", "--target_language=de"]
    code, out, err = run_command("bleu", *flags, "--json")
    report = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    # 6 of 7 tokens, 4 of 6 pairs, 3 of 5 triples, 2 of 4 fours are right.
    wanted = 100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert report["tokenized_bleu"] == pytest.approx(wanted)
    assert "language de" in report["tokenized_bleu_procedure"]
    # To sacreBLEU Rad-Rennen is one word: of 5, 4, 3 and 2, 4, 2, 1 and none
    # are right, and that none counts as a half.
    wanted = 100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25
    assert report["score"] == pytest.approx(wanted)
    assert "tok:13a" in report["signature"]
    _, out, _ = run_command("bleu", *flags)
    assert "\n  tokenized_bleu: 64.35\n  tokenized_bleu_procedure: " in out


def test_without_tokenized_only_one_score_is_counted(run_command, files):
    _, out, _ = run_command("bleu", *files(["a"], ["a"]), "--json")
    assert set(json.loads(out)) == {"metric", "score", "signature", "sentences"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokenized"], "--tokenized needs the language of both files"),
        (["--target_language=de"], "--target_language goes with --tokenized"),
        (
            ["--tokenized", "--target_language=de", "--lowercase"],
            "--tokenized is cased",
        ),
        (["--tokenized", "--target_language=xx"], "rules in sacremoses; got"),
    ],
)
def test_flags_that_do_not_go_together_are_said(
    run_command, files, flags, message
):
    code, out, err = run_command("bleu", *files(["a"], ["a"]), *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def references():
    rng = random.Random(1)
    return [rng.choices(WORDS, k=rng.randrange(1, 18)) for _ in range(40)]


def damaged(words, kind, rng):
    """The words of a translation that is wrong in a certain way."""
    place = rng.randrange(len(words))
    changes = {
        "equal": lambda: words,
        "dropped": lambda: words[:place] + words[place + 1 :],
        "swapped": lambda: words[place:] + words[:place],
        "case": lambda: [rng.choice([w, w.upper(), w.lower()]) for w in words],
        "spaces": lambda: [*words[:place], "\u00a0", "", *words[place:]],
        "glued": lambda: ["".join(words[:2]), *words[2:]],
        "cut": lambda: words[: place + 1],
        "empty": lambda: rng.choice([words, []]),
        "other": lambda: rng.choices(WORDS, k=len(words)),
    }
    return changes[kind]()


@pytest.mark.parametrize(
    ("kind", "cased", "uncased"),
    [
        ("equal", "100.00", "100.00"),
        ("dropped", "81.77", "81.77"),
        ("swapped", "91.62", "91.62"),
        ("case", "51.59", "96.95"),
        ("spaces", "100.00", "100.00"),
        ("glued", "92.34", "92.34"),
        ("cut", "44.10", "44.10"),
        ("empty", "12.26", "12.26"),
        ("other", "6.09", "6.15"),
    ],
)
def test_intl_prints_what_t2t_bleu_of_tensor2tensor_printed(
    run_command, files, kind, cased, uncased
):
    """The numbers are recorded ones of tensor2tensor 1.15.7."""
    rng = random.Random(2)
    rows = [(damaged(words, kind, rng), words) for words in references()]
    paths = files(
        *([" ".join(row) for row in side] for side in zip(*rows, strict=True))
    )
    flags = (*paths, "--tokenize=intl")
    _, out, _ = run_command("bleu", *flags)
    assert out.startswith(f"bleu {cased}\n")
    _, out, _ = run_command("bleu", *flags, "--lowercase")
    assert out.startswith(f"bleu {uncased}\n")
