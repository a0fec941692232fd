"""Values in event files that are not numbers: texts, histograms, tensors, hyperparameters, images.

Arrays need numpy, which is imported at the first use: the reader of a plain install uses this module too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pai_sdk._data.run.events.protobuf import fields, varints

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pai_sdk._data.run.events.series import Floats

_LARGEST_TENSOR = 1 << 22
STRING, BFLOAT16, HALF = 7, 14, 19
# Numeric types of TensorFlow's tensors, without strings, variants and quantised numbers.
TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 8: "<c8", 9: "<i8", 10: "?", 14: "<u2", 17: "<u2",
    18: "<c16", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
_MINDSPORE_TYPES = {
    1: "?", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "u1", 7: "<u2", 8: "<u4", 9: "<u8",
    10: "<f2", 11: "<f4", 12: "<f8",
}  # fmt: skip
# Fields with numbers of fixed width: of TensorFlow, and of MindSpore.
_FIXED = {5: "<f4", 6: "<f8", 9: "<c8", 12: "<c16"}
_MINDSPORE_FIXED = {3: "<f4", 6: "<f8"}
_VARINTS = (7, 10, 11, 13, 16, 17)
_MINDSPORE_VARINTS = (4, 5, 7)


@dataclass(frozen=True)
class OtherEvent:
    """A value that is not a number."""

    # `text`, `histogram`, `tensor`, `hparams`, `image`, `audio`, `graph`, `end` for the end of the run, or the
    # name of a plugin.
    kind: str
    tag: str
    step: int  # when, in the count of the training
    wall: float  # when, in seconds since 1970
    content: bytes  # its message as it is in the file
    form: str = ""  # which of several encodings `content` has: `dims`, `limits`, `buckets`, `encoded` or empty

    def text(self) -> str:
        """Returns the text, of several strings one a line; raises ValueError for other values."""
        tensor = self.tensor()
        if tensor.dtype != object:
            raise ValueError(f"{self.tag!r} is not text but a tensor of {tensor.dtype}")
        return "\n".join(part.decode(errors="replace") for part in tensor.reshape(-1))

    def tensor(self) -> npt.NDArray[Any]:
        """Returns the tensor, with its shape; of text an array of bytes. Raises ValueError for other values."""
        return tensor_of(self.content, is_mindspore=self.form == "dims")

    def histogram(self) -> Floats:
        """Returns left edge, right edge and count of each bucket, as an array of buckets × 3."""
        import numpy as np

        if self.form == "limits":
            return _histogram_by_limits(self.content)
        if self.form == "buckets":
            return _histogram_by_buckets(self.content)
        tensor = self.tensor()
        if tensor.ndim != 2 or tensor.shape[1] != 3:
            raise ValueError(f"{self.tag!r} is not a histogram but a tensor of shape {tensor.shape}")
        return tensor.astype(np.float64)

    def images(self) -> list[bytes]:
        """Returns the images, each as the content of a file, such as PNG."""
        if self.form == "encoded":
            image_fields = fields(self.content, 0, len(self.content))
            return [
                self.content[start:stop] for field, wire, _, start, stop in image_fields if (field, wire) == (4, 2)
            ]
        values = self.tensor()
        if values.dtype != object:
            raise ValueError(f"{self.tag!r} is not images but a tensor of {values.dtype}")
        return [bytes(value) for value in values.reshape(-1)[2:]]  # width and height come first

    def hparams(self) -> dict[str, bool | float | str | None]:
        """Returns the hyperparameters of a session's start, None for null; empty for any other message."""
        values: dict[str, bool | float | str | None] = {}
        for field, _, _, at, end in fields(self.content, 0, len(self.content)):
            if field != 3:  # session_start_info
                continue
            for inner, _, _, start, stop in fields(self.content, at, end):
                if inner == 1:
                    values |= _hparam(self.content, start, stop)
        return values


def _hparam(message: bytes, at: int, end: int) -> dict[str, bool | float | str | None]:
    """Returns a name with its value; empty if the message has no valid value."""
    name, values = "", list[bool | float | str | None]()
    for field, _, _, start, stop in fields(message, at, end):
        if field == 1:
            name = message[start:stop].decode(errors="replace")
        elif field == 2:
            values = _struct_values(message, start, stop)
    return {name: values[-1]} if values else {}


def _struct_values(message: bytes, at: int, end: int) -> list[bool | float | str | None]:
    """Returns the values of a `google.protobuf.Value`: null, number, string or bool; the last one is valid."""
    values: list[bool | float | str | None] = []
    for field, wire, number, start, stop in fields(message, at, end):
        if field == 1 and wire == 0:
            values.append(None)
        elif field == 2 and wire == 1:
            values.append(struct.unpack_from("<d", message, start)[0])
        elif field == 3 and wire == 2:
            values.append(message[start:stop].decode(errors="replace"))
        elif field == 4 and wire == 0:
            values.append(bool(number))
    return values


def tensor_of(message: bytes, *, is_mindspore: bool = False) -> npt.NDArray[Any]:
    """Returns the array of a tensor message, of text an array of bytes; raises ValueError for other messages."""
    import numpy as np

    kind, shape, content, strings, numbers = _tensor_fields(message, is_mindspore=is_mindspore)
    if not is_mindspore and kind == STRING:
        return _shaped(np.array([*strings, None], object)[:-1], shape, b"")
    code = (_MINDSPORE_TYPES if is_mindspore else TYPES).get(kind)
    if code is None:
        raise ValueError(f"a tensor of type {kind} is not read")
    if content:
        values = _fixed(content, code)
    else:
        values = _as_type(np.concatenate(numbers) if numbers else np.empty(0, code), np.dtype(code), kind)
    if not is_mindspore and kind == BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return _shaped(values, shape, 0)


class _TensorFields(NamedTuple):
    kind: int  # its type
    shape: list[int]
    content: bytes | None  # all numbers in the layout of memory
    strings: list[bytes]
    numbers: list[npt.NDArray[Any]]  # where there is no content


def _tensor_fields(message: bytes, *, is_mindspore: bool) -> _TensorFields:
    import numpy as np

    kind, content = 0, None
    shape: list[int] = []
    strings: list[bytes] = []
    numbers: list[npt.NDArray[Any]] = []
    fixed, packed = (_MINDSPORE_FIXED, _MINDSPORE_VARINTS) if is_mindspore else (_FIXED, _VARINTS)
    for field, wire, number, start, stop in fields(message, 0, len(message)):
        if field == (2 if is_mindspore else 1) and wire == 0:
            kind = number
        elif is_mindspore and field == 1:
            shape += [number] if wire == 0 else varints(message, start, stop)
        elif not is_mindspore and field == 2:
            shape = list(dimensions(message, start, stop))
        elif field == (8 if is_mindspore else 4) and wire == 2:
            content = message[start:stop]
        elif field == 8 and wire == 2:
            strings.append(message[start:stop])
        elif field in fixed:
            numbers.append(_fixed(message[start:stop], fixed[field]))
        elif field in packed:
            numbers.append(np.array([number] if wire == 0 else varints(message, start, stop), np.uint64))
    return _TensorFields(kind, shape, content, strings, numbers)


def _fixed(content: bytes, code: str) -> npt.NDArray[Any]:
    import numpy as np

    if len(content) % np.dtype(code).itemsize:
        raise ValueError(f"{len(content)} bytes cannot be read as numbers of type {code}")
    return np.frombuffer(content, code)


def _as_type(values: npt.NDArray[Any], code: np.dtype[Any], kind: int) -> npt.NDArray[Any]:
    """Converts numbers to the type of the tensor; halves are stored as the varint of their bits."""
    import numpy as np

    if values.dtype != np.uint64:
        return values.astype(code)
    if kind == HALF and code == np.float16:
        return values.astype(np.uint16).view(np.float16)
    return values.astype(np.int64).astype(code) if code.kind == "i" else values.astype(code)


def dimensions(message: bytes, at: int, end: int) -> Iterator[int]:
    """Yields the sizes in the shape of a tensor."""
    for field, wire, _, start, stop in fields(message, at, end):
        if field == 2 and wire == 2:
            sizes = [number for name, _, number, _, _ in fields(message, start, stop) if name == 1]
            yield sizes[-1] if sizes else 0


def _shaped(values: npt.NDArray[Any], shape: list[int], missing: Any) -> npt.NDArray[Any]:
    """Returns the values in their shape."""
    # TensorFlow can store only the first of equal values at the end.
    import numpy as np

    count = math.prod(shape)
    if count > max(len(values), _LARGEST_TENSOR) or len(values) > count:
        raise ValueError(f"{len(values)} values do not fill a tensor of shape {tuple(shape)}")
    if len(values) < count:
        padding = np.full(count - len(values), values[-1] if len(values) else missing, values.dtype)
        values = np.concatenate([values, padding])
    return values.reshape(shape)


def _histogram_by_limits(message: bytes) -> Floats:
    """Returns the histogram that TensorFlow 1 and PyTorch write: buckets by their upper limits."""
    import numpy as np

    min_value = max_value = 0.0
    limits: list[Floats] = []
    counts: list[Floats] = []
    for field, wire, _, start, stop in fields(message, 0, len(message)):
        if wire not in (1, 2):
            continue
        numbers = _fixed(message[start:stop], "<f8")
        if field == 1 and wire == 1:
            min_value = float(numbers[0])
        elif field == 2 and wire == 1:
            max_value = float(numbers[0])
        elif field in (6, 7):
            (limits if field == 6 else counts).append(numbers)
    right, count = (np.concatenate([np.empty(0), *parts]) for parts in (limits, counts))
    if len(right) != len(count):
        raise ValueError(f"a histogram with {len(right)} limits and {len(count)} counts")
    filled = np.flatnonzero(count > 0)
    if not len(filled):
        return np.empty((0, 3))
    # The outermost limits are ±float64 max, so the minimum and maximum replace them.
    first, last = filled[0], filled[-1]
    edges = np.concatenate([[min_value], right[first:last], [max_value]])
    return np.stack([edges[:-1], edges[1:], count[first : last + 1]], axis=1)


def _histogram_by_buckets(message: bytes) -> Floats:
    """Returns the histogram that MindSpore writes: a message for each bucket."""
    import numpy as np

    rows = []
    for field, wire, _, at, end in fields(message, 0, len(message)):
        if field == 1 and wire == 2:
            left_edge = width = 0.0
            count = 0
            for inner, inner_wire, number, start, _ in fields(message, at, end):
                if inner == 1 and inner_wire == 1:
                    left_edge = struct.unpack_from("<d", message, start)[0]
                elif inner == 2 and inner_wire == 1:
                    width = struct.unpack_from("<d", message, start)[0]
                elif inner == 3:
                    count = number
            rows.append((left_edge, left_edge + width, float(count)))
    return np.array(rows, np.float64).reshape(-1, 3)
