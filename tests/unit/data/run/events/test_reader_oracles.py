"""The reader finds the points that TensorBoard's own readers find: `EventAccumulator` and the data server."""

from __future__ import annotations

import contextlib
import logging
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pai_sdk._data.run.events.reader import RunReader
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.storage.stores.local import LocalStore
from tests.support.data_server import data_server
from tests.support.event_files import event, record_ends, simple, tensor, version, write_events

Points = dict[str, list[tuple[float, int, str]]]
FILE = "events.out.tfevents.1000000000.host.17.0"


def rounded(points: dict[str, Any]) -> Points:
    """Comparable: TensorBoard has float32, NaN equals NaN, and 0.0 is not -0.0."""
    with np.errstate(over="ignore"):
        return {
            tag: [(float(wall), int(step), repr(float(np.float32(value)))) for wall, step, value in some]
            for tag, some in points.items()
            if some
        }


def ours(folder: Path) -> tuple[Points, RunReader]:
    store = LocalStore(folder)
    run = RunReader(store, store.list())
    found = {}
    for tag, summary in run.tags().items():
        if summary.kind == "scalar":
            series = run.series(tag)
            found[tag] = list(zip(series.wall, series.step, series.value, strict=True))
    return rounded(found), run


def accumulated(folder: Path) -> Points:
    """What `EventAccumulator` finds; where it meets damage, until there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    kinds = ("scalars", "tensors", "images", "audio", "histograms", "compressedHistograms")
    reader = EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0), purge_orphaned_data=False)
    reader.Reload()
    found = {
        tag: [(e.wall_time, e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }
    with contextlib.suppress(KeyError):  # no tag has named this plugin
        for tag in reader.PluginTagToContent("scalars"):
            found[tag] = [(e.wall_time, e.step, make_ndarray(e.tensor_proto).item()) for e in reader.Tensors(tag)]
    return rounded(found)


# ---- the files ----------------------------------------------------------------------------------------------


def by_us(folder: Path) -> None:
    rng = random.Random(1)
    with EventWriter(folder) as writer:
        for step in range(400):
            writer.scalars({"loss": rng.random(), "lr": 1e-3}, step, wall_time=1e9 + step / 7)
            if step % 50 == 0:
                writer.scalars({"eval/acc": step}, step)
                writer.text("note", "hello", step)
                writer.histogram("weights", [rng.random() for _ in range(9)], step)
        for value in (math.nan, math.inf, -math.inf, -0.0, 1e-300, 1e300):
            step += 1
            writer.scalars({"loss": value}, step)
        writer.hparams({"lr": 0.1})


def by_tensorboard(folder: Path) -> None:
    """As PyTorch does: this is the writer that it uses."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step in range(300):
        for tag in ("Loss/train", "Loss/test", "Accuracy/train"):
            value = Summary.Value(tag=tag, simple_value=step * 0.1)
            writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
        if step % 20 == 0:
            histogram = HistogramProto(min=0, max=1, num=3, bucket_limit=[0.5, 1.0], bucket=[1, 2])
            value = Summary.Value(tag="weights", histo=histogram)
            writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
    writer.close()


def by_tensorflow(folder: Path) -> None:
    records = [version()]
    for step in range(1, 300):
        records += [event(step, tensor("epoch_loss", 1 / step)), event(step, tensor("epoch_lr", 1e-3))]
        if step % 30 == 0:
            records.append(event(step, tensor("evaluation", step)))
    write_events(folder / (FILE + ".v2"), *records)


def by_tensorflow_with_other_types(folder: Path) -> None:
    kinds = {"half": np.float16, "double": np.float64, "int": np.int32, "long": np.int64}
    steps = range(1, 60)
    write_events(
        folder / FILE, *(event(n, tensor(tag, n / 2, dtype=kind)) for n in steps for tag, kind in kinds.items())
    )


def without_order(folder: Path) -> None:
    rng = random.Random(3)
    tags = [f"tag/{'x' * number}" for number in range(12)]
    records = [event(step, simple(rng.choice(tags), rng.random())) for step in range(1, 1500)]
    write_events(folder / FILE, version(), *records)


def many_in_one_record(folder: Path) -> None:
    records = [event(step, *(simple(f"m{n}", n * step) for n in range(20))) for step in range(1, 200)]
    write_events(folder / FILE, version(), *records)


def large_steps(folder: Path) -> None:
    steps = [1, 127, 128, 16_383, 16_384, 2**31, 2**40, 2**62]
    write_events(folder / FILE, *(event(step, simple("a", step)) for step in steps))


def several_files(folder: Path) -> None:
    """A training that went on in a new file, where the last one ended."""
    for number in range(3):
        steps = range(number * 100, number * 100 + 100)
        name = FILE.replace("1000000000", f"100000000{number}")
        write_events(folder / name, version(), *(event(n, simple("loss", n), wall=1e9 + n) for n in steps))


WHOLE = {
    made.__name__: made
    for made in (
        by_us,
        by_tensorboard,
        by_tensorflow,
        by_tensorflow_with_other_types,
        without_order,
        many_in_one_record,
        large_steps,
        several_files,
    )
}


def loop(count: int = 300) -> bytes:
    return version() + b"".join(event(n, simple(f"t{k}", n * k)) for n in range(1, count) for k in range(3))


def cut_off(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def one_bit(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def zeros(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content))
    size = min(rng.randrange(1, 5000), len(content) - begin)
    return content[:begin] + bytes(size) + content[begin + size :]


def noise(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content))
    size = min(rng.randrange(1, 300), len(content) - begin)
    return content[:begin] + rng.randbytes(size) + content[begin + size :]


DAMAGE = {
    f"{damage.__name__}-{seed}": (damage, seed) for damage in (cut_off, one_bit, zeros, noise) for seed in range(4)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("runs")
    for name, make in WHOLE.items():
        make(folder / name)
    for name, (damage, seed) in DAMAGE.items():
        write_events(folder / name / FILE, damage(loop(), random.Random(seed)))
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[dict[str, Points]]:
    """What the data server finds; it checks each record."""
    with data_server(folder, "--checksum") as server:
        yield {name: rounded(points) for name, points in server.scalars().items()}


@pytest.mark.parametrize("name", WHOLE)
def test_the_points_are_those_of_event_accumulator(folder: Path, name: str) -> None:
    found, run = ours(folder / name)
    assert found == accumulated(folder / name)
    assert run.damaged == []


@pytest.mark.parametrize("name", sorted(WHOLE.keys() - {"by_tensorflow_with_other_types"}))  # only float32
def test_the_points_are_those_of_the_data_server(folder: Path, served: dict[str, Points], name: str) -> None:
    found, _ = ours(folder / name)
    assert found == served[name]


@pytest.mark.parametrize("name", DAMAGE)
def test_of_damaged_files_no_point_is_lost_that_others_find(
    folder: Path, served: dict[str, Points], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others stop at damage. Ours has what is behind it too, and nothing that was not written."""
    caplog.set_level(logging.CRITICAL)
    found, run = ours(folder / name)
    whole = {f"t{k}": [(1000.0 + n, n, repr(float(n * k))) for n in range(1, 300)] for k in range(3)}
    for others in (accumulated(folder / name), served.get(name, {})):
        for tag, points in others.items():
            assert [point for point in points if point not in found[tag]] == []
    for tag, points in found.items():
        assert [point for point in points if point not in whole[tag]] == []
    content, intact = (folder / name / FILE).read_bytes(), loop()
    if name.startswith("cut_off"):
        assert run.damaged == []
        whole_records = sum(end <= len(content) for end in record_ends(intact)) - 1
    else:
        changed = [at for at, (a, b) in enumerate(zip(content, intact, strict=True)) if a != b]
        assert all(any(one.start <= at < one.end for one in run.damaged) for at in changed)
        ends = record_ends(intact)
        touched = [any(begin <= at < end for at in changed) for begin, end in zip([0, *ends], ends, strict=False)]
        whole_records = touched[1:].count(False)
    assert sum(map(len, found.values())) == max(whole_records, 0)


# ---- tensors of plugins that are not known here -------------------------------------------------------------

TENSORS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "double": np.array([[np.nan, np.inf], [-0.0, 1e300]]),
    "long": np.array([-(2**63), 2**63 - 1]),
    "whole": np.arange(6, dtype=np.int32).reshape(1, 2, 3),
    "half": np.array([0.5, 65504.0], np.float16),
    "bytes": np.array([0, 255], np.uint8),
    "truth": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "words": np.array([b"a", b"\xff"], object),
    "number": np.array(0.25, np.float32),
    "one": np.array([7.0], np.float32),
    "empty": np.empty((0, 3), np.float32),
}


def pr_curve(tag: str, step: int) -> Any:
    """As PyTorch's `add_pr_curve` writes it: six rows of counts, precision and recall."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.pr_curve.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    rows = np.random.default_rng(step).random((6, 127)).astype(np.float32)
    metadata = create_summary_metadata(tag, "", 127)
    return Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(rows))


def of_plugin(tag: str, value: Any, plugin: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    named = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin)) if plugin else None
    return Summary.Value(tag=tag, metadata=named, tensor=make_tensor_proto(value))


@pytest.mark.parametrize("is_named_once", [False, True])
def test_tensors_of_other_plugins_are_those_of_tensorboard(tmp_path: Path, is_named_once: bool) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    records = [version()]
    for step in range(1, 41):  # enough for records that are read together
        plugin = "own" if step == 1 or not is_named_once else ""
        values = [of_plugin(tag, value, plugin) for tag, value in TENSORS.items()]
        records.append(event(step, pr_curve("pr/class_1", step), simple("loss", step), *values))
        records.append(event(step, of_plugin("alone", np.float32(step), plugin)))
    write_events(tmp_path / FILE, *records)
    theirs = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    theirs.Reload()
    _, run = ours(tmp_path)
    tags = run.tags()
    assert {tag: summary.kind for tag, summary in tags.items() if tag != "loss"} == {
        "pr/class_1": "pr_curves",
        **dict.fromkeys([*TENSORS, "alone"], "own"),
    }
    assert all(summary.count == 40 for summary in tags.values())
    for tag in ("pr/class_1", "alone", *TENSORS):
        expected = theirs.Tensors(tag)
        found = run.tensors(tag)
        assert [(one.wall, one.step) for one in found] == [(one.wall_time, one.step) for one in expected]
        for one, other in zip(found, expected, strict=True):
            array = make_ndarray(other.tensor_proto)
            assert (one.value.dtype, one.value.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(one.value, array)
