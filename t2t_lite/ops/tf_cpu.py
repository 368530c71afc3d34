"""Faster versions of operations, for TensorFlow graphs without a GPU.

`t2t_lite.ops` documents each function and calls it. Here each docstring states
what it replaces and the gain, plain -> here. EPYC means two cores of an AMD
EPYC with AVX-512, and `versions.py` the sides of `benchmarks/versions.py`: one
process with the plain version and one without, in turns (medians). They measure
a training step of the sizes d128 and base, the search of 64 sentences with a
beam of 4, or the start until the third update of a small six-layer model.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from t2t_lite import ops
from t2t_lite.ops import DROPOUT_STEPS, Tensor
from t2t_lite.tf_setup import weights_are_frozen

# Kernels with at least this many columns are transposed in a separate pass.
_WIDE = 512
# Rows of logits at least this wide are searched in two stages, by blocks.
_TWO_STAGE_WIDTH = 2048
_BLOCK = 64


def shape_list(x: Tensor) -> tuple[int | Tensor, ...]:
    """Return the sizes of `x`, with fewer operations than `keras.ops.shape`.

    With `reshape_like`: start 10,300 -> 8,700 ms (EPYC, `versions.py`).
    """
    if None not in x.shape:
        return tuple(x.shape)
    unknown = tf.unstack(tf.shape(x))
    return tuple(
        scalar if size is None else size
        for size, scalar in zip(x.shape, unknown, strict=True)
    )


def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """Return `x` in the shape of `other`; see `shape_list` for the gain."""
    return tf.reshape(x, tf.shape(other))


def add(x: Tensor, y: Tensor) -> Tensor:
    """Return `x + y`, of the same shape and dtype.

    It replaces `+`, whose gradient has a dozen operations that find out what
    was broadcast. Start 9,300 -> 8,700 ms (EPYC, `versions.py`).
    """
    return tf.raw_ops.AddN(inputs=[x, y])


def dense(
    x: Tensor, kernel: Tensor, bias: Tensor | None = None, relu: bool = False
) -> Tensor:
    """Multiply `x` by `kernel`, with products that oneDNN computes faster.

    It replaces `matmul` and `+` by a product with a fused bias, and in training
    by `_wide_product`, which has the measured gain.
    """
    kernel = tf.cast(kernel, x.dtype)
    bias = None if bias is None else tf.cast(bias, x.dtype)
    rows, columns = kernel.shape
    is_wide = x.dtype == tf.float32 and columns >= max(rows + 1, _WIDE)
    # The rows of a decoding step, [N, A], need no gradient.
    product = _wide_product if is_wide and len(x.shape) > 2 else _product
    return product(ops.flatten_rows(x), kernel, bias, relu)


def _product(x, kernel, bias, relu):
    rows = tf.matmul(x, kernel)
    if bias is None and x.dtype == tf.bfloat16 and weights_are_frozen():
        # oneDNN keeps a fixed kernel packed only in a product with a bias. The
        # search of one sentence at base in bfloat16 takes half the time (EPYC).
        bias = tf.zeros(kernel.shape[1], x.dtype)
    if bias is not None:
        rows = tf.nn.bias_add(rows, bias)  # fused with the product
    return tf.nn.relu(rows) if relu else rows


def _wide_product(x, kernel, bias, relu):
    """Return `_product`, whose gradient by `x` takes a quarter less time.

    It replaces TensorFlow's gradient, in which oneDNN transposes a wide kernel
    itself. The reshapes keep TensorFlow from fusing the transposition again.
    Training step at base: 6 % less (4 to 9 %, 11 rounds), in another run 4,357
    -> 4,260 ms (EPYC, `versions.py`).
    """

    @tf.custom_gradient
    def product(x, kernel, bias=None):
        rows = _product(x, kernel, bias, relu)

        def gradient(upstream):
            if relu:
                upstream = tf.raw_ops.ReluGrad(
                    gradients=upstream, features=rows
                )
            transposed = with_control_dependency(kernel, upstream)
            transposed = tf.reshape(transposed, (*kernel.shape, 1))
            transposed = tf.transpose(transposed, (1, 0, 2))
            transposed = tf.reshape(transposed, kernel.shape[::-1])
            gradients = (
                tf.matmul(upstream, transposed),
                tf.matmul(x, upstream, transpose_a=True),
                tf.raw_ops.BiasAddGrad(out_backprop=upstream),
            )
            return gradients[: 2 if bias is None else 3]

        return rows, gradient

    return product(x, kernel) if bias is None else product(x, kernel, bias)


def spread_columns(weight: Tensor) -> Tensor:
    """Add 16 zero columns to float32 weights with rows of N * 512 bytes.

    It replaces kernels whose rows all begin in the same lines of the cache.
    Without AVX-512, oneDNN multiplies few rows by them at half speed. Search of
    64 sentences at base 5,220 -> 4,210 ms (EPYC, ONEDNN_MAX_CPU_ISA=AVX2).
    """
    *rows, columns = weight.shape
    if weight.dtype != tf.float32 or columns < _WIDE or columns % 128:
        return weight
    return tf.pad(weight, [*([0, 0] for _ in rows), [0, 16]])


def spread_units(
    kernel: Tensor, bias: Tensor, output_kernel: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Add 16 hidden units of zeros where `spread_columns` adds columns.

    Without AVX-512, oneDNN computes the gradients of kernels with fewer than
    512 inputs at half speed, too. Training step at d256 650 -> 583 ms (EPYC,
    `versions.py`, ONEDNN_MAX_CPU_ISA=AVX2).
    """
    spread = spread_columns(kernel)
    if kernel.shape[0] < _WIDE and (new := spread.shape[1] - kernel.shape[1]):
        output_kernel = tf.pad(output_kernel, [[0, new], [0, 0]])
        return spread, tf.pad(bias, [[0, new]]), output_kernel
    return kernel, bias, output_kernel


def batch_matmul(x: Tensor, y: Tensor, transpose_y: bool = False) -> Tensor:
    """Multiply batches of matrices, and of single rows without oneDNN.

    It replaces oneDNN's product, which takes longer to start than to multiply
    a single row. Greedy search of 64 sentences at d128 105 -> 96 ms (EPYC).
    """
    if x.shape[2] != 1 or x.dtype != tf.float32:
        return tf.raw_ops.BatchMatMul(x=x, y=y, adj_y=transpose_y)
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_y=transpose_y, Tout=x.dtype)


def dropout(
    x: Tensor, rate: float, seed: Tensor, rows_before: int | Tensor = 0
) -> Tensor:
    """Zero a share of `x`, and scale up the rest.

    It replaces `keras.random`, which makes each number from 64 bits with a
    division; here two units share 32 bits. Training step at d128 231 -> 215 ms
    (EPYC, `versions.py`).
    """
    dropped = ops.dropped_steps(rate)
    keep = _random_int16(x, seed, rows_before) >= dropped - DROPOUT_STEPS // 2
    scale = DROPOUT_STEPS / (DROPOUT_STEPS - dropped)

    @tf.custom_gradient
    def drop(x):
        def gradient(upstream):
            return tf.where(keep, upstream * scale, 0.0)

        return tf.where(keep, x * scale, 0.0), gradient

    return drop(x)


def _random_int16(x, seed, rows_before):
    count = tf.size(x)
    words, first = (count + 1) // 2, None
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    if not isinstance(rows_before, int):
        row = tf.cast(count // tf.shape(x)[0], tf.int64)
        before = tf.cast(rows_before, tf.int64) * row  # may exceed 32 bits
        # Each count of the generator, Philox, gives 128 bits.
        counter += tf.stack([tf.cast(before // 8, tf.uint64), 0])
        words, first = count // 2 + 4, tf.cast(before % 8, tf.int32)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.reshape(words, [1]),
        key=key,
        counter=counter,
        alg=tf.random.Algorithm.AUTO_SELECT.value,
        dtype=tf.int32,
    )
    bits = tf.bitcast(bits, tf.int16)
    if first is not None:
        bits = tf.reshape(bits, [-1])[first : first + count]
    elif not (x.shape and (x.shape[-1] or 1) % 2 == 0):  # may be odd
        bits = tf.reshape(bits, [-1])[:count]
    return reshape_like(bits, x)


def new_buffer(shape: Sequence[int | Tensor], dtype: str) -> Tensor:
    """Return zeros for `write_rows`, axis 2 of unknown size.

    It replaces `zeros`; see `write_rows` for the gain.
    """
    # Not `zeros`: a graph merges equal constants, and a write into one buffer
    # would then change all of them.
    buffer = tf.raw_ops.Empty(shape=tf.stack(shape), dtype=dtype, init=True)
    known = [size if isinstance(size, int) else None for size in shape]
    known[2] = None
    return tf.raw_ops.PlaceholderWithDefault(input=buffer, shape=known)


def write_rows(buffer: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Write in place.

    It replaces `scatter_update`, which copies the whole buffer for every row.
    Stock TensorFlow Serving has this operation, too. With `new_buffer` and a
    growing cache: search at d128 409 -> 312 ms (EPYC, `versions.py`).
    """
    return tf.raw_ops.InplaceUpdate(x=buffer, i=rows, v=values)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[rows]`, without the operations for negative rows."""
    return tf.gather(x, rows)


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[b, rows[b, n]]`, in one operation.

    With `take_rows` and `shape_list` in the search, the first translation takes
    6.3 instead of 7.5 s of CPU (Intel Xeon with AVX-512, `startup.py`).
    """
    return tf.gather(x, rows, batch_dims=1)


def scatter_add(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add in place if `x` is not read again, to save memory.

    It replaces `segment_sum`, which makes another array as large as `x`: for
    the gradient of the softmax, as large as a block of logits.
    """
    return tf.tensor_scatter_nd_add(x, rows[:, None], values)


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values, in two stages for wide rows.

    It replaces one `top_k`. The k largest values of a row lie in the k blocks
    with the largest maxima. Search at d128 364 -> 282 ms (EPYC, `versions.py`).
    In XLA the 8 largest of [4, 8000] take 0.018 ms instead of 0.050.
    """
    top = functools.partial(tf.raw_ops.TopKV2, sorted=True)
    count, size = shape_list(x)
    # A divisor of the size if possible: a rest would copy all the blocks.
    near = [n for n in range(_BLOCK // 2, 2 * _BLOCK + 1) if size % n == 0]
    block = min(near, key=lambda n: abs(n - _BLOCK), default=_BLOCK)
    if size < _TWO_STAGE_WIDTH or size // block < k:
        return tuple(top(input=x, k=k))
    if rest := -size % block:  # finite padding, as `check_numerics` requires
        x = tf.pad(x, ((0, 0), (0, rest)), constant_values=x.dtype.min)
    blocks = tf.reshape(x, (count, -1, block))
    _, chosen = top(input=tf.reduce_max(blocks, axis=-1), k=k)  # [R, k]
    # In the order of the ids, so that ties go to the smaller id.
    chosen = tf.sort(chosen, axis=-1)
    ids = chosen[..., None] * block + tf.range(block)
    ids = tf.reshape(ids, (count, k * block))
    values = tf.gather(blocks, chosen, batch_dims=1)  # [R, k, block]
    values, indices = top(input=tf.reshape(values, (count, k * block)), k=k)
    return values, tf.gather(ids, indices, batch_dims=1)


def log_normalizer(logits: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """Return the largest logit - log(the largest probability).

    It replaces `logsumexp`, whose exponentials take longer than oneDNN's
    softmax. Search of 64 sentences at d128 289 -> 276 ms (EPYC).
    """
    probs = tf.gather(tf.nn.softmax(logits), ids[:, :1], batch_dims=1)
    return values[:, :1] - tf.math.log(probs)


def with_control_dependency(x: Tensor, other: Tensor) -> Tensor:
    """Compute `other` before `x`, to save memory.

    It replaces `x`: TensorFlow computes a cheap operation as early as it can,
    and the result then keeps its memory until it is used.
    """
    with tf.control_dependencies([other]):
        return tf.identity(x)
