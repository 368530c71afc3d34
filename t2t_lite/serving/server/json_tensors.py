"""TensorFlow Serving's JSON to tensors and back.

https://www.tensorflow.org/tfx/serving/api_rest says what it looks like.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.refusal import invalid
from t2t_lite.serving.server.signature import TensorSpec


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
      Refusal: it is none.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(request, dict):
        raise invalid(f"JSON Value: {_shown(request)} Is not object")
    if not isinstance(request.get("signature_name", ""), str):
        raise invalid(
            "JSON Value: not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    return request


def tensors_of(
    request: Mapping[str, Any], specs: Mapping[str, TensorSpec]
) -> Tensors:
    """The inputs of a request, by name.

    {"instances": ["a", "b"]} and {"inputs": ["a", "b"]} are the tensor
    ["a", "b"] of the one input.

    Args:
      request: see `parse`.
      specs: the inputs of the signature by name.

    Raises:
      Refusal: they are not what the signature takes.
    """
    if "instances" in request and "inputs" in request:
        raise invalid(
            "JSON Value: Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist"
        )
    if "instances" in request:
        return _rows(request["instances"], specs)
    if "inputs" in request:
        return _columns(request["inputs"], specs)
    raise invalid("Missing 'inputs' or 'instances' key")


def json_of(outputs: Tensors, in_rows: bool) -> bytes:
    """The answer to a request.

    Args:
      outputs: by name.
      in_rows: whether the request had instances, and not inputs.

    Raises:
      Refusal: the outputs have no rows in common.
    """
    columns = {name: _plain(name, out) for name, out in outputs.items()}
    if not in_rows:
        return _dump({"outputs": _alone_or_all(columns)})
    sizes = {out.shape[:1] for out in outputs.values()}
    if len(sizes) != 1 or sizes == {()}:
        shapes = {name: list(out.shape) for name, out in outputs.items()}
        raise invalid(
            "Outputs have inconsistent batch size, so rows cannot hold them: "
            f"{shapes}. Ask with 'inputs'."
        )
    rows = [
        _alone_or_all(dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]
    return _dump({"predictions": rows})


def _alone_or_all(values: dict[str, Any]) -> Any:
    """The value of the only name, or all by their names."""
    return next(iter(values.values())) if len(values) == 1 else values


def _dump(answer: Any) -> bytes:
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")


def _rows(instances: Any, specs: Mapping[str, TensorSpec]) -> Tensors:
    if not isinstance(instances, list):
        raise invalid("JSON Value: Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid("JSON Value: No values in 'instances' array")
    if not _is_object(instances[0]):
        if len(specs) > 1:
            raise invalid(
                "instances is a plain list, but expecting list of objects as "
                f"multiple input tensors required: {', '.join(specs)}"
            )
        for number, item in enumerate(instances):
            if _is_object(item):
                raise invalid(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
        (name,) = specs
        return {name: _tensor(name, instances, specs[name])}
    for number, item in enumerate(instances):
        if not _is_object(item):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
            )
        if item.keys() != specs.keys():
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: {_shown(item)} keys must be equal to: "
                f"{','.join(sorted(specs))}"
            )
    return {
        name: _tensor(name, [item[name] for item in instances], spec)
        for name, spec in specs.items()
    }


def _columns(inputs: Any, specs: Mapping[str, TensorSpec]) -> Tensors:
    if not _is_object(inputs):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as "
                f"multiple input tensors required: {', '.join(specs)}"
            )
        (name,) = specs
        return {name: _tensor(name, inputs, specs[name])}
    for name in specs:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {
        name: _tensor(name, inputs[name], spec) for name, spec in specs.items()
    }


def _is_object(value: Any) -> bool:
    """Whether it is an object that stands for no bytes."""
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"b64"}
        and isinstance(value["b64"], str)
    )


def _tensor(name: str, value: Any, spec: TensorSpec) -> np.ndarray:
    """A tensor of nested lists.

    Raises:
      Refusal: its lists differ in size, or a value is of another type.
    """
    shape, level = [], value
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    spec.check_shape(name, tuple(shape))
    flat = [value]
    for size in shape:
        deeper: list[Any] = []
        for item in flat:
            if not isinstance(item, list) or len(item) != size:
                got = len(item) if isinstance(item, list) else _shown(item)
                raise invalid(
                    f"Input {name}: Encountered list at unexpected size: {got} "
                    f"expected size: {size}"
                )
            deeper += item
        flat = deeper
    convert = _CONVERT.get(spec.dtype.kind)
    if convert is None:
        raise invalid(f"Input {name}: {spec.dtype} has no form in JSON.")
    try:
        values = [convert(item, spec.dtype) for item in flat]
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(
            f"Input {name}: JSON Value is not of expected type: "
            f"{_type_name(spec.dtype)} {error}"
        ) from error
    tensor = np.empty(len(values), spec.dtype)
    tensor[:] = values
    return tensor.reshape(shape)


def _to_bytes(value: Any, dtype: np.dtype) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if not _is_base64(value):
        raise TypeError(f"(got {_shown(value)})")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error as error:
        raise ValueError("(unable to base64 decode)") from error


def _to_bool(value: Any, dtype: np.dtype) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"(got {_shown(value)})")
    return value


def _to_int(value: Any, dtype: np.dtype) -> int:
    limits = np.iinfo(dtype)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not limits.min <= value <= limits.max:
        raise TypeError(f"(got {_shown(value)})")
    return value


def _to_float(value: Any, dtype: np.dtype) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"(got {_shown(value)})")
    number = float(value)
    if math.isfinite(number) and abs(number) > float(np.finfo(dtype).max):
        raise ValueError(f"(got {value}: it cannot be held)")
    return number


_CONVERT = {"O": _to_bytes, "b": _to_bool, "i": _to_int, "u": _to_int}
_CONVERT["f"] = _to_float


def _type_name(dtype: np.dtype) -> str:
    return {"object": "string", "float32": "float"}.get(dtype.name, dtype.name)


def _shown(value: Any) -> str:
    """The beginning of a value, for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _plain(name: str, tensor: np.ndarray) -> Any:
    """A tensor as nested lists of what JSON knows."""
    if tensor.dtype.kind == "O":
        convert = _base64 if name.endswith("_bytes") else _text
        return _converted(convert, tensor.tolist())
    if tensor.dtype.kind == "f" and tensor.dtype.itemsize < 8:
        # The shortest number that is this one in its own precision.
        return _converted(float, tensor.astype(str).tolist())
    return tensor.tolist()


def _converted(convert: Callable[[Any], Any], values: Any) -> Any:
    """What is in nested lists, converted."""
    if isinstance(values, list):
        return [_converted(convert, value) for value in values]
    return convert(values)


def _base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode("ascii")}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
