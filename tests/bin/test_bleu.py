"""The command gives the scores of sacreBLEU, tensor2tensor and the paper."""

import functools
import json
import os
import random

import pytest

from support.lines import two_files

WORDS = (
    "ein Mann in einem blauen Hemd steht auf der Straße und hält zwei Kinder "
    "im Park mit ihrem großen Hund ÄRGER naïve 1,000 3.14 2016 U.S.A. 1990s … "
    'Schwarz-Weiß-Foto "Guten Tag" »wirklich« (vielleicht) 50% 20€ $5 C++ '
    "a_b e-mail@host.de don't Ende. Frage? Ja! Punkt; 12:30 – 漢字かな 中文。 "
    "Привет, мир! 😀 x² ½ Ⅷ ٣ A/B #tag & <b>"
).split()


@pytest.fixture
def files(tmp_path):
    return functools.partial(two_files, tmp_path, ["hypothesis", "reference"])


@pytest.fixture
def score(run_command):
    """Return a function that runs the command and parses its JSON."""

    def score(*flags):
        code, out, err = run_command("bleu", *flags, "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        return json.loads(out)

    return score


def test_identical_files_score_100(run_command, score, files):
    # Unicode's line separators do not end a line.
    lines = ["one\u2028still one\x85still one more\r", "", "Zwei Hunde ."]
    flags = files(lines, lines)
    report = score(*flags)
    keys = {"metric", "score", "signature", "sentences"}
    assert set(report) == keys | {"chrf", "chrf_signature"}
    assert (report["metric"], report["sentences"]) == ("bleu", 3)
    assert report["score"] == pytest.approx(100)
    for part in ("nrefs:1", "case:mixed", "tok:13a", "smooth:exp", "version:"):
        assert part in report["signature"]
    _, out, _ = run_command("bleu", *flags)
    assert out.startswith("bleu 100.00\n")


def test_lowercase_forgives_case(score, files):
    flags = files(["EIN KLEINES ROTES HAUS"], ["ein kleines rotes haus"])
    assert score(*flags)["score"] == 0
    report = score(*flags, "--lowercase")
    assert report["score"] == pytest.approx(100)
    assert "case:lc" in report["signature"]


def test_tokenized_bleu_is_an_extra_score(score, files):
    flags = files(["Das ist ein Rad-Turnier."], ["Das ist ein Rad-Rennen."])
    report = score(*flags, "--tokenized", "--target_language=de")
    # 6 of 7 tokens, 4 of 6 bigrams, 3 of 5 trigrams and 2 of 4 4-grams match.
    wanted = 100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert report["tokenized_bleu"] == pytest.approx(wanted)
    assert "language de" in report["tokenized_bleu_procedure"]
    # sacreBLEU does not split Rad-Rennen: 4 of 5 tokens, 2 of 4 bigrams, 1 of 3
    # trigrams and 0 of 2 4-grams match; smoothing replaces 0 by 0.5.
    wanted = 100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25
    assert report["score"] == pytest.approx(wanted)


def test_a_reference_is_required(run_command, tmp_path):
    code, _, err = run_command("bleu", f"--hypothesis={tmp_path}")
    assert (code, "--reference is required" in err) == (2, True)


@pytest.mark.parametrize(
    ("sides", "flags", "code", "words"),
    [
        ((["a"], ["a", "b"]), [], 1, ["has 1", "has 2"]),
        (([], []), [], 1, ["reference"]),
        ((["a"], ["a"]), ["--tokenized"], 2, ["--target_language"]),
        ((["a"], ["a"]), ["--metrics=bleurt"], 2, ["bleurt", "chrf++"]),
        ((["a"], ["a"]), ["--target_language=ja"], 1, ["sacrebleu[ja]"]),
        ((["a"], ["a"]), ["--tokenize=ko-mecab"], 1, ["sacrebleu[ko]"]),
        (
            (["a"], ["a"]),
            ["--tokenized", "--target_language=de", "--lowercase"],
            2,
            ["--lowercase"],
        ),
    ],
)
def test_bad_requests_are_one_line(
    without_mecab, run_command, files, sides, flags, code, words
):
    got, out, err = run_command("bleu", *files(*sides), *flags)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert all(word in err for word in words)


def test_missing_files_and_flags_are_named(run_command, files, tmp_path):
    code, _, err = run_command("bleu")
    assert code == 2 and "--hypothesis" in err
    missing = f"--hypothesis={tmp_path}/no"
    code, _, err = run_command("bleu", missing, files([], [])[1])
    assert code == 1 and f"{tmp_path}/no" in err


# Python must neither replace the C locale nor use its UTF-8 mode.
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("name", "locale"), [(b"caf\xe9", {}), ("caf\xe9".encode(), C_LOCALE)]
)
def test_file_names_in_any_encoding_are_printed(
    run_process, files, name, locale
):
    hypothesis = f"--hypothesis={os.fsdecode(name)}"
    _, reference = files([], [])
    done = run_process("bleu", hypothesis, reference, env=os.environ | locale)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "caf" in done.stderr and "No such file" in done.stderr


def test_only_one_file_can_be_stdin(run_command):
    code, _, err = run_command("bleu", "--hypothesis=-", "--reference=-")
    assert code == 2 and "stdin" in err


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [("yue_Hant", "zh"), ("TH", "char"), ("de", "13a"), ("xx", "13a")],
)
def test_the_target_language_selects_the_tokenizer(
    score, files, language, tokenizer
):
    flags = files(["他今天去了北京。"], ["他今天去了上海。"])
    report = score(*flags, f"--target_language={language}")
    assert f"tok:{tokenizer}|" in report["signature"]
    # 6 of 8 characters, 4 of 7 bigrams, 3 of 6 trigrams, 2 of 5 4-grams match.
    wanted = 100 * (6 / 8 * 4 / 7 * 3 / 6 * 2 / 5) ** 0.25
    is_unspaced = tokenizer != "13a"
    assert report["score"] == pytest.approx(wanted if is_unspaced else 0)
    assert "tok:intl" in score(*flags, "--tokenize=intl")["signature"]


def test_tokenized_bleu_is_null_without_spaces_between_words(score, files):
    flags = files(["他去了北京。"], ["他去了北京。"])
    report = score(*flags, "--tokenized", "--target_language=zh")
    assert report["score"] == pytest.approx(100)
    assert report["tokenized_bleu"] is None
    assert "zh" in report["tokenized_bleu_procedure"]


def test_each_sentence_may_match_a_different_reference(score, tmp_path, files):
    flags = files(["a b c d e", "v w x y z"], ["a b c d e", "no"])
    (tmp_path / "second").write_text("no\nv w x y z\n")
    second = tmp_path / "second"
    for more in (["--reference", second], [f"{flags[1]},{second}"]):
        report = score(*flags, *more, "--metrics=ter", "--metrics", "chrf++")
        assert "nrefs:2" in report["signature"]
        assert report["score"] == pytest.approx(100)
        assert (report["ter"], report["chrf++"]) == (0, 100)
        assert "nw:2" in report["chrf++_signature"]
    assert score(*flags)["score"] < 100


def test_a_baseline_is_compared_by_paired_bootstrap(score, tmp_path, files):
    references = [f"sentence {n} has words {n + 1} and {n}" for n in range(60)]
    worse = [line.replace("has", "had not") for line in references]
    (tmp_path / "baseline").write_text("\n".join(worse))
    baseline = f"--baseline={tmp_path}/baseline"
    report = score(*files(references, references), baseline)
    assert report["baseline"]["bleu"] < 50 < report["score"]
    assert report["baseline"].keys() == report["p_value"].keys()
    assert report["p_value"]["bleu"] < 0.01
    assert "bs:1000" in report["paired_bootstrap"]
    report = score(*files(worse, references), baseline)
    assert report["p_value"] == {"bleu": 1, "chrf": 1}


def damaged(words, kind, rng):
    """Return the words with one kind of error."""
    index = rng.randrange(len(words))
    changes = {
        "dropped": lambda: words[:index] + words[index + 1 :],
        "case": lambda: [rng.choice([w, w.upper(), w.lower()]) for w in words],
        "cut": lambda: words[: index + 1],
        "other": lambda: rng.choices(WORDS, k=len(words)),
    }
    return changes[kind]()


@pytest.mark.parametrize(
    ("kind", "cased", "uncased"),
    [
        ("dropped", "81.77", "81.77"),
        ("case", "51.59", "96.95"),
        ("cut", "44.10", "44.10"),
        ("other", "6.09", "6.15"),
    ],
)
def test_intl_score_equals_t2t_bleu_of_tensor2tensor(
    run_command, files, kind, cased, uncased
):
    """Compare with numbers recorded from tensor2tensor 1.15.7."""
    rng = random.Random(1)
    references = [rng.choices(WORDS, k=rng.randrange(1, 18)) for _ in range(40)]
    rng = random.Random(2)
    paths = files(
        [" ".join(damaged(words, kind, rng)) for words in references],
        [" ".join(words) for words in references],
    )
    flags = (*paths, "--tokenize=intl")
    _, out, _ = run_command("bleu", *flags)
    assert out.startswith(f"bleu {cased}\n")
    _, out, _ = run_command("bleu", *flags, "--lowercase")
    assert out.startswith(f"bleu {uncased}\n")
