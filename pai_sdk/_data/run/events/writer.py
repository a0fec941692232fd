"""Writes event files that TensorBoard reads, record by record.

A file is a sequence of TFRecords: the length of the record, a checksum of the length, the record, a checksum of
the record. Each record is an `Event` protobuf message with a time, a step and a summary. This module is shipped
with jobs: standard library only, syntax of Python 3.8.

TensorBoard stores a scalar as float32. `EventWriter` writes it that way, and once more as float64, in a field of
the message that TensorBoard does not know and skips. Readers prefer the exact value (`read_scalars`).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import operator
import os
import re
import socket
import struct
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

logger = logging.getLogger(__name__)


LOG_METRICS = "log-metrics"
"""The folder of the files with the points that metric definitions match in logs."""

EVENTS_PART = re.compile(rf"rank-(?P<rank>[0-9]{{1,9}})|{LOG_METRICS}")
"""The folders in `tensorboard` that belong to the run itself; any other folder there is a run of its own."""

_FLUSH_S = 0.3
_MIN_FLUSH_S = 0.01  # the reports of one step are written together
_MAX_PENDING_BYTES = 32 << 20
# The time between writes in calls, as a multiple of their duration; single slow ones may exceed it by the credit.
_CALL_PAUSE_FACTOR = 100
_MAX_CREDIT_S = 5.0
_MAX_TEMPLATES = 256
SESSION_STOP = 2  # a status of TensorFlow's SessionLog
EXACT_FIELD = 100  # of Summary.Value; the fields that TensorBoard uses end at 9
_FLOAT_TYPE, _DOUBLE_TYPE, _STRING_TYPE = 1, 2, 7  # of the enum DataType

_NOT_IN_NAMES = re.compile("[\0\ud800-\udfff]")  # databases reject NUL, and UTF-8 has no surrogates

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(?P<time>[0-9]+)\.(?P<source>.+)\.[0-9]+\.[0-9]+")

_UINT32 = struct.Struct("<I")
_FLOAT64 = struct.Struct("<d")
_FLOAT32 = struct.Struct("<f")


# ---- checksums ----------------------------------------------------------------------------------------------


def _pure_crc32c() -> Callable[[bytes], int]:
    """Returns CRC32C in Python: two bytes a step, which takes half the time of one byte a step."""
    by_byte = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        by_byte.append(byte)
    by_pair = [
        by_byte[(by_byte[pair & 255] ^ (pair >> 8)) & 255] ^ (by_byte[pair & 255] >> 8) for pair in range(65536)
    ]

    def checksum(data: bytes) -> int:
        crc = 0xFFFFFFFF
        pairs = len(data) // 2
        for pair in struct.unpack_from(f"<{pairs}H", data):
            crc = by_pair[(crc ^ pair) & 0xFFFF] ^ (crc >> 16)
        if len(data) % 2:
            crc = by_byte[(crc ^ data[-1]) & 255] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF

    return checksum


def _fastest_crc32c() -> Callable[[bytes], int]:
    try:
        import google_crc32c

        if google_crc32c.implementation == "c":
            from google_crc32c import value

            return value  # type: ignore[no-any-return]
    except Exception as error:  # a broken installation in the image must not stop the job
        logger.info("google-crc32c cannot be used, so checksums are computed in Python: %s", error)
    return _pure_crc32c()


_checksum: Callable[[bytes], int] | None = None


def crc32c(data: bytes) -> int:
    """Returns the CRC32C of bytes: by google-crc32c where it is installed, in Python otherwise."""
    # Selected at the first use, so that importing this module costs nothing. Two threads that select at once both
    # store a correct function, so there is no lock.
    global _checksum
    if _checksum is None:
        _checksum = _fastest_crc32c()
    return _checksum(data)


def masked(crc: int) -> int:
    """Returns a checksum in the masked form of a TFRecord."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _frame(length: int) -> bytes:
    size = struct.pack("<Q", length)
    return size + _UINT32.pack(masked(crc32c(size)))


def framed(payload: bytes) -> bytes:
    """Returns a record: the message between its length and its checksum."""
    return _frame(len(payload)) + payload + _UINT32.pack(masked(crc32c(payload)))


# ---- protobuf -----------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # a negative int64 is written as its two's complement
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _bytes_field(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return _key(field, 2) + _varint(len(content)) + content


def _int_field(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def double_field(field: int, number: float) -> bytes:
    """Returns a field with a float64."""
    return _key(field, 1) + _FLOAT64.pack(number)


def _event(wall_time: float, step: int, content: bytes) -> bytes:
    return double_field(1, wall_time) + _int_field(2, step) + content


def _summary(*values: bytes) -> bytes:
    return _bytes_field(5, b"".join(_bytes_field(1, value) for value in values))


def scalars_record(wall_time: float, step: int, values: Iterable[tuple[str, float]]) -> bytes:
    """Returns one record with numbers, as `EventWriter.scalars` writes it; a name can occur more than once."""
    parts = []
    for name, value in values:
        numbers = double_field(EXACT_FIELD, value) + _key(2, 5) + _FLOAT32.pack(_as_float32(value))
        parts.append(_bytes_field(1, name.encode(errors="replace")) + numbers)
    return framed(_event(wall_time, step, _summary(*parts)))


def _metadata(plugin: str, content: bytes = b"") -> bytes:
    """Returns the metadata that selects the plugin of TensorBoard; the data class 2 is that of tensors."""
    return _bytes_field(9, _bytes_field(1, _bytes_field(1, plugin) + _bytes_field(2, content)) + _int_field(4, 2))


def _tensor(kind: int, shape: Sequence[int], content: bytes) -> bytes:
    dimensions = b"".join(_bytes_field(2, _int_field(1, size)) for size in shape)
    return _bytes_field(8, _int_field(1, kind) + _bytes_field(2, dimensions) + content)


# ---- writing ------------------------------------------------------------------------------------------------


def _hparams_messages(
    values: Mapping[str, bool | float | str | None], metrics: Iterable[str]
) -> tuple[bytes, bytes]:
    """Returns the messages of TensorBoard's plugin: the experiment, and the start of its session."""
    metric_infos = b"".join(_bytes_field(5, _bytes_field(1, _bytes_field(2, tag))) for tag in metrics)
    infos = b"".join(
        _bytes_field(4, _bytes_field(1, name) + _int_field(4, _hparam_type(v))) for name, v in values.items()
    )
    pairs = b"".join(
        _bytes_field(1, _bytes_field(1, name) + _bytes_field(2, _protobuf_value(value)))
        for name, value in values.items()
    )
    return _bytes_field(2, infos + metric_infos), _bytes_field(3, pairs + double_field(5, time.time()))


class _Template:
    """Builds records of scalars with the same tags and a step of the same size."""

    def __init__(self, tags: Sequence[str], step_bytes: int) -> None:
        exact, simple = _key(EXACT_FIELD, 1), _key(2, 5)
        prefixes = []
        for tag in tags:
            _check_tag(tag)
            name = _bytes_field(1, tag)
            size = len(name) + len(exact) + 8 + len(simple) + 4
            prefixes.append(_key(1, 2) + _varint(size) + name + exact)
        summary_size = sum(len(prefix) + 8 + len(simple) + 4 for prefix in prefixes)
        before = _key(5, 2) + _varint(summary_size)
        # The bytes between the numbers are prepared once, so that a record is one call of `struct.pack`.
        # Each number follows bytes that are the same in all records.
        layout = f"<1sd1s{step_bytes}s{len(before)}s" + "".join(f"{len(prefix)}sd1sf" for prefix in prefixes)
        self._pack = struct.Struct(layout).pack
        self._parts: list[Any] = [_key(1, 1), 0.0, _key(2, 0), b"", before]
        for prefix in prefixes:
            self._parts += [prefix, 0.0, simple, 0.0]
        self._frame = _frame(struct.calcsize(layout))

    def record(self, wall_time: float, step: bytes, exact: Iterable[float], rounded: Iterable[float]) -> bytes:
        """Returns one record; the caller holds the writer's lock."""
        parts = self._parts
        parts[1] = wall_time
        parts[3] = step
        parts[6::4] = exact
        parts[8::4] = rounded
        payload = self._pack(*parts)
        crc = (_checksum or crc32c)(payload)
        return self._frame + payload + _UINT32.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def checked_record(
        self, wall_time: float, step: bytes, values: Mapping[str, Any], numbers: Sequence[float]
    ) -> bytes:
        """Returns the record of values, given as numbers where they are; raises the error of a value."""
        try:
            return self.record(wall_time, step, numbers, numbers)
        except (OverflowError, struct.error):  # beyond float32, or not a number: the slow path checks each
            exact = [as_float64(tag, value) for tag, value in values.items()]
        return self.record(wall_time, step, exact, list(map(_as_float32, exact)))


FILE_VERSION = _bytes_field(3, "brain.Event:2")
"""The content of the first record of a file, without the time."""

_EMPTY_TENSOR = _tensor(_FLOAT_TYPE, (), _bytes_field(4, _FLOAT32.pack(0.0)))
_writers: weakref.WeakSet[EventWriter] = weakref.WeakSet()


class EventWriter:
    """Appends events to a file of its own in a folder. Safe to use from several threads, and after a fork.

    A call appends its event to the file, so a process that is killed right after it loses nothing. If that takes
    more than 1 % of the time, on a slow file system or with thousands of events a second, events are collected in
    memory, and a thread appends them three times a second. Then a process that is killed loses less than the last
    second, and a call waits only when 32 MiB are pending.

    Args:
        folder: the folder that TensorBoard reads; it is created with the first event.
        source: the origin of the events, a part of the file's name: the name of an instance, for example.
        flush_s: the maximum time between a call and the file, in seconds.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EventWriter(Path(folder), source="worker-0") as writer:
        ...         writer.scalars({"loss": 0.5}, step=3)
        ...     from pai_sdk.runs import read_scalars
        ...     [(event.name, event.step, event.value) for event in read_scalars(writer.path)]
        [('loss', 3, 0.5)]
    """

    def __init__(self, folder: str | os.PathLike[str], *, source: str = "", flush_s: float = _FLUSH_S) -> None:
        self.folder = Path(folder)
        self._source = source or socket.gethostname()
        self._flush_s = flush_s
        self._templates: dict[tuple[Any, ...], _Template] = {}
        self._step: tuple[int, bytes] = (0, b"\0")
        self._is_closed = False
        self.reset(is_child=False)
        _writers.add(self)

    def reset(self, *, is_child: bool) -> None:
        """Starts a new file with nothing pending: at first, and in a child after a fork."""
        # A child can exit without atexit (os._exit, as multiprocessing does), so it writes each event at once. Its
        # locks are new, since the fork may have copied locks that a thread of the parent holds.
        self._max_pending_bytes = 0 if is_child else _MAX_PENDING_BYTES
        self._lock = threading.Lock()  # guards the pending records and the templates
        # Guards the file; acquired before `_lock`, never after it. A signal handler may flush during a write.
        self._file_lock = threading.RLock()
        self._is_writing = False
        self._unwritten: list[bytes] = []  # what is being written; also guarded by the file lock
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._wakeup = threading.Event()  # set when there are events to write, or at the end
        self._thread: threading.Thread | None = None  # started with the first event
        self._file: BinaryIO | None = None
        self._failure: OSError | None = None  # of the last attempt, for the next call
        self._calls_write_at = -math.inf  # before this time, events are left to the thread
        self._closing = threading.Event()  # interrupts the pause of the thread, so that `close` is fast
        self._name_file()

    def _name_file(self) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{self._source}.{os.getpid()}"
        self.path = self.folder / f"{name}.{time.monotonic_ns()}"

    @property
    def is_full(self) -> bool:
        """True when more is pending than the memory limit, because the file cannot be written."""
        return self._pending_bytes > _MAX_PENDING_BYTES

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scalars(self, values: Mapping[str, Any], step: int, *, wall_time: float | None = None) -> None:
        """Writes numbers, all of one step.

        Args:
            values: maps tags to numbers; anything that `float()` accepts, except strings.
            step: a whole number.
            wall_time: seconds since 1970; now by default.

        Raises:
            TypeError: a value is not a number.
            OverflowError: a value exceeds float64, or the step int64.
            OSError: the file could not be written; the next call tries again.
        """
        self.write_numbers(values, step, wall_time=wall_time)

    def write_numbers(
        self, values: Mapping[str, Any], step: int, *, wall_time: float | None = None
    ) -> list[float]:
        """Writes numbers as `scalars` does, and returns them: tensors are converted once."""
        now = time.time() if wall_time is None else wall_time
        with self._lock:
            step_bytes = self._step[1] if self._step[0] == step else self._encoded_step(step)
            key = (len(step_bytes), *values)
            template = self._templates.get(key) or self._new_template(key)
            # Tensors are converted once: that waits for the GPU.
            numbers = [v if isinstance(v, (float, int)) else as_float64(tag, v) for tag, v in values.items()]
            is_quiet = self._add(template.checked_record(now, step_bytes, values, numbers))
        if not is_quiet:
            self._attend()
        return numbers

    def text(self, tag: str, text: str, step: int = 0) -> None:
        """Writes a text; TensorBoard displays it as Markdown."""
        content = _bytes_field(8, text)
        self._write_value(step, _bytes_field(1, tag) + _metadata("text") + _tensor(_STRING_TYPE, (1,), content))

    def histogram(self, tag: str, values: Iterable[float], step: int, *, buckets: int = 30) -> None:
        """Writes the distribution of numbers. NaN and infinities are left out."""
        finite = sorted(value for value in map(float, values) if math.isfinite(value))
        rows = _buckets(finite, buckets)
        tensor = _tensor(
            _DOUBLE_TYPE, (len(rows), 3), _bytes_field(4, b"".join(struct.pack("<3d", *row) for row in rows))
        )
        self._write_value(step, _bytes_field(1, tag) + _metadata("histograms") + tensor)

    def tensor(self, tag: str, values: Iterable[float], shape: Sequence[int], step: int) -> None:
        """Writes a tensor of float64, its values in row order.

        Raises:
            ValueError: the shape has another number of values.
        """
        numbers = [float(value) for value in values]
        if len(numbers) != math.prod(shape):
            raise ValueError(f"{tag!r}: {len(numbers)} values do not fill a tensor of shape {tuple(shape)}")
        content = _bytes_field(4, struct.pack(f"<{len(numbers)}d", *numbers))
        self._write_value(
            step, _bytes_field(1, tag) + _metadata("tensors") + _tensor(_DOUBLE_TYPE, shape, content)
        )

    def hparams(self, values: Mapping[str, bool | float | str | None], metrics: Iterable[str] = ()) -> None:
        """Writes hyperparameters, and the metrics that TensorBoard lists with them; None is a value."""
        experiment, session_start = _hparams_messages(values, metrics)
        for tag, content in (
            ("_hparams_/experiment", experiment),
            ("_hparams_/session_start_info", session_start),
        ):
            # HParamsPluginData has a version, which is 0 and so not written, and one of the two messages.
            self._write_value(0, _bytes_field(1, tag) + _metadata("hparams", content) + _EMPTY_TENSOR)

    def end(self, status: str) -> None:
        """Writes that the run has finished; nothing if this writer has written nothing.

        TensorFlow marks the end of a session in the same way. TensorBoard does not display it.

        Args:
            status: `Succeed`, `Failed` or `Terminated`.
        """
        stopped = _bytes_field(7, _int_field(1, SESSION_STOP) + _bytes_field(3, status))
        with self._lock:
            if self._is_closed or not (self._pending_bytes or self._file):
                return
            self._add(framed(_event(time.time(), self._step[0], stopped)))

    def flush(self) -> None:
        """Appends the pending events to the file.

        Raises:
            OSError: the file could not be written. The events stay pending.
        """
        with self._file_lock:
            if self._is_writing:
                # In a signal handler: the write that it has interrupted continues with these events.
                return
            self._is_writing = True
            try:
                self._append_batch()
                # What a signal handler has added. Only once, because other threads may report all the time.
                self._append_batch()
            finally:
                self._is_writing = False

    def _append_batch(self) -> None:
        # The file lock spans both steps, so that two flushes write in the order of the calls. `_lock` is released
        # during the write: other threads go on collecting while the file system is slow.
        with self._lock:
            # Without a call in between, so that an exception of a signal handler comes before or after both.
            self._unwritten += self._pending
            self._pending, self._pending_bytes = [], 0
        content = b"".join(self._unwritten)
        if not content:
            return
        try:
            self._append(content)
        except OSError as error:
            self._failure = error
            with self._lock:  # in front of the events collected meanwhile
                self._pending, self._unwritten = [content, *self._pending], []
                self._pending_bytes += len(content)
            raise
        self._unwritten = []

    def close(self) -> None:
        """Writes the pending events and stops the thread.

        Raises:
            OSError: the last events could not be written.
        """
        with self._lock:  # no event is added and no thread starts after this
            self._is_closed = True
            thread = self._thread
        self._closing.set()
        self._wakeup.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        try:
            self.flush()
        finally:
            with self._file_lock:
                if self._file is not None:
                    self._file.close()
                    self._file = None

    def _encoded_step(self, step: int) -> bytes:
        step = _checked_step(step)
        self._step = (step, _varint(step))
        return self._step[1]

    def _new_template(self, key: tuple[Any, ...]) -> _Template:
        crc32c(b"")  # selects `_checksum`, which templates call directly
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        template = self._templates[key] = _Template(key[1:], key[0])
        return template

    def _write_value(self, step: int, value: bytes) -> None:
        record = framed(_event(time.time(), step, _summary(value)))
        with self._lock:
            is_quiet = self._add(record)
        if not is_quiet:
            self._attend()

    def _add(self, record: bytes) -> bool:
        """Collects a record, with `_lock` held. Returns False when `_attend` is to be called, without the lock."""
        if self._is_closed:
            raise ValueError(f"the events of {self.path.name} are closed")
        was_empty = not self._pending_bytes
        self._pending.append(record)
        self._pending_bytes += len(record)
        must_wait = self._pending_bytes <= self._max_pending_bytes and time.monotonic() < self._calls_write_at
        return must_wait and not was_empty and self._failure is None

    def _attend(self) -> None:
        """Has a collected record written, at once or by the thread, and raises the error of the last attempt."""
        if self._pending_bytes > self._max_pending_bytes:
            self.flush()
        else:
            with self._lock:
                # Also where calls write: the thread keeps a writer that nothing else refers to until the exit.
                if self._thread is None and not self._is_closed:
                    self._thread = threading.Thread(target=self._run, name="event-writer", daemon=True)
                    self._thread.start()
            if not self._write_in_call():
                self._wakeup.set()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _write_in_call(self) -> bool:
        """Writes the pending events if there is time for it; returns False if they are left to the thread."""
        started = time.monotonic()
        # A call does not wait for another write, neither that of a thread nor one that its signal has interrupted.
        if started < self._calls_write_at or self._is_writing:
            return False
        try:
            self.flush()
        except OSError:  # the thread tries again; the caller gets the error
            return False
        finally:
            finished = time.monotonic()
            self._calls_write_at = max(self._calls_write_at, finished - _MAX_CREDIT_S)
            self._calls_write_at += _CALL_PAUSE_FACTOR * (finished - started)
        return True

    def _run(self) -> None:
        """Writes events together: those of `flush_s`, or of a moment where none was written for so long."""
        flushed_at = -math.inf
        while not self._is_closed:
            self._wakeup.wait()
            # Cleared before the flush: an event that is added during the flush sets it again.
            self._wakeup.clear()
            # Rare events are written almost at once: SIGTERM may end the process before `flush_s` have passed.
            pause_s = max(min(_MIN_FLUSH_S, self._flush_s), flushed_at + self._flush_s - time.monotonic())
            self._closing.wait(pause_s)
            flushed_at = time.monotonic()
            try:
                self.flush()
            except OSError:  # raised by the next call
                self._wakeup.set()

    def _append(self, content: bytes) -> None:
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: bytes that `write` has accepted survive the process.
            self._file = self.path.open("ab", buffering=0)
            content = framed(double_field(1, time.time()) + FILE_VERSION) + content
        try:
            _append_complete(self._file, content)
        except BaseException:
            # A new file is used, because the truncation can fail as well.
            self._file = None
            self._name_file()
            raise


def _append_complete(file: BinaryIO, content: bytes) -> None:
    """Appends to a file; after any error, also one of a signal handler, truncates the file and closes it."""
    size = file.tell()
    try:
        while content:
            content = content[file.write(content) :]
    except BaseException:
        with contextlib.suppress(OSError):
            file.truncate(size)
        file.close()
        raise


def _flush_all() -> None:
    for writer in list(_writers):
        with contextlib.suppress(OSError):
            writer.flush()


def _reset_after_fork() -> None:
    """Gives a forked child new files with nothing pending; the parent continues its files."""
    for writer in list(_writers):
        writer.reset(is_child=True)


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _check_tag(tag: object) -> None:
    if not isinstance(tag, str) or not tag or _NOT_IN_NAMES.search(tag):
        raise TypeError(f"{tag!r} is not a valid name of a metric")


def _checked_step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"the step is a whole number, not {step!r}") from None
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"step: expected a 64-bit integer, got {number}")
    return number


def check_scalars(values: Mapping[str, Any], step: Any) -> None:
    """Validates arguments of `EventWriter.scalars`; raises TypeError, or OverflowError beyond float64, int64."""
    _checked_step(step)
    for tag, value in values.items():
        _check_tag(tag)
        as_float64(tag, value)


def as_float64(tag: str, value: Any) -> float:
    """Returns the value of a metric as a float; raises TypeError for strings too, even those with digits."""
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{tag!r}: expected a number, got the string {value[:60]!r}")
    try:
        # A tensor with a gradient warns when it is converted.
        return float(value.detach() if getattr(value, "requires_grad", False) else value)
    except OverflowError:
        raise OverflowError(f"{tag!r} is too large for a float64") from None
    except (TypeError, ValueError) as error:
        reason = f": {error}" if hasattr(value, "__float__") else ""  # as for a tensor of several values
        raise TypeError(f"{tag!r}: expected a number, got {type(value).__name__}{reason}") from None


def _as_float32(value: float) -> float:
    """Replaces a number beyond the range of float32 by infinity."""
    try:
        _FLOAT32.pack(value)
    except OverflowError:
        return math.copysign(math.inf, value)
    return value


def _buckets(values: Sequence[float], count: int) -> list[tuple[float, float, float]]:
    """Returns left edge, right edge and number of values of buckets of equal width, over sorted values."""
    if not values:
        return []
    low, high = values[0], values[-1]
    width = high / count - low / count  # divided first, since high - low can overflow float64
    if width == 0:
        return [(low - 0.5, high + 0.5, float(len(values)))]
    edges = [low + width * number for number in range(count)] + [high]
    bounds = [bisect_left(values, edge) for edge in edges[:-1]] + [len(values)]
    return [(edges[at], edges[at + 1], float(bounds[at + 1] - bounds[at])) for at in range(count)]


def _hparam_type(value: object) -> int:
    return 2 if isinstance(value, bool) else 3 if isinstance(value, (int, float)) else 1


def _protobuf_value(value: bool | float | str | None) -> bytes:
    if value is None:
        return _int_field(1, 0)
    if isinstance(value, bool):
        return _int_field(4, value)
    return double_field(2, value) if isinstance(value, (int, float)) else _bytes_field(3, value)


# ---- names of files -----------------------------------------------------------------------------------------


def event_file_source(path: str) -> tuple[str, int] | None:
    """Returns instance and start of an event file of `report`, by its path in `tensorboard`; None for others."""
    folder, _, name = path.rpartition("/")
    match = _EVENT_FILE.fullmatch(name)
    if match is None or (folder and not EVENTS_PART.fullmatch(folder)):
        return None
    return match["source"], int(match["time"])
