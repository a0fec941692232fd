"""The folders in which local jobs keep what they have installed, without an engine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pai_sdk._core.files import locked
from pai_sdk._host.agent import environments
from pai_sdk._host.agent.requirement_lists import today
from pai_sdk._host.execution.docker.requirements_cache import CachedRequirements, RequirementsCache

EXACT = ["tiny==1\n"]


class Containers:
    """What the engine reports."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.folders: set[Path] = set()

    def __call__(self) -> tuple[set[str], set[Path]]:
        return self.names, self.folders


@pytest.fixture
def containers() -> Containers:
    return Containers()


@pytest.fixture
def cache(tmp_path: Path, containers: Containers) -> RequirementsCache:
    return RequirementsCache(tmp_path / "cache", containers)


def use(cache: RequirementsCache, texts: list[str] = EXACT, **more: object) -> CachedRequirements:
    facts = {"image": "img", "image_id": "sha256:0a", "user": "1:1", **more}
    with cache.use(texts, **facts) as kept:  # type: ignore[arg-type]
        assert kept is not None
        return kept


def install(kept: CachedRequirements, size_bytes: int = 10) -> None:
    """Do as `instance.sh` does."""
    (kept.folder / "python").mkdir()
    (kept.folder / "python" / "tiny.py").write_bytes(b"#" * size_bytes)
    (kept.folder / "complete").touch()


def test_a_folder_is_that_of_a_list_in_an_image_for_a_user_and_an_index(cache: RequirementsCache) -> None:
    first = use(cache)
    assert not first.is_complete
    install(first)
    assert use(cache) == CachedRequirements(first.folder, is_complete=True)
    assert use(cache, variables={"LR": "0.1"}).is_complete
    others = [
        use(cache, ["tiny==2\n"]),
        use(cache, ["tiny==1\n", ""]),
        use(cache, image_id="sha256:0b"),
        use(cache, user="0:0"),
        use(cache, variables={"PIP_INDEX_URL": "https://me:secret@example.com"}),
    ]
    assert len({first.folder, *(other.folder for other in others)}) == 6
    assert not any(b"secret" in path.read_bytes() for path in cache.folder.rglob("*") if path.is_file())


def test_a_list_that_is_not_exact_is_kept_for_a_day(cache: RequirementsCache) -> None:
    kept = use(cache, ["tiny>=1\n"])
    install(kept)
    assert use(cache, ["tiny>=1\n"]).is_complete
    assert (kept.folder / "kept_for").read_text() == today()
    (kept.folder / "kept_for").write_text(today(time.time() - 86400))
    assert cache.prune() == [kept.folder]


def test_what_an_installation_that_was_cut_off_has_left_is_removed(
    cache: RequirementsCache, containers: Containers
) -> None:
    kept = use(cache)
    for name in (".killed-master-0", ".running-master-0"):
        (kept.folder / name / "lib").mkdir(parents=True)
    containers.names = {"running-master-0"}
    assert use(cache) == CachedRequirements(kept.folder, is_complete=False)
    assert {path.name for path in kept.folder.glob(".*")} == {".running-master-0"}


def test_the_oldest_go_when_all_are_too_large_but_none_that_is_used(
    cache: RequirementsCache, containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for version in range(5):
        kept = use(cache, [f"tiny=={version}\n"])
        install(kept, size_bytes=1000)
        os.utime(kept.folder / "complete", (version + time.time() - 100,) * 2)
        folders.append(kept.folder)
    containers.folders = {folders[0]}
    prune = environments.prune
    monkeypatch.setattr(environments, "prune", lambda *a, **k: prune(*a, **k, max_bytes=2500))
    with locked(folders[1].with_name(f"{folders[1].name}.lock"), shared=True):
        removed = cache.prune()
    assert removed == [folders[2]]
    assert all(int((folder / "complete").read_text()) >= 1000 for folder in folders if folder.exists())


def test_a_job_that_cannot_be_started_removes_nothing(cache: RequirementsCache) -> None:
    old = use(cache, ["tiny>=1\n"])
    (old.folder / "kept_for").write_text("2020-01-01")
    with pytest.raises(OSError, match="engine"), cache.use(EXACT, image="img", image_id="a", user="1:1"):
        raise OSError("engine")
    assert old.folder.exists()


def test_requirements_that_name_files_are_not_cached(tmp_path: Path) -> None:
    cache = RequirementsCache(tmp_path, lambda: (set(), set()))
    with cache.use(["./mine.whl"], image="python:3.11", image_id="sha256:0a", user="0:0") as cached:
        assert cached is None
