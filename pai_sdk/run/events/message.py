"""The message in one record of an event file: what it says, and where its numbers are.

The files of TensorBoard, TensorFlow 2, PyTorch, `EventWriter` and MindSpore differ in how they write a value; here
all of them are read. `layouts`, which reads many records at once, needs the places of the numbers;
`records` needs the numbers only, and no numpy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import MutableMapping
from typing import NamedTuple

from pai_sdk.run.events.other import BFLOAT16, HALF, STRING, TYPES, OtherEvent, dimensions, tensor_of
from pai_sdk.run.events.protobuf import fields
from pai_sdk.run.events.writer import EXACT_FIELD, SESSION_STOP

__all__ = ["STRUCTS", "EventMessage", "Scalar", "parse_message"]

_NUMBER_FIELDS = (2, 3)  # of a value: TensorBoard's and MindSpore's
_OTHER_KINDS = {4: "image", 5: "histogram", 6: "audio"}  # fields of a value, before there were plugins
_KINDS_OF_PLUGINS = {
    "audio": "audio",
    "hparams": "hparams",
    "histograms": "histogram",
    "images": "image",
    "scalars": "scalar",
    "tensors": "tensor",
    "text": "text",
}
# How the numbers are read that can be taken out of a record as they are, by their types as numpy names them.
STRUCTS = {
    "<f2": struct.Struct("<e"),
    "<f4": struct.Struct("<f"),
    "<f8": struct.Struct("<d"),
    "i1": struct.Struct("b"),
    "<i2": struct.Struct("<h"),
    "<i4": struct.Struct("<i"),
    "<i8": struct.Struct("<q"),
    "u1": struct.Struct("B"),
    "<u2": struct.Struct("<H"),
    "<u4": struct.Struct("<I"),
    "<u8": struct.Struct("<Q"),
}
_FLOAT32, _FLOAT64 = STRUCTS["<f4"], STRUCTS["<f8"]


class Scalar(NamedTuple):
    """A number in a record.

    Attributes:
        tag: its name.
        value: the number.
        at: where it is in the record; -1 where it cannot be taken out as it is.
        code: its type there, as numpy names it; also of a number that is not taken out.
        varies_at: other bytes that change with it, as places and sizes.
    """

    tag: str
    value: float
    at: int
    code: str
    varies_at: tuple[tuple[int, int], ...] = ()


class EventMessage(NamedTuple):
    """The content of a record.

    Attributes:
        wall: when, in seconds since 1970.
        wall_at: where these eight bytes are; -1 where there are none.
        step: the step; 0 where it says none.
        step_at: where its varint begins; -1 where there is none.
        step_size: the bytes of the varint.
        version: of the file, in its first record; empty in others.
        scalars: the numbers.
        others: everything that is no number.
    """

    wall: float
    wall_at: int
    step: int
    step_at: int
    step_size: int
    version: str
    scalars: list[Scalar]
    others: list[OtherEvent]

    @property
    def has_layout(self) -> bool:
        """True when records that differ only in their numbers can be read by the offsets of the numbers."""
        is_plain = not self.version and not self.others and self.wall_at >= 0
        return is_plain and bool(self.scalars) and all(scalar.at >= 0 for scalar in self.scalars)


def parse_message(record: bytes, plugins: MutableMapping[str, str], *, is_mindspore: bool = False) -> EventMessage:
    """Read one record.

    Args:
        record: the message.
        plugins: tag to plugin of TensorBoard, from the first value of each tag, which alone may name it. Tags of
            this record are added.
        is_mindspore: whether the file is MindSpore's, which uses some fields in another way.

    Raises:
        ValueError: the record is no message.
    """
    wall, wall_at, step, step_at, step_size, version = 0.0, -1, 0, -1, 0, ""
    summaries, graph, ended = [], None, None
    for field, wire, number, start, stop in fields(record, 0, len(record)):
        if field == 1 and wire == 1:
            wall, wall_at = _FLOAT64.unpack_from(record, start)[0], start
        elif field == 2 and wire == 0:
            step, step_at, step_size = number - 2**64 if number >= 2**63 else number, start, stop - start
        elif field == 3 and wire == 2:
            version = record[start:stop].decode(errors="replace")
        elif field == 4 and wire == 2:
            graph = record[start:stop]
        elif field == 5 and wire == 2:
            summaries.append((start, stop))
        elif field == 7 and wire == 2 and not is_mindspore:
            ended = _end_status(record, start, stop)
    message = EventMessage(wall, wall_at, step, step_at, step_size, version, [], [])
    if graph is not None:
        message.others.append(OtherEvent("graph", "", step, wall, graph))
    if ended is not None:
        message.others.append(OtherEvent("end", "", step, wall, ended))
    for begin, end in summaries:
        for field, wire, _, start, stop in fields(record, begin, end):
            if field == 1 and wire == 2:
                _read_value(record, start, stop, message, plugins, is_mindspore)
    return message


def _read_value(
    record: bytes,
    begin: int,
    end: int,
    message: EventMessage,
    plugins: MutableMapping[str, str],
    is_mindspore: bool,
) -> None:
    """Add one value of a summary to the message."""
    found = {field: (wire, start, stop) for field, wire, _, start, stop in fields(record, begin, end)}
    tag = ""
    if 1 in found:
        tag = record[found[1][1] : found[1][2]].decode(errors="replace")
    simple = next((found[field] for field in _NUMBER_FIELDS if field in found and found[field][0] == 5), None)
    if simple is not None:
        at = simple[1]
        exact = found.get(EXACT_FIELD)
        if exact is not None and exact[0] == 1:
            value = _FLOAT64.unpack_from(record, exact[1])[0]
            message.scalars.append(Scalar(tag, value, exact[1], "<f8", ((at, 4),)))
        else:
            message.scalars.append(Scalar(tag, _FLOAT32.unpack_from(record, at)[0], at, "<f4"))
        return
    if is_mindspore and 9 in found:
        _, start, stop = found[9]
        event = OtherEvent("histogram", tag, message.step, message.wall, record[start:stop], "buckets")
        message.others.append(event)
        return
    plugin, plugin_content = _plugin_in(record, found) if 9 in found else ("", b"")
    if plugin:
        plugins[tag] = plugin
    if 8 in found and found[8][0] == 2:
        _, start, stop = found[8]
        scalar = None if is_mindspore else _scalar_tensor(record, start, stop, tag, plugin, plugins)
        if scalar is not None:
            message.scalars.append(scalar)
            return
        named = plugins.get(tag, "tensors")
        kind = _KINDS_OF_PLUGINS.get(named, named)
        kind = "tensor" if kind == "scalar" else kind
        if kind == "hparams":
            event = OtherEvent(kind, tag, message.step, message.wall, plugin_content)
        else:
            form = "dims" if is_mindspore else ""
            event = OtherEvent(kind, tag, message.step, message.wall, record[start:stop], form)
        message.others.append(event)
        return
    others = [(kind, found[field]) for field, kind in _OTHER_KINDS.items() if found.get(field, (0,))[0] == 2]
    for kind, (_, start, stop) in others:
        form = {"histogram": "limits", "image": "encoded"}.get(kind, "")
        message.others.append(OtherEvent(kind, tag, message.step, message.wall, record[start:stop], form))
    if not others and plugin and not is_mindspore:
        # Metadata without a value, as torch 2.13.0 and tensorboardX 2.6.5 write hyperparameters.
        kind = plugin if plugin == "hparams" else "metadata"
        message.others.append(OtherEvent(kind, tag, message.step, message.wall, plugin_content))


def _end_status(record: bytes, begin: int, end: int) -> bytes | None:
    """The message of a SessionLog that says that the session has ended; None for any other."""
    is_end, text = False, b""
    for field, wire, number, start, stop in fields(record, begin, end):
        if field == 1 and wire == 0:
            is_end = number == SESSION_STOP
        elif field == 3 and wire == 2:
            text = record[start:stop]
    return text if is_end else None


def _plugin_in(record: bytes, found: dict[int, tuple[int, int, int]]) -> tuple[str, bytes]:
    """The name of the plugin in the metadata of a value, and what it has stored there."""
    name, content = "", b""
    for field, wire, _, start, stop in fields(record, found[9][1], found[9][2]):
        if field == 1 and wire == 2:
            for inner, inner_wire, _, begin, end in fields(record, start, stop):
                if inner == 1 and inner_wire == 2:
                    name = record[begin:end].decode(errors="replace")
                elif inner == 2 and inner_wire == 2:
                    content = record[begin:end]
    return name, content


def _scalar_tensor(
    record: bytes, begin: int, end: int, tag: str, plugin: str, plugins: MutableMapping[str, str]
) -> Scalar | None:
    """A tensor that is one number: of the plugin for scalars, or of no plugin and without dimensions."""
    kind, shape, places = 0, list[int](), []
    for field, wire, number, start, stop in fields(record, begin, end):
        if field == 1 and wire == 0:
            kind = number
        elif field == 2 and wire == 2:
            shape += dimensions(record, start, stop)
        elif field in (4, 5, 6):
            places.append((wire, start, stop))
    named = plugin or plugins.get(tag, "")
    if math.prod(shape) != 1 or kind == STRING or not (named == "scalars" or (not named and not shape)):
        return None
    code = "" if kind == BFLOAT16 else TYPES.get(kind, "")
    if code in STRUCTS and len(places) == 1 and places[0][2] - places[0][1] == STRUCTS[code].size:
        at = places[0][1]
        # Without the name of the plugin in the record, another record with the same bytes may be something else.
        is_plain = bool(plugin) or not shape
        return Scalar(tag, float(STRUCTS[code].unpack_from(record, at)[0]), at if is_plain else -1, code)
    values = tensor_of(record[begin:end]).reshape(-1)
    if values.dtype.kind not in "fiub" or not len(values):
        return None
    return Scalar(tag, float(values[0]), -1, "<f4" if kind in (BFLOAT16, HALF) else "<f8")
