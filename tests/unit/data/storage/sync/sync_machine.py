"""Random changes to a folder, syncs, and syncs that are killed: at the end both sides are equal."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pai_sdk._data.storage.store import LocalStore, Store
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._data.storage.sync.memory import SyncMemory
from pai_sdk.errors import ObjectNotFoundError

NAMES = st.sampled_from(["a", "a.txt", "a-b", "b", "d", "é", "run"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.binary(max_size=4)
TIME_NS = 1_700_000_000 * 10**9


class Killed(BaseException):
    """Ends a sync as SIGKILL does: rows that are not on disk yet are lost."""


def tree_of(root: Path) -> dict[str, tuple[bytes, bool] | None]:
    """Files with content and mode; None for empty folders."""
    found: dict[str, tuple[bytes, bool] | None] = {}
    for parent, folders, files in os.walk(root):
        for name in files:
            path = Path(parent, name)
            found[path.relative_to(root).as_posix()] = path.read_bytes(), os.access(path, os.X_OK)
        if not folders and not files and Path(parent) != root:
            found[Path(parent).relative_to(root).as_posix() + "/"] = None
    return found


class SyncMachine(RuleBasedStateMachine):
    """Subclasses give the store in the middle: the folder goes up to it, and down again to a second folder."""

    paths = Bundle("paths")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.here, self.back = self.folder / "here", self.folder / "back"
        self.here.mkdir()
        self.middle = self.make_middle()
        self.clock_ns = 0

    def make_middle(self) -> Store:
        (self.folder / "middle").mkdir()
        return LocalStore(self.folder / "middle")

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(target=paths, path=PATHS, content=CONTENT, program=st.booleans())
    def write(self, path: str, content: bytes, program: bool) -> str:
        place = self.here / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except OSError:  # a file is where a folder is needed, or the other way round
            return path
        place.chmod(0o755 if program else 0o644)
        self.clock_ns += 1  # within one second
        os.utime(place, ns=(TIME_NS, TIME_NS + self.clock_ns))
        return path

    @rule(path=paths, content=CONTENT)
    def replace_by_an_older_file(self, path: str, content: bytes) -> None:
        if (self.here / path).is_file():
            (self.folder / "older").write_bytes(content)
            os.utime(self.folder / "older", ns=(TIME_NS, 1))
            (self.folder / "older").replace(self.here / path)

    @rule(path=paths, to=PATHS)
    def rename(self, path: str, to: str) -> None:
        try:
            (self.here / to).parent.mkdir(parents=True, exist_ok=True)
            (self.here / path).rename(self.here / to)
        except OSError:
            return

    @rule(path=consumes(paths))
    def delete(self, path: str) -> None:
        if (self.here / path).is_dir():
            shutil.rmtree(self.here / path)
        else:
            (self.here / path).unlink(missing_ok=True)

    @rule(path=PATHS)
    def make_folder(self, path: str) -> None:
        try:
            (self.here / path).mkdir(parents=True, exist_ok=True)
        except OSError:
            return

    @rule(at=st.integers(1, 4), keeps_rows=st.booleans(), down=st.booleans())
    def kill_a_sync(self, at: int, keeps_rows: bool, down: bool) -> None:
        left = [at]

        def note(action: str, path: str) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        write = SyncMemory.write

        def lose(memory: SyncMemory, *, now: bool = False) -> None:
            if keeps_rows:
                write(memory, now=now)

        with mock.patch.object(SyncMemory, "write", lose), contextlib.suppress(Killed):
            self.sync(down=down, note=note)

    @rule()
    def sync_both_ways(self) -> None:
        self.sync(down=False)
        self.sync(down=True)
        assert tree_of(self.back) == tree_of(self.here)
        for down in (False, True):
            report = self.sync(down=down)
            assert (report.moved, report.deleted) == (0, 0), "a second sync moves nothing"

    @invariant()
    def no_half_files(self) -> None:
        assert not [path for path in tree_of(self.back) if ".pai-sdk" in path]

    def sync(self, *, down: bool, **options) -> SyncReport:
        source, target = (self.middle, LocalStore(self.back)) if down else (LocalStore(self.here), self.middle)
        memory = self.folder / f"{down}.db"
        sync = DirSync(source, target, delete=True, remember=memory, workers=2, **options)
        is_local = isinstance(self.middle, LocalStore)
        if down and not is_local and not any(True for _ in self.middle.list(folders=True)):
            before = tree_of(self.back)
            with pytest.raises(ObjectNotFoundError):
                sync.run()
            assert tree_of(self.back) == before, "an empty listing deletes nothing"
            shutil.rmtree(self.back, ignore_errors=True)  # on purpose
            return SyncReport()
        return sync.run()
