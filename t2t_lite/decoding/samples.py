"""Samples of a search: the numbers that draw them, and their order."""

import tensorflow as tf


def best_first(
    tokens: tf.Tensor, scores: tf.Tensor, samples: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Samples [B * n, 1, ...] as [B, n, ...], in the order of their scores."""
    scores = tf.reshape(scores, [-1, samples])
    tokens = tf.reshape(tokens, [-1, samples, tf.shape(tokens)[2]])
    scores, order = tf.math.top_k(scores, samples)
    return tf.gather(tokens, order, batch_dims=1), scores


def uniforms(
    seeds: tf.Tensor, texts: tf.Tensor, samples: int, limits: tf.Tensor
) -> tf.Tensor:
    """Uniform numbers in [0, 1) for each step of each sample: float32 [R, L].

    A row depends on its text, its seed and its number among the samples of
    that text.

    Args:
      seeds: int64 [R].
      texts: tf.string [R], R = B * samples.
      samples: of a text, which stand together.
      limits: int32 [R].
    """
    count = tf.shape(seeds)[0]
    numbers = tf.cast(tf.range(count) % samples, tf.int64)
    # So that two texts do not draw the same numbers.
    hashes = tf.strings.to_hash_bucket_fast(texts, 2**62)
    keys = tf.stack([seeds, hashes + numbers], axis=1)
    length = tf.reduce_max(tf.concat([limits, [0]], axis=0))
    return tf.map_fn(
        lambda key: tf.random.stateless_uniform([length], key),
        keys,
        fn_output_signature=tf.float32,
    )
