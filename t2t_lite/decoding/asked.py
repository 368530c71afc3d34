"""What may be asked of single texts of a batch, and how a search takes it."""

from collections.abc import Mapping

import tensorflow as tf

from t2t_lite.decoding.search.score_changes import NO_TOKEN, START
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.text.encoder import TextEncoder

# What may be asked of each line, in the order of a graph's arguments: a text
# that its translation begins with, texts that must and must not appear in it,
# and the seed of its samples.
_TEXTS = tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1)
COLUMNS = {
    "prefix": tf.TensorSpec([None], tf.string, "prefix"),
    "constraints": _TEXTS,
    "avoid": _TEXTS,
    "seed": tf.TensorSpec([None], tf.int64, "seed"),
}


def ids_asked(
    count: tf.Tensor,
    asked: Mapping[str, tf.Tensor | tf.RaggedTensor],
    settings: SearchSettings,
    encoder: TextEncoder,
) -> dict[str, tf.Tensor]:
    """What is asked of each text, as ids; the settings ask it of all.

    Args:
      count: B, texts.
      asked: any of COLUMNS by name.
      settings: of the search.
      encoder: of the target side.

    Returns: `prefix`, int32 [B, M], then NO_TOKEN; `constraints`, as `Required`
      takes them; `avoid`, as `Avoid` does; `seed`, int64 [B].
    """
    ids = {}
    if "prefix" in asked:
        ids["prefix"] = encoder.tokenize(asked["prefix"]).to_tensor(NO_TOKEN)
    if "constraints" in asked:
        ids["constraints"] = _phrases(asked["constraints"], encoder)
    avoided = [asked["avoid"]] if "avoid" in asked else []
    if settings.avoid:
        everywhere = tf.tile(tf.constant([settings.avoid]), [count, 1])
        avoided.append(tf.RaggedTensor.from_tensor(everywhere))
    if avoided:
        phrases = _phrases(tf.concat(avoided, axis=1), encoder)
        shape = [count, -1, tf.shape(phrases)[3]]
        ids["avoid"] = tf.reshape(phrases, shape)
    if settings.sample:
        seed = tf.constant(settings.seed, tf.int64)
        ids["seed"] = asked.get("seed", tf.fill([count], seed))
    return ids


def _phrases(texts, encoder):
    """The tokens of ragged texts [B, None], in two ways each.

    A word may be written in another way where a translation begins.

    Returns: int32 [B, P, 2, M], P and M at least 1, as `Required` takes it.
    """
    words = texts.flat_values
    first = tf.fill([tf.size(words), 1], START)
    ways = tf.stack(
        [
            encoder.tokenize_behind(words),
            tf.concat([first, encoder.tokenize(words)], axis=1),
        ],
        axis=1,
    )  # ragged [n, 2, None]
    ways = texts.with_flat_values(ways).to_tensor(
        NO_TOKEN, shape=[None, None, 2, None]
    )
    short = tf.maximum(1 - tf.shape(ways), 0)
    padding = [[0, 0], [0, short[1]], [0, 0], [0, short[3]]]
    return tf.pad(ways, padding, constant_values=NO_TOKEN)
