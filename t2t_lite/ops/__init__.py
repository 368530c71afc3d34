"""The operations of the model and the search, in plain `keras.ops`.

`tf_cpu` has faster versions of some of them for TensorFlow without a GPU, and
`uses_tf_cpu` selects them. All other backends and devices use this file alone.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import keras
from keras import ops

# A tensor of the Keras backend in use.
Tensor: TypeAlias = Any
# The shape of a layer's input: ints, and None for any size.
Shape: TypeAlias = tuple[Any, ...]
P = ParamSpec("P")
R = TypeVar("R")

# Dropout draws numbers of 16 bits, whatever the precision.
DROPOUT_STEPS = 1 << 16
# XLA on a CPU computes products with more columns several times as slowly.
_XLA_COLUMNS = 8192

_for_xla = contextvars.ContextVar("for_xla", default=False)


@contextlib.contextmanager
def for_xla() -> Iterator[None]:
    """Build a TensorFlow graph in this block that XLA can compile.

    XLA does not support writing in place, nor shapes that change in a loop.
    """
    token = _for_xla.set(True)
    try:
        yield
    finally:
        _for_xla.reset(token)


def uses_tf_cpu(or_xla: bool = False, eagerly: bool = False) -> bool:
    """Return True in a TensorFlow graph without a GPU, except in `for_xla`.

    With `or_xla`, also in `for_xla`; with `eagerly`, outside a graph instead.
    """
    is_excluded = _for_xla.get() and not or_xla
    if keras.backend.backend() != "tensorflow" or is_excluded:
        return False
    import tensorflow as tf

    has_gpu = bool(tf.config.get_visible_devices("GPU"))
    return tf.inside_function() != eagerly and not has_gpu


def _faster_on_cpu(plain: Callable[P, R], **conditions: bool) -> Callable[P, R]:
    """Call the function of the same name in `tf_cpu` if `uses_tf_cpu(...)`."""

    @functools.wraps(plain)
    def select(*args: P.args, **kwargs: P.kwargs) -> R:
        if not uses_tf_cpu(**conditions):
            return plain(*args, **kwargs)
        from t2t_lite.ops import tf_cpu

        return getattr(tf_cpu, plain.__name__)(*args, **kwargs)

    return select


def flatten_rows(x: Tensor) -> Tensor:
    """[..., A] -> rows [N, A]."""
    return x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))


def unflatten_rows(rows: Tensor, other: Tensor) -> Tensor:
    """Rows [N, C] -> [..., C], where `other` is [..., A] of N rows."""
    if len(other.shape) == 2:
        return rows
    if rows.shape[-1] == other.shape[-1]:
        return reshape_like(rows, other)
    return reshape(rows, (*shape_list(other)[:-1], rows.shape[-1]))


def reshape(x: Tensor, shape: Sequence[int | Tensor]) -> Tensor:
    """Return `ops.reshape(x, shape)`, without computing a single unknown size.

    The shape has ints, at most one of them -1, and int32 scalars.
    """
    known = [size if isinstance(size, int) else -1 for size in shape]
    return ops.reshape(x, known if known.count(-1) == 1 else shape)


@_faster_on_cpu
def shape_list(x: Tensor) -> tuple[int | Tensor, ...]:
    """Return the sizes of `x`: ints where they are known, else scalars."""
    return ops.shape(x)


@_faster_on_cpu
def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """Return `x` in the shape of `other`."""
    return ops.reshape(x, ops.shape(other))


@_faster_on_cpu
def add(x: Tensor, y: Tensor) -> Tensor:
    """Return `x + y`, of the same shape and dtype."""
    return x + y


@_faster_on_cpu
def dense(
    x: Tensor, kernel: Tensor, bias: Tensor | None = None, relu: bool = False
) -> Tensor:
    """Multiply `x` [..., A] by `kernel` [A, C]: rows [N, C].

    One matrix product over all positions. The kernel and the bias, [C], are
    cast to the dtype of `x`; `relu` replaces negative results by 0.
    """
    rows = ops.matmul(flatten_rows(x), ops.cast(kernel, x.dtype))
    if bias is not None:
        rows = rows + ops.cast(bias, x.dtype)
    return ops.relu(rows) if relu else rows


def column_blocks(kernel: Tensor) -> list[Tensor]:
    """Return a kernel [..., C] as blocks of columns, to multiply rows by each.

    In `for_xla`, a block has at most 8,192 columns; else there is one block.
    The product of 4 rows and [512, 32000] takes 9.8 ms in XLA on two cores of
    an AMD EPYC with AVX-512, and 3.1 ms by blocks.
    """
    ends = [*range(_XLA_COLUMNS, kernel.shape[-1], _XLA_COLUMNS)]
    is_split = ends and _for_xla.get()
    return ops.split(kernel, ends, axis=-1) if is_split else [kernel]


@functools.partial(_faster_on_cpu, eagerly=True)
def spread_columns(weight: Tensor) -> Tensor:
    """Return a kernel or bias [..., C]; outside graphs it may get zeros."""
    return weight


@_faster_on_cpu
def spread_units(
    kernel: Tensor, bias: Tensor, output_kernel: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return [D, F], [F] and [F, D]; `tf_cpu` may add hidden units of zeros."""
    return kernel, bias, output_kernel


@_faster_on_cpu
def batch_matmul(x: Tensor, y: Tensor, transpose_y: bool = False) -> Tensor:
    """Multiply float [B, H, A, C] by [B, H, C, E]: [B, H, A, E].

    With `transpose_y`, `y` is [B, H, E, C].
    """
    if not transpose_y:
        return ops.einsum("bhac,bhce->bhae", x, y)
    if _for_xla.get():  # it would copy y, the larger one in decoding
        return ops.swapaxes(ops.einsum("bhec,bhac->bhea", y, x), -1, -2)
    return ops.einsum("bhac,bhec->bhae", x, y)


def layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float
) -> Tensor:
    """Normalize `x` over its last axis (arXiv:1607.06450).

    Scale and bias, [D], and statistics are float32 for every dtype of `x`,
    because a bfloat16 mean loses the digits of the variance. `epsilon` is added
    to the variance.
    """
    centered = ops.cast(x, "float32")
    centered = centered - ops.mean(centered, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    normalized = centered * ops.rsqrt(variance + epsilon)
    return ops.cast(normalized * scale + bias, x.dtype)


@_faster_on_cpu
def dropout(
    x: Tensor, rate: float, seed: Tensor, rows_before: int | Tensor = 0
) -> Tensor:
    """Zero a fraction `rate` of `x`, and scale up the rest.

    The result depends only on the arguments. The rate is rounded to a multiple
    of 2 ** -16, so that the mean is exact.

    Args:
      x: float [B, ...].
      rate: in [0, 1).
      seed: int32 [2].
      rows_before: rows of the batch before those of `x`, which get the dropout
        that they get in the whole batch.
    """
    rows, *sizes = ops.shape(x)
    numbers = keras.random.randint(
        (rows_before + rows, *sizes), 0, DROPOUT_STEPS, seed=_FixedSeed(seed)
    )
    dropped = dropped_steps(rate)
    scale = DROPOUT_STEPS / (DROPOUT_STEPS - dropped)
    # TensorFlow slices and compares int32 on the CPU, even if it is on a GPU.
    keep = ops.cast(numbers, "float32")[rows_before:] >= dropped
    return ops.where(keep, x * scale, 0.0)


def dropped_steps(rate: float) -> int:
    """Return the number of the DROPOUT_STEPS numbers that drop a unit."""
    return min(round(rate * DROPOUT_STEPS), DROPOUT_STEPS - 1)


class _FixedSeed(keras.random.SeedGenerator):
    """A generator that always returns the given int32 [2]."""

    def __init__(self, seed):
        # Without the variable of a generator that counts.
        is_jax = keras.backend.backend() == "jax"
        self.seed = ops.cast(seed, "uint32" if is_jax else "int32")

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


@_faster_on_cpu
def new_buffer(shape: Sequence[int | Tensor], dtype: str) -> Tensor:
    """Return zeros for `write_rows`, given ints or int32 scalars.

    A loop may lengthen axis 2 if `uses_tf_cpu()`.
    """
    return ops.zeros(shape, dtype)


@_faster_on_cpu
def write_rows(buffer: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Return the buffer with `values` [M, A] in `rows`, int32 [M].

    The buffer, [N, A], is from `new_buffer`; do not read it afterwards.
    """
    return ops.scatter_update(buffer, rows[:, None], values)


@_faster_on_cpu
def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[rows]`; the rows, int32 [...], are not negative."""
    return ops.take(x, rows, axis=0)


@_faster_on_cpu
def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[b, rows[b, n]]`, [B, N, ...]; the rows are int32 [B, N]."""
    # Unlike `take_along_axis`, this works on tensors without elements.
    batch, size, *rest = ops.shape(x)
    first = ops.arange(batch, dtype="int32") * size  # in [B * M, ...]
    flat = ops.reshape(x, (batch * size, *rest))
    return ops.take(flat, rows + first[:, None], axis=0)


@_faster_on_cpu
def scatter_add(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Return `x` [N, A] with `values` [M, A] added to `rows`, int32 [M].

    Rows may repeat.
    """
    return x + ops.segment_sum(values, rows, num_segments=x.shape[0])


@functools.partial(_faster_on_cpu, or_xla=True)
def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row of [R, V], and their indices.

    The indices are int32; ties go to the smaller one.
    """
    values, indices = ops.top_k(x, k)
    return values, ops.cast(indices, "int32")


def logsumexp(logits: Tensor) -> Tensor:
    """Return the logarithm of the summed exponentials: float32 [..., 1]."""
    return ops.logsumexp(ops.cast(logits, "float32"), axis=-1, keepdims=True)


@_faster_on_cpu
def log_normalizer(logits: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """Return `logsumexp(logits)`, given the results of `top_k`."""
    return logsumexp(logits)


@_faster_on_cpu
def with_control_dependency(x: Tensor, other: Tensor) -> Tensor:
    """Return `x`; `tf_cpu` computes it after `other`."""
    del other
    return x
