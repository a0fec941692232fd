"""Archives of files in a container by the engine, for users who may not enter the container themselves.

The engine reads and writes as root in the container, and resolves all paths within it. New files are given to the
user of the container.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, cast

from pai_sdk._host.agent.tunnel import pumps
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._host.execution.docker.tunnel.handlers import engine_errors_refused
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

_CHUNK_BYTES = 1 << 18
_IS_FOLDER = 1 << 31  # in modes of Go


def serve_read_archive(container: InstanceContainer, stream: Stream) -> None:
    """Sends a file or folder of the container as an archive, with names relative to the folder."""
    path = _checked_path(stream)
    entry = _Entry.find(container, path)
    if entry is None:
        raise TunnelRefusedError("NotFound", f"{path}: no such file or folder in the job")
    with engine_errors_refused():
        chunks, _ = container.engine.client.api.get_archive(container.id, entry.path, _CHUNK_BYTES)
    prefix = posixpath.basename(entry.path.rstrip("/"))
    name = posixpath.basename(path.rstrip("/")) or "root"
    stream.confirm({"name": name, "kind": entry.kind, "size_bytes": entry.size_bytes})

    def rename(member: tarfile.TarInfo) -> bool:
        if entry.kind == "file":
            member.name = name
            return True
        for field in ("name", "linkname") if member.islnk() else ("name",):
            setattr(member, field, getattr(member, field).removeprefix(prefix).lstrip("/"))
        return bool(member.name)

    with suppress(OSError, TunnelClosedError):
        _copy_archive(_ChunkFile(iter(chunks)), _StreamFile(stream), rename)
        stream.end()
        stream.send_exit({"code": 0})


def serve_write_archive(container: InstanceContainer, stream: Stream) -> None:
    """Writes an archive of the client to a file or folder of the container."""
    path, mode = _checked_path(stream), stream.parameters.get("mode")
    name = stream.parameters.get("name")
    if mode not in ("file", "folder") or (name is not None and not _is_name(name)):
        raise TunnelRefusedError("InvalidRequest", "mode must be file or folder, and name the name of a file")
    entry = _Entry.find(container, path)
    target = posixpath.normpath(path)
    if name and (path.endswith("/") or (entry is not None and entry.kind == "folder")):
        target = posixpath.join(target, name)
        entry = _Entry.find(container, target)
    if entry is not None and entry.kind != mode:
        raise TunnelRefusedError("PathConflict", f"{target} is a {entry.kind}, and a {mode} is copied")
    base = posixpath.dirname(target)
    while base != "/" and _Entry.find(container, base) is None:
        base = posixpath.dirname(base)
    upload = _Upload(container, base, target, is_folder=mode == "folder")
    stream.confirm({})
    upload.run(stream)


class _Upload:
    """Writes the members of an archive below a folder of the container that exists."""

    def __init__(self, container: InstanceContainer, base: str, target: str, *, is_folder: bool) -> None:
        self._container = container
        self._base = base
        self._target = target
        self._is_folder = is_folder
        user = str(container.inspect()["Config"].get("User") or "0:0").partition(":")
        self._owner = [int(each) if each.isdecimal() else 0 for each in (user[0], user[2])]
        self._num_files = self._size_bytes = 0
        self._error: Exception | None = None

    def run(self, stream: Stream) -> None:
        """Copies the archive from the stream; reports what was written, or the error, as an event."""
        reader, writer = os.pipe()
        thread = pumps.start(self._rewrite, stream, writer)
        try:
            with os.fdopen(reader, "rb") as file, engine_errors_refused():
                self._container.engine.client.api.put_archive(
                    self._container.id, self._base, iter(partial(file.read, _CHUNK_BYTES), b"")
                )
        except TunnelRefusedError as error:
            self._error = self._error or error
        thread.join()
        with suppress(OSError, TunnelClosedError):
            if self._error is not None:
                code = getattr(self._error, "code", "InvalidRequest")
                stream.send_event({"error": {"code": code, "message": str(self._error)}})
            else:
                written = {"path": self._target, "files": self._num_files, "bytes": self._size_bytes}
                stream.send_event({"written": written})
            stream.end()
            stream.send_exit({"code": 0 if self._error is None else 1})

    def _rewrite(self, stream: Stream, writer: int) -> None:
        """Writes the archive for the engine: names below its folder, and the owner of new files."""
        # An incomplete archive makes the engine fail too.
        with suppress(OSError), os.fdopen(writer, "wb") as target:
            try:
                folder = posixpath.dirname(self._target) if not self._is_folder else self._target
                _copy_archive(_ChunkFile(iter(stream.read, b"")), target, self._rename, self._parents(folder))
            except (tarfile.TarError, ValueError, TunnelClosedError) as error:
                self._error = error
        with suppress(TunnelClosedError):
            while stream.read():
                pass

    def _parents(self, folder: str) -> list[tarfile.TarInfo]:
        """Returns the folders that do not exist yet."""
        members, path = [], ""
        relative = posixpath.relpath(folder, self._base)
        for part in relative.split("/") if relative != "." else ():
            path = posixpath.join(path, part)
            member = tarfile.TarInfo(path)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            member.uid, member.gid = self._owner
            members.append(member)
        return members

    def _rename(self, member: tarfile.TarInfo) -> bool:
        if not (member.isreg() or member.isdir() or member.issym()):
            return False
        parts = member.name.split("/")
        if member.name.startswith("/") or ".." in parts:
            raise ValueError(f"{member.name!r} leads out of the folder")
        path = posixpath.join(self._target, member.name) if self._is_folder else self._target
        member.name = posixpath.relpath(path, self._base)
        member.uid, member.gid = self._owner
        member.uname = member.gname = ""
        self._num_files += member.isreg()
        self._size_bytes += member.size
        return True


class _Entry:
    """A file or folder of a container, after all links."""

    def __init__(self, path: str, kind: str, size_bytes: int) -> None:
        self.path = path
        self.kind = kind
        self.size_bytes = size_bytes

    @classmethod
    def find(cls, container: InstanceContainer, path: str) -> _Entry | None:
        """Returns the entry at a path; None if there is none."""
        from docker.errors import NotFound

        for _ in range(2):
            with engine_errors_refused():
                try:
                    chunks, record = container.engine.client.api.get_archive(container.id, path)
                except NotFound:
                    return None
                # Only the record is needed.
                cast(Any, chunks).close()
            if not record.get("linkTarget"):
                break
            path = str(record["linkTarget"])
        is_folder = bool(record["mode"] & _IS_FOLDER)
        return cls(path, "folder" if is_folder else "file", 0 if is_folder else int(record["size"]))


class _ChunkFile(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = b""

    def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes, and nothing at the end."""
        if not self._buffer:
            self._buffer = next(self._chunks, b"")
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


class _StreamFile(io.RawIOBase):
    """A stream as a file."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Sends data."""
        self._stream.write(data)
        return len(data)


def _copy_archive(
    source: io.RawIOBase,
    target: Any,
    rename: Callable[[tarfile.TarInfo], bool],
    first: list[tarfile.TarInfo] | None = None,
) -> None:
    """Copies an archive; `rename` changes each member, and returns whether it is copied."""
    with (
        tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK_BYTES) as reading,
        tarfile.open(fileobj=target, mode="w|", bufsize=_CHUNK_BYTES, format=tarfile.PAX_FORMAT) as writing,
    ):
        for member in first or ():
            writing.addfile(member)
        for member in reading:
            file = reading.extractfile(member) if member.isreg() else None
            # Names of members and their former values in extended headers would differ.
            member.pax_headers = {}
            if rename(member):
                writing.addfile(member, file)


def _checked_path(stream: Stream) -> str:
    path = stream.parameters.get("path")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise TunnelRefusedError("InvalidRequest", "the path is not an absolute one")
    return path


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name) and name not in (".", "..") and not {"/", "\0"} & set(name)
