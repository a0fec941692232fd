"""Parses the message in one record of an event file: its values, and the offsets of its numbers.

The files of TensorBoard, TensorFlow 2, PyTorch, `EventWriter` and MindSpore differ in how they write a value; this
module reads all of them. `layouts`, which reads many records at once, needs the offsets of the numbers;
`records` needs the numbers only, and no numpy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, MutableMapping, Sequence
from typing import NamedTuple

from pai_sdk._data.run.events.other import BFLOAT16, HALF, STRING, TYPES, OtherEvent, dimensions, tensor_of
from pai_sdk._data.run.events.protobuf import fields
from pai_sdk._data.run.events.writer import EXACT_FIELD, SESSION_STOP

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
# Readers of numbers that are stored as they are, by numpy's names of their types.
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
    """A number in a record."""

    tag: str
    value: float
    at: int  # its offset in the record; -1 where it is not stored as it is
    code: str  # numpy's name of its type in the record
    varies_at: tuple[tuple[int, int], ...] = ()  # other bytes that change with it, as offsets and sizes


class EventMessage(NamedTuple):
    """The content of a record."""

    wall: float  # when, in seconds since 1970
    wall_at: int  # the offset of these eight bytes; -1 where there are none
    step: int  # the step; 0 where there is none
    step_at: int  # the offset of its varint; -1 where there is none
    step_size: int
    version: str  # of the file, in its first record; empty in all other records
    scalars: list[Scalar]
    other_events: list[OtherEvent]  # values that are not numbers

    @property
    def has_layout(self) -> bool:
        """True when records that differ only in their numbers can be read by the offsets of the numbers."""
        is_plain = not self.version and not self.other_events and self.wall_at >= 0
        return is_plain and bool(self.scalars) and all(scalar.at >= 0 for scalar in self.scalars)


def parse_message(record: bytes, plugins: MutableMapping[str, str], *, is_mindspore: bool = False) -> EventMessage:
    """Parses one record, and adds the plugins that its values name to `plugins`, by tag; raises ValueError."""
    wall, wall_at, step, step_at, step_size, version = 0.0, -1, 0, -1, 0, ""
    summaries, graph, end_status = [], None, None
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
            end_status = _end_status(record, start, stop)
    message = EventMessage(wall, wall_at, step, step_at, step_size, version, [], [])
    contents = ("graph", graph), ("end", end_status)
    message.other_events.extend(OtherEvent(kind, "", step, wall, it) for kind, it in contents if it is not None)
    for start, stop in _values_in(record, summaries):
        # Only the first value of a tag has to name its plugin, so later records need it, too.
        _read_value(record, start, stop, message, plugins, is_mindspore)
    return message


def _values_in(record: bytes, summaries: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields where the values of summaries start and stop."""
    for summary_start, summary_stop in summaries:
        for field, wire, _, start, stop in fields(record, summary_start, summary_stop):
            if field == 1 and wire == 2:
                yield start, stop


def _read_value(
    record: bytes,
    at: int,
    end: int,
    message: EventMessage,
    plugins: MutableMapping[str, str],
    is_mindspore: bool,
) -> None:
    """Adds one value of a summary to the message."""
    value_fields = {field: (wire, start, stop) for field, wire, _, start, stop in fields(record, at, end)}
    tag = ""
    if 1 in value_fields:
        tag = record[value_fields[1][1] : value_fields[1][2]].decode(errors="replace")
    simple = next(
        (value_fields[field] for field in _NUMBER_FIELDS if field in value_fields and value_fields[field][0] == 5),
        None,
    )
    if simple is not None:
        message.scalars.append(_simple_scalar(record, tag, simple[1], value_fields.get(EXACT_FIELD)))
        return
    if is_mindspore and 9 in value_fields:
        _, start, stop = value_fields[9]
        event = OtherEvent("histogram", tag, message.step, message.wall, record[start:stop], "buckets")
        message.other_events.append(event)
        return
    plugin, plugin_content = _plugin_in(record, value_fields) if 9 in value_fields else ("", b"")
    if plugin:
        plugins[tag] = plugin
    if 8 in value_fields and value_fields[8][0] == 2:
        _, start, stop = value_fields[8]
        scalar = None if is_mindspore else _scalar_tensor(record, start, stop, tag, plugin, plugins)
        if scalar is not None:
            message.scalars.append(scalar)
            return
        plugin_name = plugins.get(tag, "tensors")
        kind = _KINDS_OF_PLUGINS.get(plugin_name, plugin_name)
        kind = "tensor" if kind == "scalar" else kind
        if kind == "hparams":
            event = OtherEvent(kind, tag, message.step, message.wall, plugin_content)
        else:
            form = "dims" if is_mindspore else ""
            event = OtherEvent(kind, tag, message.step, message.wall, record[start:stop], form)
        message.other_events.append(event)
        return
    old_values = [
        (kind, value_fields[field])
        for field, kind in _OTHER_KINDS.items()
        if value_fields.get(field, (0,))[0] == 2
    ]
    for kind, (_, start, stop) in old_values:
        form = {"histogram": "limits", "image": "encoded"}.get(kind, "")
        message.other_events.append(OtherEvent(kind, tag, message.step, message.wall, record[start:stop], form))
    if not old_values and plugin and not is_mindspore:
        # Metadata without a value, as torch 2.13.0 and tensorboardX 2.6.5 write hyperparameters.
        kind = plugin if plugin == "hparams" else "metadata"
        message.other_events.append(OtherEvent(kind, tag, message.step, message.wall, plugin_content))


def _simple_scalar(record: bytes, tag: str, number_at: int, exact: tuple[int, int, int] | None) -> Scalar:
    """Returns the number of a value: the double beside it, if there is one."""
    if exact is None or exact[0] != 1:
        return Scalar(tag, _FLOAT32.unpack_from(record, number_at)[0], number_at, "<f4")
    return Scalar(tag, _FLOAT64.unpack_from(record, exact[1])[0], exact[1], "<f8", ((number_at, 4),))


def _end_status(record: bytes, at: int, end: int) -> bytes | None:
    """Returns the message of a SessionLog with the status STOP; None for any other status."""
    is_end, text = False, b""
    for field, wire, number, start, stop in fields(record, at, end):
        if field == 1 and wire == 0:
            is_end = number == SESSION_STOP
        elif field == 3 and wire == 2:
            text = record[start:stop]
    return text if is_end else None


def _plugin_in(record: bytes, value_fields: dict[int, tuple[int, int, int]]) -> tuple[str, bytes]:
    """Returns the name of the plugin in the metadata of a value, and the content of the plugin there."""
    name, content = "", b""
    for field, wire, _, start, stop in fields(record, value_fields[9][1], value_fields[9][2]):
        if field == 1 and wire == 2:
            for inner, inner_wire, _, inner_start, inner_end in fields(record, start, stop):
                if inner == 1 and inner_wire == 2:
                    name = record[inner_start:inner_end].decode(errors="replace")
                elif inner == 2 and inner_wire == 2:
                    content = record[inner_start:inner_end]
    return name, content


def _scalar_tensor(
    record: bytes, at: int, end: int, tag: str, plugin: str, plugins: MutableMapping[str, str]
) -> Scalar | None:
    """Returns a tensor that is one number: of the plugin for scalars, or of no plugin and without dimensions."""
    kind, shape, contents = 0, list[int](), []
    for field, wire, number, start, stop in fields(record, at, end):
        if field == 1 and wire == 0:
            kind = number
        elif field == 2 and wire == 2:
            shape += dimensions(record, start, stop)
        elif field in (4, 5, 6):
            contents.append((wire, start, stop))
    plugin_name = plugin or plugins.get(tag, "")
    if (
        math.prod(shape) != 1
        or kind == STRING
        or not (plugin_name == "scalars" or (not plugin_name and not shape))
    ):
        return None
    code = "" if kind == BFLOAT16 else TYPES.get(kind, "")
    if code in STRUCTS and len(contents) == 1 and contents[0][2] - contents[0][1] == STRUCTS[code].size:
        number_at = contents[0][1]
        # A record that does not name its plugin is no layout: equal bytes can belong to a tag of another plugin.
        is_plain = bool(plugin) or not shape
        return Scalar(
            tag, float(STRUCTS[code].unpack_from(record, number_at)[0]), number_at if is_plain else -1, code
        )
    values = tensor_of(record[at:end]).reshape(-1)
    if values.dtype.kind not in "fiub" or not len(values):
        return None
    return Scalar(tag, float(values[0]), -1, "<f4" if kind in (BFLOAT16, HALF) else "<f8")
