r"""The search agrees with `generate` of Hugging Face Transformers.

Both get the same random weights, in the layout of their Marian models. Theirs
runs in an environment of its own:

    make .peers/.installed
    .venv/bin/python -m pytest -m slow \
        tests/decoding/test_agrees_with_transformers.py

PEER_PYTHON names the interpreter of another one. Compared with Transformers
5.23. Its search differs from ours in these rules:

- A score is log-probability / length ** length_penalty; ours divides by
  ((5 + length) / 6) ** alpha. Their length has the EOS, as ours has, but not
  the forced prefix, whose log-probability is not in their score, either.
- Of the 2 K candidates of a step, an EOS counts only among the K best; in ours
  among all. The live beams are the same.
- At the limit a hypothesis without EOS competes with the finished ones by its
  score; ours follows behind them.
- With early_stopping="never" a search ends by the same exact bound as ours, for
  all K hypotheses. Their default ends by a guess.
- Repeated n-grams are looked for in the start token, too, which is the
  padding: so padding is suppressed where they are looked for.
- min_new_tokens and max_new_tokens do not count a forced prefix; ours do.
- Of tokens that are equally likely, top_p may keep some; ours keeps all.
"""

import itertools
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from support.marian import marian_weights
from support.places import ROOT, TESTS
from support.rounding import approx_score
from t2t_lite.decoding.search import beam_search as search_module
from t2t_lite.decoding.search.choice import Best, Sample
from t2t_lite.decoding.search.log_probs import IMPOSSIBLE
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.model.transformer import Transformer
from t2t_lite.text.encoder import EOS_ID, PAD_ID
from t2t_lite.text.token_encoder import TokenEncoder

PYTHON = pathlib.Path(os.environ.get("PEER_PYTHON", ROOT / ".peers/bin/python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason=f"needs torch and transformers in {PYTHON}: "
        "make .peers/.installed, or set PEER_PYTHON",
    ),
]

SIZES = {
    "hidden_size": 32,
    "filter_size": 64,
    "num_heads": 4,
    "num_hidden_layers": 2,
}
SEEDS = range(3)
VOCAB_SIZE, POSITIONS = 60, 40
# Ids are their own names, but for those of padding, EOS and unknown tokens.
SOURCES = [
    np.random.default_rng(length).integers(3, VOCAB_SIZE, length).tolist()
    for length in (1, 2, 3, 5, 8, 13, 21)
]
PREFIXES = [[3 + row, 20 - row, 3 + row] for row in range(len(SOURCES))]


def words(ids):
    return " ".join(map(str, ids))


# Phrases of two tokens, of which so many are forbidden that some are missed.
AVOID = [
    *([token] for token in range(20, 30)),
    *itertools.product(range(3, 20), range(30, VOCAB_SIZE)),
]
NO_PAD = {"suppress": ("<pad>",)}
PLAIN = {"beam_size": 4, "alpha": 0.0, "max_new_tokens": 14}
# What is asked of ours; theirs is asked for the same by `options_of`.
CASES = {
    "greedy": {"beam_size": 1},
    "a beam": {},
    "a wide beam": {"beam_size": 9},
    "a weak length penalty": {"alpha": 0.6},
    "a length penalty": {"alpha": 1.0},
    "a strong length penalty": {"alpha": 2.0, "beam_size": 3},
    "a minimum": {"min_new_tokens": 9},
    "a maximum": {"max_new_tokens": 4, "alpha": 1.0},
    "one length": {"min_new_tokens": 6, "max_new_tokens": 7},
    "one length, greedy": {
        "min_new_tokens": 6,
        "max_new_tokens": 7,
        "beam_size": 1,
    },
    "no token twice": {"no_repeat_ngram_size": 1, **NO_PAD},
    "no pair twice": {"no_repeat_ngram_size": 2, **NO_PAD},
    "no triple twice": {"no_repeat_ngram_size": 3, **NO_PAD},
    "no pair twice, greedy": {
        "no_repeat_ngram_size": 2,
        "beam_size": 1,
        **NO_PAD,
    },
    "suppressed pieces": {"suppress": tuple(map(str, range(3, 25)))},
    "avoided words": {"avoid": tuple(map(words, AVOID))},
    "a prefix": {"prefix": PREFIXES},
    "a prefix, greedy": {"prefix": PREFIXES, "beam_size": 1},
    "a prefix, no pair twice": {
        "prefix": PREFIXES,
        "no_repeat_ngram_size": 2,
        **NO_PAD,
    },
    "all at once": {
        "prefix": PREFIXES,
        "beam_size": 5,
        "min_new_tokens": 6,
        "max_new_tokens": 11,
        "no_repeat_ngram_size": 2,
        "suppress": ("<pad>", *map(str, range(40, 50))),
        "avoid": tuple(map(words, AVOID)),
    },
    # Only here are both sides compared with their own length penalties.
    "no end": {"suppress": ("</s>",), "alpha": 0.6},
}


def options_of(case):
    """What `generate` is called with for a case of ours."""
    asked = {**PLAIN, **case}
    prefix = asked.get("prefix", [[]] * len(SOURCES))
    special = {"<pad>": PAD_ID, "</s>": EOS_ID}
    options = {
        "num_beams": asked["beam_size"],
        "length_penalty": asked["alpha"],
        "max_new_tokens": asked["max_new_tokens"] - len(prefix[0]),
        "no_repeat_ngram_size": asked.get("no_repeat_ngram_size", 0),
    }
    if "min_new_tokens" in asked:
        least = asked["min_new_tokens"] - len(prefix[0])
        options["min_new_tokens"] = least
    if "suppress" in asked:
        options["suppress_tokens"] = [
            special[piece] if piece in special else int(piece)
            for piece in asked["suppress"]
        ]
    if "avoid" in asked:
        options["bad_words_ids"] = [
            list(map(int, phrase.split())) for phrase in asked["avoid"]
        ]
    if asked["beam_size"] == 1:
        del options["length_penalty"]
    return {"prefix": prefix, "options": options}


def randomize(model, seed):
    """Gives weights with which hypotheses are no ties and end here and there.

    The attention to the source is strong, so that each source has its own.
    """
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        size = 0.6 if "cross_attention" in variable.path else 0.2
        if "table" in variable.path:
            value = generator.normal(0, 0.7, variable.shape)
            value[PAD_ID] = 0.0
            value[EOS_ID] += 0.7
        elif len(variable.shape) == 1:
            value = generator.normal(0, 0.1, variable.shape)
            value += variable.path.endswith("scale")
        else:
            value = generator.normal(0, size, variable.shape)
        variable.assign(value)
    last = model.decoder_layers[-1].feed_forward_norm
    last.bias.assign_add(np.full(last.bias.shape, 0.18))  # what EOS likes


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    return TokenEncoder.write(map(str, range(3, VOCAB_SIZE)), path)


@pytest.fixture(scope="module")
def model():
    return Transformer(VOCAB_SIZE, **SIZES).build_weights()


# Ties, extremes, and tokens that are impossible.
LOGITS = [
    np.random.default_rng(0).normal(0, 2, 12).tolist(),
    [0.0] * 12,
    [5.0, 5.0, 5.0, 4.0, 4.0, 1.0, 1.0, 1.0, 0.0, -2.0, -2.0, -9.0],
    [1e4, 1e4 - 1, 1e4 - 2, *np.linspace(-1e4, 1e4 - 3, 9)],
    [30.0, *[-30.0] * 11],
    [-np.inf, 1.0, -np.inf, 2.0, 0.5, *[-np.inf] * 7],
    np.linspace(-1e-3, 1e-3, 12).tolist(),
]
LOGITS = np.array(LOGITS, np.float32)
FILTERS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    for temperature in (1.0, 0.05, 0.7, 30.0)
    for top_k in (0, 1, 4, 12, 100)
    for top_p in (1.0, 1e-6, 0.3, 0.85, 0.9999)
]


@pytest.fixture(scope="module")
def theirs(model, tmp_path_factory):
    """The answers of `transformers_side.py`, in one run."""
    folder = tmp_path_factory.mktemp("transformers")
    paths = []
    for seed in SEEDS:
        randomize(model, seed)
        paths.append(str(folder / f"{seed}.npz"))
        np.savez(paths[-1], **marian_weights(model, VOCAB_SIZE, POSITIONS))
    request = {
        "sizes": {**SIZES, "vocab_size": VOCAB_SIZE, "positions": POSITIONS},
        "weights": paths,
        "sources": [[*ids, EOS_ID] for ids in SOURCES],
        "cases": {name: options_of(case) for name, case in CASES.items()},
        "logits": LOGITS.tolist(),
        "filters": FILTERS,
    }
    (folder / "request.json").write_text(json.dumps(request))
    script = TESTS / "support" / "transformers_side.py"
    done = subprocess.run(
        [PYTHON, script, folder / "request.json", folder / "answer.json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "answer.json").read_text())


def search(model, encoder, case):
    """Our hypotheses for each seed and source: lists of (ids, score)."""
    asked = {**PLAIN, **case}
    prefix = asked.pop("prefix", None)
    translator = Translator(
        model, encoder, encoder, SearchSettings(**asked), max_length=POSITIONS
    )
    columns = {}
    if prefix:
        columns["prefix"] = tf.constant([words(ids) for ids in prefix])
    for seed in SEEDS:
        randomize(model, seed)
        found = translator.translate(
            tf.constant([words(ids) for ids in SOURCES]),
            asked["beam_size"],
            columns,
        )
        yield [
            [
                (up_to_end(row, asked["max_new_tokens"]), score)
                for row, score in zip(*rows, strict=True)
            ]
            for rows in zip(
                found["tokens"].numpy().tolist(),
                found["scores"].numpy().tolist(),
                strict=True,
            )
        ]


def up_to_end(ids, limit):
    return ids[: ids.index(EOS_ID) + 1] if EOS_ID in ids else ids[:limit]


class EndsAmongTheBest(Best):
    """Their rule: an EOS counts only among the K best candidates."""

    def candidates(self, state, logits, normalizer):
        found = super().candidates(state, logits, normalizer)
        beam_size = ops.shape(state.live_log_probs)[1]
        late = ops.arange(ops.shape(found.ids)[1]) >= beam_size
        lost = ops.logical_and(late, ops.equal(found.ids, EOS_ID))
        return found._replace(
            log_probs=ops.where(lost, IMPOSSIBLE, found.log_probs)
        )


def their_penalty(length, alpha):
    return ops.power(ops.cast(length, "float32"), alpha)


def assert_same(ours, theirs):
    """The same hypotheses, whatever the places of those that were cut.

    Theirs are the K best of all; ours the finished ones, then the others. So
    those that only one side has are the last ones of their kind.

    Returns: how many both sides have.
    """
    assert len(ours) == len(theirs)
    (ours, our_cut), (theirs, their_cut) = map(finished_and_cut, (ours, theirs))
    assert len(ours) >= len(theirs)
    compared = [
        *zip(ours, theirs, strict=False),
        *zip(our_cut, their_cut, strict=False),
    ]
    for (ids, score), (their_ids, their_score) in compared:
        assert ids == their_ids
        assert score == approx_score(their_score)
    return len(compared)


def finished_and_cut(hypotheses):
    finished = [each for each in hypotheses if each[0][-1] == EOS_ID]
    return finished, [each for each in hypotheses if each[0][-1] != EOS_ID]


@pytest.mark.parametrize("name", [name for name in CASES if name != "no end"])
def test_hypotheses_are_theirs_by_their_two_rules(
    name, model, encoder, theirs, monkeypatch
):
    monkeypatch.setattr(search_module, "Best", EndsAmongTheBest)
    monkeypatch.setattr(search_module, "length_penalty", their_penalty)
    ours, compared = search(model, encoder, CASES[name]), 0
    for found, wanted in zip(ours, theirs["found"][name], strict=True):
        for hypotheses, others in zip(found, wanted, strict=True):
            # Ours scores the forced prefix, too.
            others = [(ids, score + before) for ids, score, before in others]
            compared += assert_same(hypotheses, others)
    assert compared >= len(SEEDS) * len(SOURCES)


def test_hypotheses_that_cannot_end_are_theirs(model, encoder, theirs):
    alpha = CASES["no end"]["alpha"]
    length = PLAIN["max_new_tokens"]
    ours = search(model, encoder, CASES["no end"])
    for found, wanted in zip(ours, theirs["found"]["no end"], strict=True):
        for hypotheses, others in zip(found, wanted, strict=True):
            for (ids, score), (their_ids, their_score, _) in zip(
                hypotheses, others, strict=True
            ):
                assert ids == their_ids
                assert score * ((5 + length) / 6) ** alpha == approx_score(
                    their_score * length**alpha
                )


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize(
    "name", ["a beam", "a weak length penalty", "a length penalty"]
)
def test_no_finished_hypothesis_of_theirs_has_a_better_score(
    name, alpha, model, encoder, theirs
):
    """Place by place, by our score: we count more ends, and lose none."""
    power = {**PLAIN, **CASES[name]}["alpha"]
    ours = search(model, encoder, {"alpha": alpha})
    for found, wanted in zip(ours, theirs["found"][name], strict=True):
        for hypotheses, others in zip(found, wanted, strict=True):
            finished, _ = finished_and_cut(others)
            rescored = [
                score * len(ids) ** power / ((5 + len(ids)) / 6) ** alpha
                for ids, score, _ in finished
            ]
            best = sorted(rescored, reverse=True)
            for (ids, score), other in zip(hypotheses, best, strict=False):
                assert ids[-1] == EOS_ID and score > other - 1e-4


def test_every_option_makes_a_difference(theirs):
    found = theirs["found"]
    for name, case in CASES.items():
        plain = "greedy" if case.get("beam_size") == 1 else "a beam"
        assert name == plain or found[name] != found[plain], name


def test_samples_are_drawn_from_their_distribution(theirs):
    for options, wanted in zip(FILTERS, theirs["filtered"], strict=True):
        weights = Sample(None, **options).weights(tf.constant(LOGITS)).numpy()
        ours = weights / weights.sum(-1, keepdims=True)
        for row, shares in enumerate(np.array(wanted)):
            if not np.allclose(ours[row], shares, rtol=0, atol=1e-5):
                assert options["top_p"] < 1
                shares = with_ties(LOGITS[row], shares)
            np.testing.assert_allclose(ours[row], shares, rtol=0, atol=1e-5)


def with_ties(logits, shares):
    """Shares if all tokens were kept that are as likely as the least kept."""
    tied = logits == logits[shares > 0].min()
    assert np.any(shares[tied] == 0)
    weights = np.where(tied, shares[tied].max(), shares)
    return weights / weights.sum()
