"""The names of MindInsight's data manager: MGR-01 to MGR-18."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from pai_sdk.alipai.mindinsight.event_data import (
    BaseCacheItemUpdater,
    CachedTrainJob,
    CacheStatus,
    DataManager,
    DataManagerStatus,
    ParamValueError,
    SummaryLogIsLoading,
    TrainJob,
    TrainJobDetailNotInCacheError,
    TrainJobNotExistError,
    run_id_of,
    train_id_of,
)
from pai_sdk.alipai.mindinsight.summary_watcher import SummaryWatcher
from pai_sdk.alipai.mindinsight.train_jobs import _BasicTrainJob
from tests.support.event_files import event, write_events
from tests.support.messages import refused
from tests.support.waiting import until
from tests.unit.data.run.events.event_runs import append, write_run


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataManager]:
    """With two train jobs, loaded once."""
    write_run(tmp_path / "a", {"loss": [1.0, 0.5], "acc": [0.1, 0.2]})
    write_run(tmp_path / "b", {"loss": [3.0]})
    with DataManager(tmp_path) as made:
        made.start_load_data(reload_interval=0)
        made.wait()
        yield made


def basic(train_id: str = "./a") -> _BasicTrainJob:
    return _BasicTrainJob(train_id, "/runs", "/runs/a", 1.0, 2.0, "/runs/a/profiler")


def test_basic_facts_cannot_be_changed() -> None:
    """MGR-01."""
    job = basic()
    assert (job.train_id, job.summary_base_dir, job.summary_dir) == ("./a", "/runs", "/runs/a")
    assert (job.abs_summary_base_dir, job.abs_summary_dir) == ("/runs", "/runs/a")
    assert (job.create_time, job.update_time, job.profiler_dir) == (1.0, 2.0, "/runs/a/profiler")
    with pytest.raises(AttributeError):
        job.train_id = "./b"  # type: ignore[misc]


def test_a_cached_train_job() -> None:
    """MGR-02."""
    job = CachedTrainJob(basic())
    assert (job.cache_status, job.last_access_time) == (CacheStatus.NOT_IN_CACHE, 0.0)
    job.update_access_time()
    assert job.last_access_time > 0
    job.set("key", [1])
    assert job.get("key") == [1]
    job.delete("key")
    for call in (job.get, job.delete):
        with refused(ParamValueError):
            call("key")
        assert call("key", False) is None
    job.basic_info = basic("./b")
    assert job.basic_info.train_id == "./b"
    with job.lock_key("a"), job.lock_key("b"), job.lock_key("a"):
        pass


def test_a_train_job_of_both_caches() -> None:
    """MGR-03."""
    brief, detail = CachedTrainJob(basic()), CachedTrainJob(basic())
    brief.set("lineage", 1)
    detail.set("datavisual", 2)
    detail.cache_status = CacheStatus.CACHED
    alone = TrainJob(brief)
    assert (alone.has_detail(), alone.get_brief("lineage"), alone.get_brief("other")) == (False, 1, None)
    assert (alone.cache_status, alone.get_basic_info().train_id) == (CacheStatus.NOT_IN_CACHE, "./a")
    with pytest.raises(TrainJobDetailNotInCacheError):
        alone.get_detail("datavisual")
    both = TrainJob(brief, detail)
    assert (both.has_detail(), both.get_detail("datavisual"), both.cache_status) == (True, 2, CacheStatus.CACHED)


def test_updaters_are_registered_by_their_class(data: DataManager, tmp_path: Path) -> None:
    """MGR-04, MGR-06, MGR-14."""

    class Lineage(BaseCacheItemUpdater):
        def __init__(self, word: str) -> None:
            self.word = word
            self.calls = 0

        def update_item(self, cache_item: CachedTrainJob) -> None:
            self.calls += 1
            cache_item.set("lineage", f"{self.word} {cache_item.basic_info.train_id}")

    first, second = Lineage("first"), Lineage("second")
    data.register_brief_cache_item_updater(first)
    data.register_brief_cache_item_updater(second)
    cache = data.get_brief_cache()
    cache.update_cache()
    assert (first.calls, second.calls) == (0, 2)
    assert data.get_brief_train_job("./a").get("lineage") == "second ./a"
    assert cache.cache_train_job("./a") is False
    assert data.get_brief_train_job("./a").last_access_time > 0
    write_run(tmp_path / "c", {"loss": [1.0]})
    data.wait()
    assert data.get_brief_train_job("./c").get("lineage") == "second ./c"
    assert second.calls == 3


class Recorder(BaseCacheItemUpdater):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def update_item(self, cache_item: CachedTrainJob) -> None:
        self.seen.append(cache_item.basic_info.train_id)
        cache_item.set(type(self).__name__, True)


class Failing(Recorder):
    def __init__(self, *ids: str) -> None:
        super().__init__()
        self.ids = set(ids)

    def update_item(self, cache_item: CachedTrainJob) -> None:
        super().update_item(cache_item)
        if cache_item.basic_info.train_id in self.ids:
            raise ZeroDivisionError("the updater is broken")


def test_updaters_run_with_each_load(tmp_path: Path) -> None:
    """MGR-06: they run with a load, before a train job is asked for."""
    write_run(tmp_path / "a", {"loss": [1.0]})
    recorder = Recorder()
    with DataManager(tmp_path) as data:
        data.register_brief_cache_item_updater(recorder)
        data.start_load_data(reload_interval=0)
        until(lambda: recorder.seen == ["./a"])
        write_run(tmp_path / "b", {"loss": [1.0]})
        data.reload_data()
        until(lambda: recorder.seen == ["./a", "./b"])
        append(next((tmp_path / "a").iterdir()), {"loss": [0.1]}, first=2)
        data.wait()
        assert recorder.seen == ["./a", "./b", "./a"]
        data.wait()
        assert len(recorder.seen) == 3, "nothing has changed"


def test_an_updater_that_fails_ends_no_other_update(
    data: DataManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing, recorder = Failing("./a"), Recorder()
    for updater in (failing, recorder):
        data.register_brief_cache_item_updater(updater)
    assert sorted(data.get_brief_cache().get_train_jobs()) == ["./a", "./b"]
    assert (sorted(failing.seen), sorted(recorder.seen)) == (["./a", "./b"], ["./a", "./b"])
    assert "Failing failed for 1 train jobs, first for ./a" in caplog.text
    write_run(tmp_path / "c", {"loss": [1.0]})
    failing.ids.clear()
    data.wait()
    assert failing.seen[2:] == ["./a", "./c"], "what failed is tried again"
    assert recorder.seen[2:] == ["./c"]
    data.wait()
    assert len(failing.seen) == 4
    assert data.get_brief_train_job("./c").get("Recorder") is True


def test_updaters_are_called_once_by_several_threads(data: DataManager) -> None:
    recorder = Recorder()
    data.register_brief_cache_item_updater(recorder)
    threads = [threading.Thread(target=data.get_brief_cache().get_train_jobs) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recorder.seen) == ["./a", "./b"]


def test_the_cache_follows_the_disk(data: DataManager, tmp_path: Path) -> None:
    """MGR-05: vanished jobs are dropped, existing items are kept with new facts. MGR-B12: size and jobs answer."""
    cache = data.get_brief_cache()
    assert (cache.size, cache.has_content(), sorted(cache.get_train_jobs())) == (2, True, ["./a", "./b"])
    item = cache.get_train_job("./a")
    item.set("mine", 1)
    before = item.basic_info.update_time
    (file,) = (tmp_path / "b").iterdir()
    file.unlink()
    append(next((tmp_path / "a").iterdir()), {"loss": [0.1]}, first=2)
    data.wait()
    assert sorted(cache.get_train_jobs()) == ["./a"]
    assert cache.get_train_job("./a") is item
    assert item.get("mine") == 1
    assert item.basic_info.update_time >= before
    cache.get_train_jobs().clear()  # a copy
    assert cache.size == 1
    with pytest.raises(TrainJobNotExistError):
        cache.get_train_job("./b")
    cache.delete_train_job("./a")
    cache.delete_train_job("./unknown")
    assert not cache.has_content()


def test_all_train_jobs_have_their_detail(tmp_path: Path) -> None:
    """MGR-07 and MGR-B3: the original kept the detail of 15 jobs, and 300 tags of each."""
    for number in range(20):
        write_run(tmp_path / f"job-{number}", {f"tag-{tag}": [1.0] for tag in range(310 if number == 0 else 1)})
    with DataManager(tmp_path) as data:
        data.start_load_data(reload_interval=0)
        data.wait()
        for number in range(20):
            job = data.get_train_job(f"./job-{number}")
            assert job is not None
            assert job.cache_status is CacheStatus.CACHED
        found = data.get_train_job_by_plugin("./job-0", "scalar")
        assert found is not None
        assert len(found["tags"]) == 310


def test_the_content_of_a_train_job(data: DataManager, tmp_path: Path) -> None:
    """MGR-08, MGR-09."""
    job = data.get_train_job("./a")
    assert job is not None
    facts = job.get("datavisual")
    assert facts["tag_mapping"] == {"scalar": ["acc/scalar", "loss/scalar"]}
    assert (facts["loader_id"], facts["name"], facts["path"]) == ("a", "./a", str(tmp_path / "a"))
    assert facts["latest_update_time"] > 0
    assert data.get_train_job_by_plugin("./a", "scalar") == {
        "id": "./a",
        "name": "./a",
        "tags": ["acc/scalar", "loss/scalar"],
    }
    assert data.get_train_job_by_plugin("./a", "image") == {"id": "./a", "name": "./a", "tags": []}
    with refused(TrainJobNotExistError):
        data.get_train_job("./c")


def test_the_values_of_a_tag(data: DataManager) -> None:
    """MGR-10."""
    found = data.list_tensors("./a", "loss/scalar")
    assert [(one.step, one.value) for one in found] == [(0, 1.0), (1, 0.5)]
    assert found == data.list_tensors("./a", "loss")
    wall_time, _, _ = found[0]
    assert wall_time > 1_700_000_000
    with refused(ParamValueError):
        data.list_tensors("./a", "missing/scalar")
    with refused(TrainJobNotExistError):
        data.list_tensors("./c", "loss/scalar")


def test_the_tensors_of_another_plugin(tmp_path: Path) -> None:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    named = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="pr_curves"))
    values = [Summary.Value(tag="pr", metadata=named, tensor=make_tensor_proto([[0.5, step]])) for step in (0, 1)]
    write_events(tmp_path / "a" / "events.out.tfevents.1", *map(event, (0, 1), values))
    with DataManager(tmp_path) as data:
        data.start_load_data(reload_interval=0)
        data.wait()
        assert data.get_train_job_by_plugin("./a", "pr_curves")["tags"] == ["pr/pr_curves"]
        assert [one.value.tolist() for one in data.list_tensors("./a", "pr/pr_curves")] == [
            [[0.5, 0.0]],
            [[0.5, 1.0]],
        ]
        assert data._started().run("a").tensors("pr")[1].step == 1


def test_the_status_of_a_data_manager(tmp_path: Path) -> None:
    """MGR-11."""
    link = tmp_path / "link"
    (tmp_path / "runs").mkdir()
    link.symlink_to(tmp_path / "runs")
    with DataManager(link) as data:
        assert data.summary_base_dir == str(tmp_path / "runs")
        assert data.status is DataManagerStatus.INIT
        for query in (
            lambda: data.get_train_job("./a"),
            lambda: data.list_tensors("./a", "loss"),
            lambda: data.get_brief_train_job("./a"),
            lambda: data.cache_train_job("./a"),
            data.list_train_jobs,
        ):
            with pytest.raises(SummaryLogIsLoading):
                query()
        data.start_load_data(reload_interval=0)
        until(lambda: data.status is DataManagerStatus.INVALID)  # there is nothing
        write_run(tmp_path / "runs" / "a", {"loss": [1.0]})
        data.reload_data()
        until(lambda: data.status is DataManagerStatus.DONE)
        assert data.error == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"reload_interval": -1},
        {"reload_interval": True},
        {"reload_interval": "3"},
        {"reload_interval": 1.5},
        {"max_threads_count": 0},
        {"max_threads_count": True},
        {"max_threads_count": None},
    ],
)
def test_what_start_load_data_takes(tmp_path: Path, wrong: dict[str, int]) -> None:
    """MGR-12, MGR-B4."""
    data = DataManager(tmp_path)
    with refused(ParamValueError):
        data.start_load_data(**wrong)
    assert data.status is DataManagerStatus.INIT


def test_reload_in_the_background(tmp_path: Path) -> None:
    """MGR-12: a daemon thread loads again and again; requests at the same time are one."""
    write_run(tmp_path / "a", {"loss": [1.0]})
    with DataManager(tmp_path) as data:
        data.reload_data()  # also starts
        until(lambda: data.status is DataManagerStatus.DONE)
        data.start_load_data(reload_interval=1)
        assert [one.daemon for one in threading.enumerate() if one.name == "run-manager"] == [True]
        write_run(tmp_path / "b", {"loss": [1.0]})
        for _ in range(5):
            data.reload_data()
        until(lambda: data.list_train_jobs()["total"] == 2 if data.status.value != "INIT" else False)


def test_caching_and_deleting(data: DataManager, tmp_path: Path) -> None:
    """MGR-13, MGR-B5."""
    data.cache_train_job("./a")
    until(lambda: data.get_train_job("./a") is not None)
    with pytest.raises(TrainJobNotExistError):
        data.cache_train_job("./c")
    os.utime(next((tmp_path / "a").iterdir()), (1_700_000_000, 1_700_000_000))
    data.wait()
    assert [job.train_id for job in data.list_train_jobs()["train_jobs"]] == ["./b", "./a"]
    assert data.list_train_jobs(offset=1, limit=1)["train_jobs"][0].train_id == "./a"
    with pytest.raises(ParamValueError):
        data.list_train_jobs(limit=0)
    with pytest.raises(NotImplementedError):
        data.delete_train_job("./a", only_delete_from_cache=False)
    data.delete_train_job("./a")
    for _ in range(2):
        data.wait()
        assert data.list_train_jobs()["total"] == 1
        with pytest.raises(TrainJobNotExistError):
            data.get_train_job("./a")


def test_every_point_is_kept(tmp_path: Path) -> None:
    """MGR-16 and MGR-B3: the original kept 1,000 points a tag. Fewer are given only when that is asked for."""
    values = [float(step % 997) for step in range(3000)]
    write_run(tmp_path / "a", {"loss": values})
    with DataManager(tmp_path) as data:
        data.start_load_data(reload_interval=0)
        data.wait()
        assert [one.value for one in data.list_tensors("./a", "loss/scalar")] == values
        few = data.list_tensors("./a", "loss/scalar", sample=100)
        assert len(few) <= 100
        assert (max(one.value for one in few), few[-1].step) == (996.0, 2999)  # the newest one is among them


# ---- the watcher --------------------------------------------------------------------------------------------


def test_the_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-18."""
    watcher = SummaryWatcher()
    old = write_run(tmp_path / "old", {"loss": [1.0]})
    os.utime(old, (1_700_000_000, 1_700_000_000))
    write_run(tmp_path / "new", {"loss": [1.0]})
    write_run(tmp_path / "deep" / "er", {"loss": [1.0]})
    (tmp_path / "link").symlink_to(tmp_path / "old")
    found = watcher.list_summary_directories(str(tmp_path))
    assert [one.relative_path for one in found] == ["./new", "./old"]  # two levels, no links
    assert (found[1].update_time, found[1].summary_files) == (1_700_000_000, 1)
    here = write_run(tmp_path, {"loss": [1.0]})
    assert "./" in [one.relative_path for one in watcher.list_summary_directories(str(tmp_path))]
    here.unlink()
    total, page = watcher.list_summary_directories_by_pagination(str(tmp_path), offset=1, limit=1)
    assert (total, [one.relative_path for one in page]) == (2, ["./old"])

    class Narrow(SummaryWatcher):
        MAX_SUMMARY_DIR_COUNT, MAX_SCAN_COUNT = 1, 2

    watcher = Narrow()
    assert len(watcher.list_summary_directories(str(tmp_path))) == 1
    assert watcher.list_summary_directories(str(tmp_path), overall=False) == []
    assert watcher.list_summary_directories(str(tmp_path / "nothing")) == []


def test_the_watcher_refuses_other_paths(tmp_path: Path) -> None:
    """MGR-18: null bytes and paths that lead out."""
    watcher = SummaryWatcher()
    write_run(tmp_path / "runs" / "a", {"loss": [1.0]})
    base = str(tmp_path / "runs")
    assert watcher.is_summary_directory(base, "./a")
    assert not watcher.is_summary_directory(base, "./b")
    (tmp_path / "runs" / "out").symlink_to(tmp_path)
    for wrong in ("../x", "./a/../../x", "/etc", "./a\0", "", "./out"):
        with pytest.raises(ParamValueError):
            watcher.is_summary_directory(base, wrong)
    for wrong in ("", "a\0b"):
        with pytest.raises(ParamValueError):
            watcher.list_summary_directories(wrong)
    with pytest.raises(ParamValueError):
        watcher.list_summary_directories_by_pagination(base, offset=-1)


@pytest.mark.parametrize(("run_id", "train_id"), [("a/b", "./a/b"), (".", "./")])
def test_the_id_of_a_train_job_is_a_path(run_id: str, train_id: str) -> None:
    assert train_id_of(run_id) == train_id
    assert run_id_of(train_id) == run_id
