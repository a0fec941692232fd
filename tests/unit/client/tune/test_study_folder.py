"""The folder of a study: its journal on a disk and in a store, and the claim of the one tuner that drives it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from pai_sdk._client.tune import Tuner, Uniform
from pai_sdk._client.tune.journal import open_journal
from pai_sdk._data.storage import claims
from pai_sdk._data.storage.claims import LEASE_S, claimed
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk.errors import InUseError, RunNotFoundError, StorageError
from tests.support.full_disk import files_of_at_most
from tests.support.messages import refused

SPACE = {"x": Uniform(-1, 1)}


def parabola(config: dict[str, Any]) -> float:
    return float(config["x"] ** 2)


@pytest.fixture(params=["disk", "store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty folder, on the disk and in a store of objects."""
    return open_store(tmp_path / "study" if request.param == "disk" else f"memory://{tmp_path.name}/study")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_SETTLE_S", 0.0)


def test_a_study_lives_in_any_store(store: Store) -> None:
    tuner = Tuner(parabola, SPACE, trials=3, parallel=1, seed=1, study=store.uri)
    tuner.run(show=False)
    Tuner(parabola, SPACE, trials=6, parallel=1, seed=1, study=store.uri).run(show=False)
    assert [one.number for one in Tuner.load(store.uri).trials] == list(range(6))
    assert open_journal(store).read_logs(0) != []


def test_only_what_was_committed_is_there(store: Store) -> None:
    with claimed(store) as claim:
        journal = open_journal(store, claim)
        journal.append_logs([{"n": 1}, {"n": 2}])
        assert [one["n"] for one in journal.read_logs(1)] == [2]
        assert len(open_journal(store)) == 0
        journal.commit()
        journal.commit()  # nothing new
        journal.append_logs([{"n": 3}])
    assert [one["n"] for one in open_journal(store).read_logs(0)] == [1, 2]
    reader = open_journal(store)
    reader.append_logs([{"n": 4}])
    with refused(StorageError):
        reader.commit()


@pytest.mark.parametrize(
    "choices", [[(0.9, 0.999), (0.8, 0.99)], [{1: "a"}, {2: "b"}], [[1, (2, 3)], [4, (5, 6)]], [1, True]]
)
def test_a_function_gets_the_same_choices_when_its_study_goes_on(tmp_path: Path, choices: list[Any]) -> None:
    seen: list[Any] = []

    def train(config: dict[str, Any]) -> float:
        seen.append(config["x"])
        return 1.0

    for trials in (2, 4):
        Tuner(train, {"x": choices}, trials=trials, parallel=1, seed=1, study=tmp_path).run(show=False)
    loaded = Tuner.load(tmp_path, train, trials=6, parallel=1)
    loaded.run(show=False)
    assert repr([one.params["x"] for one in loaded.trials]) == repr(seen)
    assert {repr(value) for value in seen} <= {repr(value) for value in choices}


def test_a_line_that_was_cut_off_is_not_read_and_is_written_again(tmp_path: Path) -> None:
    tuner = Tuner(parabola, SPACE, trials=4, parallel=1, seed=1, study=tmp_path)
    tuner.run(show=False)
    file = tmp_path / "journal.jsonl"
    whole = file.read_bytes()
    for cut in range(1, len(whole), 97):
        file.write_bytes(whole[:-cut])
        trials = tuner.run(show=False)
        assert [one.state for one in trials] == ["complete"] * 4
        assert all(json.loads(line) for line in file.read_bytes().splitlines())


def test_a_search_goes_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    space = {f"a_rather_long_name_{number}": Uniform(-1, 1) for number in range(40)}
    small = Tuner(lambda config: 1.0, space, trials=30, parallel=1, seed=1, study=tmp_path, sampler="random")
    counts = []
    for size_bytes in range(15_000, 64_000, 7_013):
        with files_of_at_most(size_bytes), refused(StorageError):
            small.run(show=False)
        counts.append(len(Tuner.load(tmp_path).trials))  # anybody can read it
    assert counts == sorted(counts)
    assert counts[-1] > 2
    assert [one.state for one in small.run(show=False)] == ["complete"] * 30


def test_a_folder_that_cannot_be_used_and_a_damaged_journal_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with refused(StorageError):
        Tuner(parabola, SPACE, trials=1, study=file / "study").run(show=False)
    (tmp_path / "journal.jsonl").write_text('{"op_code": 0\n')
    with refused(StorageError):
        Tuner(parabola, SPACE, trials=1, study=tmp_path).run(show=False)


@pytest.mark.parametrize("folder_too", [True, False])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_journal_that_is_removed_meanwhile_is_named_and_leaves_no_half_study(
    tmp_path: Path, folder_too: bool, is_replaced: bool
) -> None:
    study, kept = tmp_path / "study", tmp_path / "kept"
    counts: list[int] = []

    def train(config: dict[str, Any]) -> float:
        counts.append(1)
        if len(counts) == 2:
            (study / "journal.jsonl").rename(kept)
            if folder_too:
                shutil.rmtree(study)
            if is_replaced:
                study.mkdir(exist_ok=True)
                shutil.copy(kept, study / "journal.jsonl")
        return float(config["x"])

    with refused(StorageError):
        Tuner(train, SPACE, trials=4, parallel=1, seed=1, study=study).run(show=False)
    if is_replaced:
        assert (study / "journal.jsonl").read_bytes() == kept.read_bytes()
    else:
        with pytest.raises(RunNotFoundError):
            Tuner.load(study)
    assert len(Tuner(train, SPACE, trials=4, parallel=1, seed=1, study=study).run(show=False)) == 4


_CREATED = '{"op_code":0,"worker_id":"a","study_name":"study","directions":[1]}\n'


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "null",
        '{"op_code":99}',
        _CREATED,
        _CREATED.replace('study"', 'other"'),
        '{"op_code":4,"worker_id":"a","study_id":0}',
        _CREATED + '{"op_code":2,"worker_id":"a","study_id":0,"user_attr":{"pai_sdk":{"id":"x"}}}',
        _CREATED + '{"op_code":2,"worker_id":"a","study_id":0,"user_attr":{"pai_sdk":[1]}}',
        "\0",
    ],
)
def test_a_journal_of_another_program_is_a_typed_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "journal.jsonl").write_text(f"{content.strip()}\n")
    for use in (
        lambda: Tuner.load(tmp_path),
        lambda: Tuner(parabola, SPACE, trials=1, study=tmp_path).run(show=False),
        lambda: Tuner(parabola, SPACE, trials=1, warm_start=str(tmp_path)).run(show=False),
    ):
        with refused(StorageError):
            use()


def test_optuna_reads_the_journal_of_a_study_on_disk(tmp_path: Path) -> None:
    Tuner(parabola, SPACE, trials=4, parallel=1, seed=1, study=tmp_path).run(show=False)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.jsonl"))
    study = optuna.load_study(study_name="study", storage=optuna.storages.JournalStorage(backend))
    assert len(study.trials) == 4
    assert study.best_trial.values is not None


def test_the_second_tuner_of_a_study_is_told_who_has_it(store: Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(config: dict[str, Any]) -> float:
        inside.set()
        assert leave.wait(30)
        return 1.0

    first = Tuner(slow, SPACE, trials=1, parallel=1, study=store.uri)
    thread = threading.Thread(target=first.run, kwargs={"show": False})
    thread.start()
    try:
        assert inside.wait(30)
        with pytest.raises(InUseError) as caught:
            Tuner(slow, SPACE, trials=1, study=store.uri).run(show=False)
        assert caught.value.holder["pid"] == os.getpid()
        assert f"process {os.getpid()}" in str(caught.value)
        assert "token" not in caught.value.holder
        with pytest.raises(InUseError):  # a lookout changes nothing
            Tuner(slow, SPACE, trials=1, study=store.uri).run(show=False)
    finally:
        leave.set()
        thread.join()
    assert len(Tuner(slow, SPACE, trials=2, study=store.uri).run(show=False)) == 2


def test_a_lease_runs_out_when_its_holder_is_gone(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}/lease")

    def leave(**changes: Any) -> None:
        holder = {"token": "t", "user": "ann", "host": "far", "pid": 1, "renewed_at": time.time(), **changes}
        store.write("driver.json", json.dumps(holder).encode())

    leave()
    with refused(InUseError), claimed(store):
        pass
    for gone in (
        {"renewed_at": time.time() - LEASE_S - 1},
        {"host": claims.socket.gethostname(), "pid": 2**22 + 1},
    ):
        leave(**gone)
        with claimed(store) as claim:
            claim.check()
        assert [*store.list()] == []  # it is given back


def test_a_tuner_that_has_lost_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}/lost")
    with claimed(store) as claim:
        journal = open_journal(store, claim)
        journal.append_logs([{"n": 1}])
        journal.commit()
        other = open_journal(store, claims.FolderClaim())  # one that took over
        other.append_logs([{"n": 2}])
        other.commit()
        journal.append_logs([{"n": 3}])
        with refused(InUseError):
            journal.commit()
        claim._renewed_at -= LEASE_S + 1  # type: ignore[attr-defined]
        with refused(InUseError):
            claim.check()
    assert [one["n"] for one in open_journal(store).read_logs(0)] == [1, 2]
