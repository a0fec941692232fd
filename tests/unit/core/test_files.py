"""Files that processes share: replaced as a whole, published once, locked; whatever dies on the way."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._core import files
from pai_sdk._core.files import (
    close_locked,
    create_at_once,
    is_locked,
    locked,
    locked_folder,
    open_file,
    publish_once,
    replace_file,
    sync_folder,
    take_lock,
)
from tests.support.full_disk import files_of_at_most

pytestmark = pytest.mark.interpreter

OLD, NEW = b"old\n" * 1000, b"new\n" * 3000
_DYING = """if 1:
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from pai_sdk._core.files import publish_once, replace_file
    left, path, new = [int(sys.argv[2])], Path(sys.argv[3]), b"new\\n" * 3000
    def count(event, arguments):
        if event in ("open", "os.rename", "os.link", "os.remove"):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
"""


def dies_at(step: int, action: str, path: Path) -> bool:
    """Do it in a process that is killed before its n-th call that changes a folder; whether it came so far."""
    root = Path(files.__file__).parents[2]
    command = [sys.executable, "-I", "-S", "-c", f"{_DYING}    {action}", str(root), str(step), str(path)]
    code = subprocess.run(command, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


# ---- replace_file -----------------------------------------------------------------------------------------


@given(st.one_of(st.binary(), st.text(st.characters(exclude_categories=["Cs"]))))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, content: str | bytes) -> None:
    path = tmp_path_factory.mktemp("folder") / "a file\n"
    path.write_bytes(OLD)
    replace_file(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("draft", [None, ".draft"])
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path: Path, draft: str | None, durable: bool) -> None:
    path, found, step, has_died = tmp_path / "state", [], 0, True
    where = f"path.with_name({draft!r})" if draft else None
    while has_died:
        path.write_bytes(OLD)
        has_died = dies_at(step, f"replace_file(path, new, durable={durable}, draft={where})", path)
        found.append(path.read_bytes())
        step += 1
    assert found[0] == OLD
    assert found[-1] == NEW
    assert set(found) == {OLD, NEW}
    assert len(found) > 3
    if draft:  # the last one has removed what the others left
        assert {each.name for each in tmp_path.iterdir()} == {"state"}


def test_a_fault_leaves_the_old_content_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "state"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, NEW, durable=True)
    assert path.read_bytes() == OLD
    assert [*tmp_path.iterdir()] == [path]


def test_durable_content_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "state", []

    def noted(file: int) -> None:
        synced.append((os.fstat(file).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", noted)
    replace_file(path, NEW)
    path.unlink()
    replace_file(path, NEW, durable=True)
    assert synced == [(len(NEW), False)]


@pytest.mark.parametrize("write", [replace_file, publish_once])
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_mode_is_less_the_umask(tmp_path: Path, write: Callable[..., object], mode: int) -> None:
    umask = os.umask(0o022)
    try:
        write(tmp_path / "file", NEW, mode=mode)
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode & ~0o022


def test_a_link_in_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(OLD)
    (tmp_path / ".draft").symlink_to(mine)
    replace_file(tmp_path / "file", NEW, draft=tmp_path / ".draft")
    assert (mine.read_bytes(), (tmp_path / "file").read_bytes()) == (OLD, NEW)
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("write", [replace_file, publish_once])
def test_a_draft_of_another_is_neither_written_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., object]
) -> None:
    another = tmp_path / ".another"
    another.write_bytes(OLD)
    monkeypatch.setattr(files, "_draft_of", lambda _: another)
    with pytest.raises(FileExistsError):
        write(tmp_path / "file", NEW)
    assert another.read_bytes() == OLD
    assert [*tmp_path.iterdir()] == [another]


def test_readers_never_see_a_part(tmp_path: Path) -> None:
    path, seen, is_over = tmp_path / "state", set(), threading.Event()
    path.write_bytes(OLD)

    def write() -> None:
        for number in range(200):
            replace_file(path, (OLD, NEW)[number % 2])
        is_over.set()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    while not is_over.is_set():
        seen.add(path.read_bytes())
    for writer in writers:
        writer.join()
    assert seen <= {OLD, NEW}
    assert [*tmp_path.iterdir()] == [path]


# ---- publish_once -----------------------------------------------------------------------------------------


def test_of_several_publishers_one_wins(tmp_path: Path) -> None:
    path, start, count = tmp_path / "stop", threading.Barrier(8), 8
    won: list[bytes] = []

    def publish(number: int) -> None:
        content = str(number).encode() * 5000
        start.wait()
        if publish_once(path, content):
            won.append(content)

    publishers = [threading.Thread(target=publish, args=(number,)) for number in range(count)]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    assert [path.read_bytes()] == won
    assert [*tmp_path.iterdir()] == [path]


def test_a_crash_publishes_all_or_nothing(tmp_path: Path) -> None:
    path, found, step, has_died = tmp_path / "stop", [], 0, True
    while has_died:
        path.unlink(missing_ok=True)
        has_died = dies_at(step, "publish_once(path, new)", path)
        found.append(path.read_bytes() if path.exists() else None)
        step += 1
    assert found[0] is None
    assert found[-1] == NEW
    assert set(found) == {None, NEW}


# ---- locks ------------------------------------------------------------------------------------------------


def test_one_process_at_a_time_unless_they_share(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with (
        locked(path) as first,
        locked(path, waits=False) as second,
        locked(path, shared=True, waits=False) as third,
    ):
        assert (first, second, third) == (True, False, False)
        assert is_locked(path)
    with (
        locked(path, shared=True) as first,
        locked(path, shared=True) as second,
        locked(path, waits=False) as third,
    ):
        assert (first, second, third) == (True, True, False)
        assert not is_locked(path)
    assert not is_locked(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = f"""if 1:
        import sys, time
        from pathlib import Path
        from pai_sdk._core.files import locked
        with locked(Path({str(path)!r})):
            print("locked", flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        assert is_locked(path)
        child.kill()
        child.wait()
    with locked(path, waits=False) as is_ours:
        assert is_ours


@pytest.mark.parametrize("shared", [False, True])
def test_a_program_that_is_just_being_started_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Until it is another program, a process that was forked has all that its parent had open, the lock too."""
    opened: list[int] = []
    really_open = os.open

    def noted(*args: object, **options: object) -> int:
        opened.append(really_open(*args, **options))  # type: ignore[arg-type]
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", noted)
        with locked(tmp_path / "lock", shared=shared):
            as_in_a_fork = os.dup(opened[0])
    try:
        with locked(tmp_path / "lock", waits=False) as is_ours:
            assert is_ours
    finally:
        os.close(as_in_a_fork)


def test_a_child_that_inherits_a_lock_keeps_it(tmp_path: Path) -> None:
    file = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert take_lock(file)
    in_the_child = os.dup(file)
    os.close(file)
    assert is_locked(tmp_path / "lock")
    close_locked(in_the_child)
    assert not is_locked(tmp_path / "lock")


def test_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_here)
    with pytest.raises(OSError, match="No locks"), locked(tmp_path / "lock"):
        pytest.fail("two could be in here")
    with locked_folder(tmp_path):
        pass


def test_a_folder_lets_in_one_at_a_time(tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        other = os.open(tmp_path, os.O_RDONLY)
        assert not take_lock(other, waits=False)
    assert take_lock(other, waits=False)
    close_locked(other)


def test_the_standard_library_is_enough() -> None:
    root = Path(files.__file__).parents[2]
    script = f"import sys; sys.path.insert(0, {str(root)!r}); import pai_sdk._core.files; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, capture_output=True, text=True)
    assert "portalocker" not in ran.stdout


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_sync_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with nullcontext() if number == errno.EINVAL else pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)


# ---- appending ------------------------------------------------------------------------------------------------


def test_a_failed_append_leaves_nothing_behind_and_can_be_repeated(tmp_path: Path) -> None:
    path, record = tmp_path / "journal", b"x" * 20_000 + b"\n"
    assert files.append_to(path, OLD) == len(OLD)
    for size_bytes in (len(OLD), len(OLD) + 1, len(OLD) + 8192, len(OLD) + len(record) - 1):
        with files_of_at_most(size_bytes), pytest.raises(OSError):
            files.append_to(path, record, durable=True)
        assert path.read_bytes() == OLD
    assert files.append_to(path, record) == len(OLD) + len(record)
    assert path.read_bytes() == OLD + record


def test_an_append_removes_what_a_crash_has_left_behind_the_size(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"1\n2\n3")
    assert files.append_to(path, b"30\n", at=4) == 7
    assert path.read_bytes() == b"1\n2\n30\n"


def test_devices_can_be_opened_and_links_are_not_followed(tmp_path: Path) -> None:
    os.close(open_file(Path(os.devnull), os.O_RDONLY))
    (tmp_path / "link").symlink_to(os.devnull)
    with pytest.raises(OSError, match="link"):
        open_file(tmp_path / "link", os.O_RDONLY)


def test_a_file_appears_at_once_with_its_content_and_mode(tmp_path: Path) -> None:
    plain, program = str(tmp_path / "plain"), str(tmp_path / "program")
    created = [create_at_once(plain, b"content"), create_at_once(program, b"", executable=True)]
    if created != [True, True]:
        pytest.skip("this system cannot do it")
    assert Path(plain).read_bytes() == b"content"
    assert not os.access(plain, os.X_OK)
    assert os.access(program, os.X_OK)
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing", "no folder"])
def test_what_is_at_a_path_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "name"
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to nothing":
        path.symlink_to(tmp_path / "nothing")
    else:
        path = tmp_path / "missing" / "name"
    before = [(entry.name, entry.lstat().st_ino) for entry in tmp_path.iterdir()]
    assert not create_at_once(str(path), b"content")
    assert [(entry.name, entry.lstat().st_ino) for entry in tmp_path.iterdir()] == before


def test_of_a_full_disk_nothing_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda file, content: len(content) // 2)
    assert not create_at_once(str(tmp_path / "name"), b"content")
    assert not [*tmp_path.iterdir()]
