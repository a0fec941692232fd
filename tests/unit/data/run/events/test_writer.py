"""Event files: TensorBoard reads what was written, also after the writing process was killed."""

from __future__ import annotations

import itertools
import math
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.run.events import writer as events
from pai_sdk._data.run.events.records import read_records, read_scalars
from pai_sdk._data.run.events.writer import EventWriter, crc32c
from tests.support.messages import refused
from tests.support.waiting import until

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[5]

tags = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40)
steps = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(width=64)
reports = st.lists(st.tuples(st.dictionaries(tags, numbers, max_size=5), steps), min_size=1, max_size=6)


def accumulate(folder: Path) -> object:
    """TensorBoard's own reader, which keeps everything here."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kinds = ("scalars", "tensors", "images", "audio", "histograms", "compressedHistograms")
    found = EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0), purge_orphaned_data=False)
    found.Reload()
    return found


def float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def same(value: float) -> str:
    """A number as text: NaN equals NaN, and 0.0 is not -0.0."""
    return "nan" if math.isnan(value) else repr(value)


def all_scalars(folder: Path) -> list[tuple[str, int, float]]:
    return [(e.tag, e.step, e.value) for path in sorted(folder.rglob("*tfevents*")) for e in read_scalars(path)]


def test_tensorboard_passes_over_the_end_of_a_run(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    with EventWriter(tmp_path) as writer:
        writer.end("Succeed")  # of nothing
        writer.scalars({"loss": 0.5}, 7, wall_time=1.5)
        writer.end("Failed")
        writer.scalars({"loss": 0.25}, 8, wall_time=2.5)
    writer.end("Succeed")  # too late
    ends = [Event.FromString(record.payload) for record in read_records(writer.path)]
    assert [one.session_log for one in ends if one.HasField("session_log")] == [
        SessionLog(status=SessionLog.STOP, msg="Failed")
    ]
    accumulated = accumulate(tmp_path)
    assert [(one.step, one.value) for one in accumulated.Scalars("loss")] == [(7, 0.5), (8, 0.25)]
    assert not any(found for kind, found in accumulated.Tags().items() if kind != "scalars")
    assert all_scalars(tmp_path) == [("loss", 7, 0.5), ("loss", 8, 0.25)]


@settings(max_examples=60, deadline=None)
@given(reports)
def test_tensorboard_reads_exactly_the_scalars_that_were_written(given_reports: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with EventWriter(folder) as writer:
            for values, step in given_reports:
                writer.scalars(values, step, wall_time=1.5)
        expected: dict[str, list] = {}
        for values, step in given_reports:
            for tag, value in values.items():
                expected.setdefault(tag, []).append((1.5, step, same(float32(value))))
        accumulated = accumulate(Path(folder))
        read = {
            tag: [(e.wall_time, e.step, same(e.value)) for e in accumulated.Scalars(tag)]
            for tag in accumulated.Tags()["scalars"]
        }
        assert read == expected
        exact = [(e.tag, e.step, same(e.value), e.wall_time) for e in read_scalars(writer.path)]
        assert exact == [(t, s, same(float(v)), 1.5) for values, s in given_reports for t, v in values.items()]


def test_tensorboard_reads_texts_histograms_tensors_and_hparams(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util

    with EventWriter(tmp_path) as writer:
        writer.text("note", "# Größe", step=1)
        writer.histogram("weights", [0.0, 1.0, 1.0, 2.0, math.nan], step=2, buckets=2)
        writer.histogram("constant", [3.0, 3.0], step=2)
        writer.histogram("empty", [], step=2)
        writer.tensor("matrix", range(6), (2, 3), step=3)
        writer.hparams({"lr": 0.1, "layers": 3, "adam": True, "name": "x"}, metrics=["loss"])
    found = accumulate(tmp_path)

    def array(tag: str) -> list:
        return tensor_util.make_ndarray(found.Tensors(tag)[0].tensor_proto).tolist()

    assert array("note") == ["# Größe".encode()]
    assert array("weights") == [[0.0, 1.0, 1.0], [1.0, 2.0, 3.0]]
    assert array("constant") == [[2.5, 3.5, 2.0]]
    assert array("empty") == []
    assert array("matrix") == [[0, 1, 2], [3, 4, 5]]
    assert {tag: found.Tensors(tag)[0].step for tag in ("note", "weights", "matrix")} == {
        "note": 1,
        "weights": 2,
        "matrix": 3,
    }
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    begun = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in begun.hparams.items()}
    assert values == {"lr": 0.1, "layers": 3.0, "adam": True, "name": "x"}
    content = found.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin_data_pb2.HParamsPluginData.FromString(content).experiment
    assert [info.name.tag for info in experiment.metric_infos] == ["loss"]
    assert {info.name: info.type for info in experiment.hparam_infos} == {
        "lr": 3,
        "layers": 3,
        "adam": 2,
        "name": 1,
    }


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=50), st.integers(1, 20))
def test_each_value_is_in_one_bucket(values: list[float], count: int) -> None:
    rows = events._buckets(sorted(values), count)
    assert sum(row[2] for row in rows) == len(values)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(rows))


def test_other_writers_are_read(tmp_path: Path) -> None:
    """TensorFlow 2 writes scalars as tensors; PyTorch and TensorBoard's own writer as `simple_value`."""
    import numpy
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(tmp_path))
    simple = Summary.Value(tag="simple", simple_value=0.25)
    tensor = Summary.Value(
        tag="tensor", tensor=make_tensor_proto(numpy.float32(0.5)), metadata=create_summary_metadata("", "")
    )
    double = Summary.Value(tag="double", tensor=make_tensor_proto(numpy.float64(0.1)))
    vector = Summary.Value(tag="vector", tensor=make_tensor_proto(numpy.zeros(1)))
    for step, value in enumerate((simple, tensor, double, vector)):
        writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[value])))
    writer.close()
    assert all_scalars(tmp_path) == [("simple", 0, 0.25), ("tensor", 1, 0.5), ("double", 2, 0.1)]


@given(st.binary(max_size=600))
def test_both_checksums_are_equal(data: bytes) -> None:
    pure = PURE(data)
    assert pure == crc32c(data)
    google = pytest.importorskip("google_crc32c")
    assert pure == google.value(data)


PURE = events._pure_crc32c()


def test_a_record_without_google_crc32c_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path) -> bytes:
        with EventWriter(folder) as writer:
            writer.scalars({"loss": 0.1}, 3, wall_time=2.0)
        return writer.path.read_bytes()[-40:]  # without the record before it, which has a time of its own

    fast = write(tmp_path / "fast")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.setattr(events, "_checksum", None)
    assert write(tmp_path / "pure") == fast


@pytest.mark.parametrize(
    "value",
    ["0.5", b"1", None, [1], 1j, {}],
)
def test_what_is_no_number_is_refused_by_name(tmp_path: Path, value: object) -> None:
    with EventWriter(tmp_path) as writer:
        with refused(TypeError):
            writer.scalars({"loss": 1.0, "odd": value}, 1)
        writer.scalars({"loss": 2.0}, 2)
    assert all_scalars(tmp_path) == [("loss", 2, 2.0)]


def test_all_kinds_of_numbers_are_taken(tmp_path: Path) -> None:
    import numpy

    values = {
        "int": 2**60,
        "bool": True,
        "numpy32": numpy.float32(0.1),
        "numpy64": numpy.float64(0.1),
        "scalar array": numpy.array(3),
        "fraction": Fraction(1, 4),
        "beyond float32": 1e300,
        "tiny": 5e-324,
        "nan": math.nan,
        "-inf": -math.inf,
    }
    with EventWriter(tmp_path) as writer:
        writer.scalars(values, 1)
        with refused(OverflowError):
            writer.scalars({"huge": 10**400}, 2)
        with refused(OverflowError):
            writer.scalars({"a": 1}, 2**63)
    assert {tag: same(value) for tag, _, value in all_scalars(tmp_path)} == {
        tag: same(float(value)) for tag, value in values.items()
    }
    assert accumulate(tmp_path).Scalars("beyond float32")[0].value == math.inf


KILLED = """
import sys, time
sys.path.append(sys.argv[1])
from pai_sdk._data.run.events.writer import EventWriter
writer = EventWriter(sys.argv[2])
step = 0
while True:
    step += 1
    writer.scalars({"at": time.time()}, step)
    print(step, flush=True)
    time.sleep(0.0005)
"""


def test_a_killed_process_loses_what_is_younger_than_the_interval(tmp_path: Path) -> None:
    program = [sys.executable, "-S", "-I", "-c", KILLED, str(ROOT), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        reported = next(int(line) for line in process.stdout if int(line) >= 50)
        # Without any help of the process, the events arrive while it lives.
        until(lambda: len(all_scalars(tmp_path)) > reported)
        process.kill()
        process.stdout.read()
    found = all_scalars(tmp_path)
    assert [step for _, step, _ in found] == list(range(1, len(found) + 1))  # none is missing in between
    with EventWriter(tmp_path / "other") as writer:
        assert writer._flush_s <= 0.5


class _Clock:
    """A clock that moves when the test or a write says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(events, "time", clock)
    return clock


def test_frequent_events_are_in_the_file_when_the_call_returns(tmp_path: Path, clock: _Clock) -> None:
    """SIGTERM ended processes with several reports a second before the last ones were in the file."""
    with EventWriter(tmp_path, flush_s=3600) as writer:
        for step in range(100):
            writer.scalars({"a": step}, step)
            assert len(all_scalars(tmp_path)) == step + 1
            clock.now += 0.01


def test_a_slow_file_system_does_not_slow_the_training_down(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = threading.current_thread()
    slow_s = []

    def append(self: EventWriter, content: bytes, plain: Any = EventWriter._append) -> None:
        if threading.current_thread() is writing:
            slow_s.append(0.04)
            clock.now += slow_s[-1]
        plain(self, content)

    monkeypatch.setattr(EventWriter, "_append", append)
    with EventWriter(tmp_path, flush_s=0.001) as writer:
        for step in range(3000):
            writer.scalars({"a": step}, step)
            clock.now += 0.01
        assert sum(slow_s) <= 0.01 * 30 + 0.1
    assert len(all_scalars(tmp_path)) == 3000


def test_a_rare_event_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """SIGTERM ended a process before its last value was in the file."""
    with EventWriter(tmp_path, flush_s=3600) as writer:
        writer.scalars({"a": 1}, 1)
        until(lambda: all_scalars(tmp_path) == [("a", 1, 1.0)])


def test_an_event_reaches_the_file_while_the_process_goes_on(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars({"a": 1}, 1)
    until(lambda: all_scalars(tmp_path) == [("a", 1, 1.0)])
    writer.scalars({"a": 2}, 2)
    until(lambda: len(all_scalars(tmp_path)) == 2)
    writer.close()


def test_events_reach_the_file_at_the_end_of_a_program(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1]); from pai_sdk._data.run.events.writer import EventWriter as W; "
    )
    program += "w = W(sys.argv[2]); [w.scalars({'a': n}, n) for n in range(1000)]"
    subprocess.run([sys.executable, "-S", "-I", "-c", program, str(ROOT), str(tmp_path)], check=True)
    assert len(all_scalars(tmp_path)) == 1000


def test_a_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    program = f"""
import os, sys
sys.path.append({str(ROOT)!r})
from pai_sdk._data.run.events.writer import EventWriter
writer = EventWriter({str(tmp_path)!r})
writer.scalars({{"parent": 1}}, 1)
child = os.fork()
if child == 0:
    writer.scalars({{"child": 1}}, 1)
    sys.exit()
writer.scalars({{"parent": 2}}, 2)
sys.exit(os.waitpid(child, 0)[1])
"""
    subprocess.run([sys.executable, "-S", "-I", "-c", program], check=True)
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(all_scalars(tmp_path)) == [("child", 1, 1.0), ("parent", 1, 1.0), ("parent", 2, 2.0)]


def test_threads_write_whole_records(tmp_path: Path) -> None:
    with EventWriter(tmp_path) as writer:

        def report(name: str) -> None:
            for step in range(300):
                writer.scalars({name: step, f"{name}/2": step}, step)

        threads = [threading.Thread(target=report, args=(f"t{number}",)) for number in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(all_scalars(tmp_path)) == 6 * 300 * 2


class _FullDisk:
    """A file on a disk that becomes full within a record, and has space again later."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab", buffering=0)
        self.is_full = True

    def tell(self) -> int:
        return self.file.tell()

    def write(self, content: bytes) -> int:
        if self.is_full:
            self.file.write(content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return self.file.write(content)

    def truncate(self, size: int) -> None:
        raise OSError(95, "Operation not supported")

    def close(self) -> None:
        self.file.close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars({"a": 1}, 1)
    writer.flush()
    writer._file.close()
    writer._file = _FullDisk(writer.path)
    with pytest.raises(OSError, match="No space left"):
        writer.scalars({"a": 2}, 2)
    writer.scalars({"a": 3}, 3)
    writer.close()
    assert sorted(all_scalars(tmp_path)) == [("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, 3.0)]


def test_an_unfinished_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    with EventWriter(tmp_path) as writer:
        for step in range(5):
            writer.scalars({"a": step}, step)
    content = writer.path.read_bytes()
    growing = tmp_path / "growing"
    offset, found = 0, []
    for size in range(len(content) + 1):
        growing.write_bytes(content[:size])
        for event in read_scalars(growing, offset):
            found.append(event.step)
            offset = event.end
    assert found == [0, 1, 2, 3, 4]


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_bytes_cost_the_records_that_they_are_in(chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with EventWriter(folder) as writer:
            for step in range(10):
                writer.scalars({"a": step}, step, wall_time=1.0)
        content = bytearray(writer.path.read_bytes())
        ends = [record.end for record in read_records(writer.path)]
        place = chance.randrange(len(content))
        content[place] ^= chance.randrange(1, 256)
        writer.path.write_bytes(content)
        hit = next(number for number, end in enumerate(ends) if place < end)
        # The first record is the version of the file.
        assert [e.step for e in read_scalars(writer.path)] == [step for step in range(10) if step + 1 != hit]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=60))
def test_hostile_files_end_without_an_error(noise: bytes, payload: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events")
        path.write_bytes(noise + events.framed(payload) + noise)
        for event in read_scalars(path):
            assert isinstance(event.value, float)


def test_a_record_with_an_enormous_length_is_not_waited_for_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(events._frame(1 << 62) + bytes(100))
    assert list(read_records(path)) == []


def test_many_writers_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def count() -> tuple[int, int]:
        descriptors = Path("/proc/self/fd")
        return threading.active_count(), len(list(descriptors.iterdir())) if descriptors.is_dir() else 0

    before = count()
    for number in range(50):
        with EventWriter(tmp_path / str(number), flush_s=0.001) as writer:
            writer.scalars({"a": 1}, 1)
    # Fewer than before when those of an earlier test have ended meanwhile.
    assert all(now <= then for now, then in zip(count(), before, strict=True))


def test_sigterm_is_left_to_the_program(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with EventWriter(tmp_path) as writer:
        writer.scalars({"a": 1}, 1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_check_value_of_crc32c() -> None:
    assert hex(crc32c(b"123456789")) == hex(PURE(b"123456789")) == "0xe3069283"


# ---- signals ------------------------------------------------------------------------------------------------


class _InterruptedFile:
    """A file whose next write is interrupted, before or after its bytes are written."""

    def __init__(self, file: Any, interrupt: Any, *, is_late: bool) -> None:
        self._file, self._interrupt, self._is_late = file, interrupt, is_late

    def write(self, content: bytes) -> int:
        interrupt, self._interrupt = self._interrupt, lambda: None
        if not self._is_late:
            interrupt()
        written: int = self._file.write(content)
        if self._is_late:
            interrupt()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _raise_exit() -> None:
    raise SystemExit(143)


@pytest.mark.parametrize("is_late", [False, True], ids=["before the write", "after the write"])
def test_a_signal_handler_that_exits_during_a_write_loses_and_repeats_no_value(
    tmp_path: Path, is_late: bool
) -> None:
    with EventWriter(tmp_path) as writer:
        writer.scalars({"loss": 1.0}, step=1)
        writer.flush()
        writer._file = _InterruptedFile(writer._file, _raise_exit, is_late=is_late)
        with pytest.raises(SystemExit):
            writer.scalars({"loss": 2.0}, step=2)
    assert all_scalars(tmp_path) == [("loss", 1, 1.0), ("loss", 2, 2.0)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_late", [False, True], ids=["before the write", "after the write"])
def test_a_signal_handler_that_reports_and_flushes_during_a_write_returns(tmp_path: Path, is_late: bool) -> None:
    with EventWriter(tmp_path) as writer:
        writer.scalars({"loss": 1.0}, step=1)
        writer.flush()

        def handle() -> None:
            writer.scalars({"loss": 3.0}, step=3)
            writer.flush()

        writer._file = _InterruptedFile(writer._file, handle, is_late=is_late)
        writer.scalars({"loss": 2.0}, step=2)
    assert all_scalars(tmp_path) == [("loss", 1, 1.0), ("loss", 2, 2.0), ("loss", 3, 3.0)]
