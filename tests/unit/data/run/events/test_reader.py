"""One run of several files: restarts, instances, files that are replaced and removed, memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.run.events.columns import GrowingSeries, GrowingSummary, SeriesStats, series_stats
from pai_sdk._data.run.events.reader import RunReader
from pai_sdk._data.run.events.series import Point, Series
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import StorageError
from tests.support.event_files import event, simple, write_events
from tests.support.messages import refused


def named(time: int, source: str = "job-0", number: int = 0) -> str:
    return f"events.out.tfevents.{time:010d}.{source}.17.{number}"


def write(folder: Path, name: str, *points: tuple[int, float], tag: str = "loss") -> Path:
    return write_events(folder / name, *(event(step, simple(tag, value)) for step, value in points))


def add(path: Path, *points: tuple[int, float], tag: str = "loss") -> None:
    with path.open("ab") as file:
        file.write(b"".join(event(step, simple(tag, value)) for step, value in points))


def values(run: RunReader, tag: str = "loss") -> list[tuple[int, float]]:
    series = run.series(tag)
    return list(zip(series.step.tolist(), series.value.tolist(), strict=True))


def summary(run: RunReader, tag: str = "loss") -> tuple[int, int | None, float, float | None, float | None]:
    found = run.tags()[tag]
    assert found.last is not None
    return found.count, found.first_step, found.last.value, found.min, found.max


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_a_run_grows(tmp_path: Path, store: LocalStore) -> None:
    path = write(tmp_path, named(1), (1, 0.5))
    run = RunReader(store, store.list())
    version = run.version
    assert not run.refresh(store.list())
    assert run.version == version
    add(path, (2, 0.25), (3, 0.75))
    assert run.refresh(store.list())
    assert run.version > version
    assert values(run) == [(1, 0.5), (2, 0.25), (3, 0.75)]
    assert summary(run) == (3, 1, 0.75, 0.25, 0.75)
    assert run.epoch == 0


def test_after_a_restart_the_newer_file_counts(tmp_path: Path, store: LocalStore) -> None:
    """MGR-17: the same step is replaced by the newer file, and later steps of the older file are dropped."""
    write(tmp_path, named(100), *((step, 1.0) for step in range(10)))
    run = RunReader(store, store.list())
    newer = write(tmp_path, named(200), (6, 2.0))
    run.refresh(store.list())
    assert values(run) == [(step, 2.0 if step == 6 else 1.0) for step in range(10)], "one value replaces one"
    assert (run.epoch, run.tags()["loss"].replaced) == (1, 1)
    add(newer, (7, 2.0))
    run.refresh(store.list())
    assert values(run) == [*((step, 1.0) for step in range(6)), (6, 2.0), (7, 2.0)]
    assert summary(run) == (8, 0, 2.0, 1.0, 2.0)
    assert (run.epoch, run.tags()["loss"].replaced) == (2, 4)
    add(newer, (5, 3.0))  # in one file, all points stay, by step
    run.refresh(store.list())
    assert values(run) == [*((step, 1.0) for step in range(5)), (5, 3.0), (6, 2.0), (7, 2.0)]
    assert summary(run) == (8, 0, 2.0, 1.0, 3.0)
    assert RunReader(store, store.list()).tags() == run.tags()


def test_points_that_the_older_file_writes_late_do_not_count(tmp_path: Path, store: LocalStore) -> None:
    older = write(tmp_path, named(100), (1, 1.0))
    write(tmp_path, named(200), (5, 2.0), (7, 2.0))
    run = RunReader(store, store.list())
    assert run.epoch == 0
    add(older, (2, 1.0), (5, 9.0), (6, 9.0))
    run.refresh(store.list())
    assert values(run) == [(1, 1.0), (2, 1.0), (5, 2.0), (7, 2.0)]
    assert summary(run) == (4, 1, 2.0, 1.0, 2.0)


def test_files_of_one_second_are_in_the_order_of_their_numbers(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(100, number=10), (1, 2.0))
    write(tmp_path, named(100, number=9), (1, 1.0), (2, 1.0))
    assert values(RunReader(store, store.list())) == [(1, 2.0), (2, 1.0)]


def test_a_point_written_twice_in_one_file_stays(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(1), (1, 1.0), (3, 1.0), (2, 1.0), (2, 2.0))
    run = RunReader(store, store.list())
    assert values(run) == [(1, 1.0), (2, 1.0), (2, 2.0), (3, 1.0)]
    assert summary(run)[2] == 1.0


def test_tags_of_two_instances_are_kept_apart(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(100, "job-0"), (1, 1.0))
    write(tmp_path, named(50, "job-1"), (1, 9.0), tag="only")
    write(tmp_path, f"rank-1/{named(50, 'job-1')}", (1, 2.0))
    write(tmp_path, f"rank-2/{named(50, 'job-2')}", (1, 3.0))
    run = RunReader(store, store.list())
    assert sorted(run.tags()) == ["loss", "loss (job-1)", "loss (job-2)", "only"]
    assert [values(run, tag) for tag in sorted(run.tags())] == [[(1, 1.0)], [(1, 2.0)], [(1, 3.0)], [(1, 9.0)]]
    assert run.series("loss (job-1)").tag == "loss (job-1)"


def test_instances_of_a_job_are_named_without_its_id(tmp_path: Path, store: LocalStore) -> None:
    for rank, instance in enumerate(("master-0", "worker-0", "worker-1")):
        write(tmp_path, (f"rank-{rank}/" if rank else "") + named(1, f"train129f212o89d-{instance}"), (1, 1.0))
        write(tmp_path, f"log-metrics/{named(1, f'train129f212o89d-{instance}')}", (1, 2.0))
    names = ["loss", *(f"loss ({name})" for name in ("worker-0", "worker-1"))]
    names += [f"loss ({name}.log)" for name in ("master-0", "worker-0", "worker-1")]
    run = RunReader(store, store.list())
    assert sorted(run.tags()) == sorted(names)
    assert values(run, "loss (worker-1.log)") == [(1, 2.0)]


def test_instances_of_two_jobs_are_kept_apart(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(1, "train1-worker-0"), (1, 1.0))
    write(tmp_path, named(2, "train2-worker-0"), (1, 2.0))
    assert sorted(RunReader(store, store.list()).tags()) == ["loss", "loss (train2-worker-0)"]


def test_tags_are_in_the_order_in_which_they_were_written(tmp_path: Path, store: LocalStore) -> None:
    with EventWriter(tmp_path) as writer:
        writer.scalars({"loss": 1.0, "acc": 0.5}, 1)
        writer.scalars({"a": 1.0}, 2)
    assert [*RunReader(store, store.list()).tags()] == ["loss", "acc", "a"]


def test_ranks_of_one_host_have_the_rank_in_their_name(tmp_path: Path, store: LocalStore) -> None:
    for rank in ("", "rank-1/", "rank-2/"):
        write(tmp_path, rank + named(1, "host"), (1, 1.0))
    assert sorted(RunReader(store, store.list()).tags()) == ["loss", "loss (rank-1)", "loss (rank-2)"]


def test_a_replaced_file_is_read_again(tmp_path: Path, store: LocalStore) -> None:
    path = write(tmp_path, named(1), (1, 1.0), (2, 1.0))
    run = RunReader(store, store.list())
    for points in ([(1, 5.0)], [(1, 6.0), (2, 6.0), (3, 6.0)]):
        epoch = run.epoch
        write(tmp_path, path.name, *points)
        assert run.refresh(store.list())
        assert values(run) == points
        assert run.epoch > epoch
        assert summary(run)[0] == len(points)


def test_a_copy_with_more_points_is_read_on(tmp_path: Path, store: LocalStore) -> None:
    """A synced folder replaces files that have grown; what was read of them is still right."""
    path = write(tmp_path, named(1), (1, 1.0))
    run = RunReader(store, store.list())
    longer = write(tmp_path, "copy", (1, 1.0), (2, 1.0))
    longer.rename(path)
    run.refresh(store.list())
    assert (values(run), run.epoch) == ([(1, 1.0), (2, 1.0)], 0)


def test_a_removed_file_takes_its_points_with_it(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(1), (1, 1.0), (5, 1.0))
    newer = write(tmp_path, named(2), (2, 2.0))
    run = RunReader(store, store.list())
    newer.unlink()
    assert run.refresh(store.list())
    assert values(run) == [(1, 1.0), (5, 1.0)]
    assert summary(run)[0] == 2
    assert run.refresh([])
    assert run.tags() == {}


def test_points_can_be_dropped_and_come_back(tmp_path: Path, store: LocalStore) -> None:
    path = write(tmp_path, named(1), *((step, step / 2) for step in range(1, 5000)))
    with EventWriter(tmp_path, source="job-0") as writer:
        writer.hparams({"lr": 0.1})
        writer.text("note", "hello")
    run = RunReader(store, store.list())
    tags, before = run.tags(), run.nbytes
    run.drop_points()
    assert run.nbytes < before / 20
    assert (repr(run.tags()), run.hparams()) == (repr(tags), {"lr": 0.1})
    add(path, (5000, -1.0))
    assert run.refresh(store.list())
    assert run.nbytes < before / 20
    assert summary(run) == (5000, 1, -1.0, -1.0, 4999 / 2)
    assert len(run.series("loss")) == 5000
    assert run.texts("note")[0].value == "hello"
    assert repr(run.tags()) == repr(RunReader(store, store.list()).tags())
    assert sorted(run.tags()) == ["loss", "note"]


def test_a_restart_while_points_are_dropped(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(1), *((step, 1.0) for step in range(10)))
    run = RunReader(store, store.list())
    run.drop_points()
    before = run.nbytes
    write(tmp_path, named(2), (5, 7.0), (6, 7.0))
    run.refresh(store.list())
    assert summary(run) == (7, 0, 7.0, 1.0, 7.0)
    assert run.nbytes <= before + 1000
    assert values(run)[-3:] == [(4, 1.0), (5, 7.0), (6, 7.0)]


def attempt(folder: Path, began: int, host: str, steps: range, *, value: float = 1.0, walls: float = 0.0) -> None:
    """A file as torch.utils.tensorboard names it."""
    records = [event(step, simple("loss", value), wall=(walls or began) + step - steps[0]) for step in steps]
    write_events(folder / f"events.out.tfevents.{began}.{host}.17.0", *records)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("spot-a", "spot-a"),
        ("spot-a", "spot-b"),
        ("spot-b", "spot-a"),
        ("spot-a", "spot-b.local"),
        ("a", "node-0"),
    ],
)
@pytest.mark.parametrize("clock_s", [600, 30, -30, -600])
@pytest.mark.parametrize("folder", ["", "rank-1"])
def test_a_run_that_goes_on_elsewhere_is_one_curve(
    tmp_path: Path, store: LocalStore, first: str, second: str, clock_s: int, folder: str
) -> None:
    """Whatever the second machine is called, and whatever time it has."""
    (tmp_path / folder).mkdir(exist_ok=True)
    attempt(tmp_path / folder, 1790000000, first, range(60))
    grown = RunReader(store, store.list())
    attempt(tmp_path / folder, 1790000000 + clock_s, second, range(50, 100), value=2.0)
    grown.refresh(store.list())
    for run in (grown, RunReader(store, store.list())):
        assert [*run.tags()] == ["loss"]
        assert values(run) == [(step, 1.0 if step < 50 else 2.0) for step in range(100)]
        assert (summary(run), run.tags()["loss"].replaced) == ((100, 0, 2.0, 1.0, 2.0), 10)


def test_three_attempts_on_machines_whose_clocks_are_behind(tmp_path: Path, store: LocalStore) -> None:
    for clock_s, steps in ((600, range(60)), (0, range(50, 100)), (10, range(90, 150))):
        attempt(tmp_path, 1790000000 + clock_s, f"spot-{steps[0]}", steps, value=steps[0])
    expected = [(step, 0.0 if step < 50 else 50.0 if step < 90 else 90.0) for step in range(150)]
    assert values(RunReader(store, store.list())) == expected


def test_a_run_that_begins_anew_replaces_all(tmp_path: Path, store: LocalStore) -> None:
    for number, (host, steps) in enumerate((("a", range(60)), ("b", range(50, 99)), ("c", range(30)))):
        attempt(tmp_path, 1790000000 + 600 * number, host, steps, value=number)
    run = RunReader(store, store.list())
    assert values(run) == [(step, 2.0) for step in range(30)]
    assert run.tags()["loss"].replaced == 109


def test_an_orphan_that_is_long_older_does_not_come_after_a_new_run(tmp_path: Path, store: LocalStore) -> None:
    """The first attempt was deleted; a new run from the start is still below the steps of the old one."""
    attempt(tmp_path, 1790000000, "a", range(50, 100))
    os.utime(next(tmp_path.iterdir()), (1790000100, 1790000100))
    attempt(tmp_path, 1790001000, "b", range(70), value=2.0)
    assert values(RunReader(store, store.list())) == [(step, 2.0) for step in range(70)]


def test_machines_that_write_at_the_same_time_are_kept_apart(tmp_path: Path, store: LocalStore) -> None:
    """Also when the second one begins to write after the first one was read."""
    attempt(tmp_path, 1790000000, "node-a", range(60))
    grown = RunReader(store, store.list())
    grown.drop_points()
    attempt(tmp_path, 1790000001, "node-b", range(55), value=2.0)
    grown.refresh(store.list())
    assert grown.epoch > 0
    for run in (grown, RunReader(store, store.list())):
        assert {tag: one.count for tag, one in run.tags().items()} == {"loss": 60, "loss (node-b)": 55}
        assert values(run, "loss (node-b)") == [(step, 2.0) for step in range(55)]


def test_what_is_reported_comes_before_what_a_machine_writes(tmp_path: Path, store: LocalStore) -> None:
    attempt(tmp_path, 1790000000, "node-a", range(3))
    write(tmp_path, named(1790000001, "train1-worker-0"), (1, 5.0))
    run = RunReader(store, store.list())
    assert (values(run), values(run, "loss (node-a)")) == ([(1, 5.0)], [(step, 1.0) for step in range(3)])


def test_values_that_are_added_later_replace_only_those_of_equal_steps(tmp_path: Path, store: LocalStore) -> None:
    write(tmp_path, named(100), *((step, 1.0) for step in range(120)))
    newer = write(tmp_path, named(200), (50, 7.0))
    run = RunReader(store, store.list())
    assert (len(run.series("loss")), run.tags()["loss"].replaced, summary(run)[2]) == (120, 1, 1.0)
    add(newer, (70, 7.0), (90, 7.0), (130, 7.0))
    run.drop_points()
    run.refresh(store.list())
    assert [step for step, value in values(run) if value == 7.0] == [50, 70, 90, 130]
    assert (len(run.series("loss")), run.tags()["loss"].replaced) == (121, 3)
    assert repr(run.tags()) == repr(RunReader(store, store.list()).tags())


class Flaky(LocalStore):
    """Fails for some files."""

    broken = ""

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        if self.broken and self.broken in path:
            raise StorageError("no route to the store")
        return super().read(path, start, end)


def test_a_file_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    """MGR-B10: a failed load is repeated, also when the file does not grow. The other files are read."""
    store = Flaky(tmp_path)
    write(tmp_path, named(1), (1, 1.0))
    write(tmp_path, named(2), (2, 2.0))
    store.broken = "0001"
    run = RunReader(store)
    with refused(StorageError):
        run.refresh(store.list())
    assert values(run) == [(2, 2.0)]
    store.broken = ""
    assert run.refresh(store.list())
    assert values(run) == [(1, 1.0), (2, 2.0)]


def test_a_file_that_vanishes_after_the_listing_is_left_out(tmp_path: Path, store: LocalStore) -> None:
    path = write(tmp_path, named(1), (1, 1.0))
    files = list(store.list())
    path.unlink()
    assert RunReader(store, files).tags() == {}


def test_damage_has_the_path_of_its_file(tmp_path: Path, store: LocalStore) -> None:
    path = write(tmp_path, named(1), (1, 1.0), (2, 2.0))
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    run = RunReader(store, store.list())
    assert [(one.path, one.end) for one in run.damaged] == [(path.name, len(content))]
    assert values(run) == [(1, 1.0)]


def test_texts_histograms_and_tensors_are_by_step(tmp_path: Path, store: LocalStore) -> None:
    with EventWriter(tmp_path, source="job-0") as writer:
        for step in (2, 1):
            writer.text("note", f"step {step}", step)
            writer.histogram("weights", [step], step, buckets=1)
            writer.tensor("matrix", [step], (1,), step)
            writer.scalars({"weights": step}, step)
    run = RunReader(store, store.list())
    assert [(one.step, one.value) for one in run.texts("note")] == [(1, "step 1"), (2, "step 2")]
    assert [one.value.tolist() for one in run.tensors("matrix")] == [[1.0], [2.0]]
    assert [one.value.shape for one in run.histograms("weights")] == [(1, 3), (1, 3)]
    assert {tag: (one.kind, one.count) for tag, one in run.tags().items()} == {
        "note": ("text", 2),
        "matrix": ("tensor", 2),
        "weights": ("scalar", 2),
    }
    with pytest.raises(KeyError):
        run.series("note")
    with pytest.raises(KeyError):
        run.texts("weights")


def test_texts_of_an_older_file_are_replaced_too(tmp_path: Path, store: LocalStore) -> None:
    for text in ("old", "new"):
        with EventWriter(tmp_path, source="job-0") as writer:
            for step in range(3 if text == "old" else 2):
                writer.text("note", text, step + (text == "new"))
    assert [(one.step, one.value) for one in RunReader(store, store.list()).texts("note")] == [
        (0, "old"),
        (1, "new"),
        (2, "new"),
    ]


# ---- however a run grows, the answer is that of reading all at once ----------------------------------------

values_read = st.floats(width=32).map(lambda value: value + 0.0)  # of 0.0 and -0.0, either may be the least
chunks = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.tuples(st.integers(0, 30), values_read), max_size=12)),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(
    chunks,
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.sampled_from(["aaa", "aba", "abc", ("t-worker-0",) * 3]),
)
def test_growing_by_parts_gives_the_same_as_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, list[tuple[int, float]]]],
    drops: list[bool],
    hosts: Sequence[str],
) -> None:
    folder = tmp_path_factory.mktemp("run")
    store = LocalStore(folder)
    run = RunReader(store)
    for (number, points), drop in zip(parts, drops, strict=False):
        add(folder / named(100 + number, hosts[number]), *points)
        run.refresh(store.list())
        if drop:
            run.drop_points()
    at_once = RunReader(store, store.list())
    assert repr(run.tags()) == repr(at_once.tags())
    for tag in at_once.tags():
        assert repr(values(run, tag)) == repr(values(at_once, tag))
        whole = at_once.series(tag).summary()
        grown = run.tags()[tag]
        assert (grown.count, grown.min, grown.max, grown.nan_count) == (
            whole.count,
            whole.min,
            whole.max,
            whole.nan_count,
        )


@given(
    st.lists(st.lists(st.tuples(st.integers(-5, 30), st.floats(width=64)), min_size=1, max_size=20), min_size=1)
)
def test_columns_that_grow_are_those_of_all_points(parts: list[list[tuple[int, float]]]) -> None:
    grown, total = None, GrowingSummary("x")
    for part in parts:
        series = Series(
            "x",
            np.array([float(step) for step, _ in part]),
            np.array([step for step, _ in part]),
            np.array([value for _, value in part]),
        )
        (facts,) = series_stats([series])
        if grown is None:
            grown = GrowingSeries(series, facts)
        else:
            grown.record_steps(facts)
            grown.append(series)
        total.add(facts)
    assert grown is not None
    points = sorted((point for part in parts for point in part), key=lambda point: point[0])
    found = grown.series("x")
    assert repr(list(zip(found.step.tolist(), found.value.tolist(), strict=True))) == repr(points)
    assert repr(total.summary()) == repr(found.summary())
    assert (grown.first_step, grown.last_step) == (points[0][0], points[-1][0])
    assert not math.isnan(total.count)


@given(st.data())
def test_facts_of_many_series_are_those_of_each(data: st.DataObject) -> None:
    """Of few and of many points, with as many points as others or not, in any order of the steps."""
    some = []
    for size in data.draw(st.lists(st.sampled_from([1, 3, 8, 9, 9, 20]), max_size=6)):
        step = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size)))
        numbers = st.sampled_from([0.5, -1.5, 2.0, math.nan, math.inf, -math.inf])
        value = data.draw(st.lists(numbers, min_size=size, max_size=size))
        dtype = data.draw(st.sampled_from([np.float32, np.float64]))
        some.append(Series("x", np.arange(float(size)), step, np.array(value, dtype)))
    for series, found in zip(some, series_stats(some), strict=True):
        value = series.value
        finite = value[np.isfinite(value)]
        last = np.flatnonzero(series.step == series.step.max())[-1]
        expected = SeriesStats(
            points=len(series),
            first_step=series.step.min(),
            last=Point(series.wall[last], series.step[last], value[last]),
            is_sorted=bool((np.diff(series.step) >= 0).all()),
            min_value=finite.min(initial=math.inf),
            max_value=finite.max(initial=-math.inf),
            nan_count=np.isnan(value).sum(),
            inf_count=np.isinf(value).sum(),
        )
        assert str([*map(float, (*found[:2], *found[2], *found[3:]))]) == str(
            [*map(float, (*expected[:2], *expected[2], *expected[3:]))]
        )


def test_every_point_of_every_tag_is_kept(tmp_path: Path, store: LocalStore) -> None:
    """MGR-B3: more than 300 tags, and more than 1,000 points of a tag."""
    records = [event(step, simple("long", step)) for step in range(1, 3000)]
    records += [event(step, simple(f"tag/{number}", step)) for step in range(1, 4) for number in range(400)]
    write_events(tmp_path / named(1), *records)
    run = RunReader(store, store.list())
    assert len(run.tags()) == 401
    assert sum(summary.count for summary in run.tags().values()) == 2999 + 1200
    assert len(run.series("long")) == 2999


def test_files_in_any_store(tmp_path: Path) -> None:
    content = write(tmp_path, named(1), *((step, 1.0) for step in range(1, 50))).read_bytes()
    store = open_store("memory://test-run-reader")
    store.write(named(1), content[:1000])
    run = RunReader(store, store.list())
    known = len(run.series("loss"))
    store.write(named(1), content)
    run.refresh(store.list())
    assert (0 < known < 49, len(run.series("loss")), run.epoch) == (True, 49, 0)
    store.write(named(1), content[:100])
    run.refresh(store.list())
    assert (run.epoch, len(run.series("loss"))) == (1, 2)
