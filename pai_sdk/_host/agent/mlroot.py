"""Gives a process the real `/ml`, without Docker: a mount namespace whose root has the host's entries and `/ml`.

The root is a small tmpfs. Every top-level entry of `/` is bound into it (links are copied), `/ml` is created there
and the job's folder bound on it, then the process changes its root. No other process sees these mounts, they
disappear with the last process, and written files belong to the caller. Root needs only a mount namespace; other
users get a user namespace too, in which a caller has its own uid and, after exec, no capability. Standard library
only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY = 0x1
_MS_NOSUID = 0x2
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_UNBINDABLE = 1 << 17
_MS_SLAVE = 1 << 19
_MS_RELATIME = 1 << 21
_MNT_DETACH = 0x2
_MAX_CHROOT_DEPTH = 100
_MAX_STEPS = 1000  # along a path with links
# Mount flags that a user namespace may not take away: they have to be named again when a mount is made read-only.
_LOCKED_FLAGS = {0x2: 0x2, 0x4: 0x4, 0x8: 0x8, 0x400: 0x400, 0x800: 0x800, 0x1000: _MS_RELATIME}


class Bind(NamedTuple):
    """A file or folder that a process sees at an absolute path, which need not exist on the host."""

    source: Path
    target: str
    is_read_only: bool = False


def enter(ml: Path, new_root: Path, *, read_only: tuple[str, ...] = (), binds: Sequence[Bind] = ()) -> None:
    """Moves this process, which must have one thread only, into a root where `ml` is `/ml`."""
    _unshare()
    _make_mounts_slave(new_root)
    for folder in read_only:
        _bind_read_only(ml / folder)
    # `new_root` is an empty folder, a mount point inside the namespace only.
    _mount("tmpfs", str(new_root), "tmpfs", _MS_NOSUID, "mode=755")
    # Otherwise the bind mount of the entry around new_root would bind all of this a second time.
    _mount(None, str(new_root), None, _MS_UNBINDABLE)
    for entry in os.scandir("/"):
        if entry.name != "ml":
            _bind_entry(entry, new_root / entry.name)
    (new_root / "ml").mkdir()
    _mount(str(ml), str(new_root / "ml"), None, _MS_BIND | _MS_REC)
    # A target can lie within another one.
    private = {new_root.stat().st_dev}
    for bind in sorted(binds, key=lambda bind: bind.target):
        _bind_at(bind, new_root, private)
    _change_root(new_root)


def refusal(ml: Path, new_root: Path, *, read_only: tuple[str, ...] = (), binds: Sequence[Bind] = ()) -> str:
    """Returns why `enter` would fail, or an empty string; tries it in a child, which takes milliseconds."""
    if not sys.platform.startswith("linux"):
        return "this is not Linux"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter(ml, new_root, read_only=read_only, binds=binds)
        except Exception as error:
            # A child must never continue in its parent's code.
            os.write(writer, (str(error) or repr(error)).encode()[:1000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message.decode(errors="replace")


def _unshare() -> None:
    if os.geteuid() == 0:
        try:
            _call("unshare", _CLONE_NEWNS)
        except PermissionError:
            # Root of a container without CAP_SYS_ADMIN: continue like other users.
            pass
        else:
            return
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    # Linux before 3.19 has no such file. Without "deny", an unprivileged process cannot write its gid_map.
    with suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _make_mounts_slave(folder: Path) -> None:
    """Makes mounts of the host propagate to this process, and never the other way round."""
    try:
        _mount(None, "/", None, _MS_SLAVE | _MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    else:
        return
    # The root is no mount: this process is under chroot, so the mount is outside. Leave, change it, and return.
    root_fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir("/")
    os.chroot(folder)
    for _ in range(_MAX_CHROOT_DEPTH):
        os.chdir("..")
    os.chroot(".")
    _mount(None, "/", None, _MS_SLAVE | _MS_REC)
    os.fchdir(root_fd)
    os.chroot(".")
    os.close(root_fd)


def _bind_entry(entry: os.DirEntry[str], target: Path, *, source: str = "") -> None:
    source = source or entry.path
    if entry.is_symlink():
        target.symlink_to(Path(source).readlink())
        return
    if entry.is_dir():
        target.mkdir()
    else:
        target.touch()
    try:
        _mount(source, str(target), None, _MS_BIND | _MS_REC)
    except OSError as error:
        # A removed entry, or one without permission, is skipped: the job still gets its /ml.
        if error.errno not in (errno.ENOENT, errno.EACCES):
            raise


def _bind_at(bind: Bind, new_root: Path, private: set[int]) -> None:
    """Binds a file or folder at its path below the new root; `private` are the file systems made for it."""
    target = _in_root(bind.target, new_root)
    if not os.path.lexists(target):
        _make_room(target, private)
        if bind.source.is_dir():
            target.mkdir()
        else:
            target.touch()
    _mount(str(bind.source), str(target), None, _MS_BIND | _MS_REC)
    if bind.is_read_only:
        _remount_read_only(target)


def _in_root(path: str, new_root: Path) -> Path:
    """Returns a path below the new root; links on the way are followed there, and not on the host."""
    resolved = new_root
    parts = list(reversed(Path(path).parts[1:]))
    for _ in range(_MAX_STEPS):
        if not parts:
            return resolved
        part = parts.pop()
        if part == "..":
            resolved = resolved.parent if resolved != new_root else resolved
        elif (resolved / part).is_symlink():
            target = (resolved / part).readlink()
            resolved = new_root if target.is_absolute() else resolved
            parts += reversed([each for each in target.parts if each != "/"])
        else:
            resolved /= part
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _make_room(target: Path, private: set[int]) -> None:
    """Makes the parent of a path a folder of this process alone, where the path can be created."""
    parent = next(parent for parent in target.parents if parent.exists())
    if parent.stat().st_dev not in private:
        # The host's folder is replaced by an empty one with the same entries: nothing is created on the host.
        entries = list(os.scandir(parent))
        view = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        mode = parent.stat().st_mode & 0o777
        _mount("tmpfs", str(parent), "tmpfs", _MS_NOSUID, f"mode={mode:o}")
        for entry in entries:
            _bind_entry(entry, parent / entry.name, source=f"/proc/self/fd/{view}/{entry.name}")
        os.close(view)
        private.add(parent.stat().st_dev)
    target.parent.mkdir(parents=True, exist_ok=True)


def _bind_read_only(folder: Path) -> None:
    _mount(str(folder), str(folder), None, _MS_BIND)
    _remount_read_only(folder)


def _remount_read_only(folder: Path) -> None:
    present = os.statvfs(folder).f_flag
    locked = sum(mount_flag for status_flag, mount_flag in _LOCKED_FLAGS.items() if present & status_flag)
    _mount(None, str(folder), None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | locked)


def _change_root(new_root: Path) -> None:
    """Changes the root."""
    # pivot_root first: a process under chroot cannot create a user namespace.
    os.chdir(new_root)
    try:
        _call("pivot_root", b".", b".")
    except (OSError, AttributeError):
        # The host's root is no mount that can be moved: an initial ramdisk, or a chroot itself.
        os.chroot(".")
    else:
        _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    try:
        _call("mount", *arguments, ctypes.c_ulong(flags), None if data is None else data.encode())
    except OSError as error:
        raise OSError(error.errno, f"mount: {os.strerror(error.errno or 0)}", target) from error


def _call(name: str, *arguments: object) -> None:
    """Calls a function of the C library that returns 0, or sets errno."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
