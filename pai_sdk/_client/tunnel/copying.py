"""Files and folders between this machine and a running instance, as tar archives in a stream of a tunnel."""

from __future__ import annotations

import os
import posixpath
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pai_sdk._client.tunnel.extraction import Extraction
from pai_sdk._client.tunnel.opening import JobTunnel, reason_of
from pai_sdk._core.paths import parse_path
from pai_sdk._data.storage.progress import ByteBar
from pai_sdk._host.agent.tunnel.frames import MAX_DATA_BYTES
from pai_sdk._host.agent.tunnel.in_job.forward_archive import ForwardArchive
from pai_sdk._host.agent.tunnel.streams import Stream, exit_code
from pai_sdk.errors import (
    FileChangedError,
    InvalidInputError,
    ObjectNotFoundError,
    PaiError,
    Problem,
    StorageError,
    TunnelClosedError,
    TunnelError,
    TunnelRefusedError,
)

_CHUNK_BYTES = 2 * MAX_DATA_BYTES
_MAX_SKIPPED = 10_000  # entries whose reasons are retained; the sender may be hostile
_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class Copied:
    """What was copied: the path of the copy, the files in it, and why entries were left out, by their paths."""

    target: str
    files: int
    size_bytes: int
    skipped: dict[str, str]


def copy_from(tunnel: JobTunnel, path: str, target: str | os.PathLike[str], *, progress: bool = True) -> Copied:
    """Copies a file or folder of the instance to this machine.

    Raises:
        InvalidInputError: `path` is not absolute, or a pattern.
        ObjectNotFoundError: there is no such file.
        StorageError: it cannot be read or written.
    """
    check_remote_path(path)
    source = path.rstrip("/") or "/"
    stream = _open(tunnel, "read_archive", path=source, follow=False)
    with stream, ByteBar(f"copying {posixpath.basename(source)}", is_visible=progress) as bar:
        bar.expect(_size_in(stream.result))
        name = str(stream.result.get("name") or posixpath.basename(posixpath.normpath(source)) or "root")
        extraction = Extraction(_local_target(target, name), is_folder=stream.result.get("kind") == "folder")
        incoming = IncomingArchive(stream, path, bar.advance)
        try:
            with extraction, tarfile.open(fileobj=incoming, mode="r:") as archive:  # type: ignore[call-overload]
                while (member := archive.next()) is not None:
                    extraction.add(member, incoming.copy_to)
                    # A job may send any number.
                    archive.members.clear()
                incoming.drain()
                extraction.finish()
        except OSError as error:
            where = extraction.path_in(error)
            raise incoming.error or StorageError(f"{where}: {error.strerror or error}") from error
        # Headers of headers exhaust the stack of the parser.
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise incoming.error or StorageError(f"{path}: the job sent a damaged archive: {error}") from error
    skipped = {**incoming.skipped, **extraction.skipped}
    return Copied(str(extraction.target), extraction.num_files, extraction.size_bytes, skipped)


def copy_to(tunnel: JobTunnel, source: str | os.PathLike[str], path: str, *, progress: bool = True) -> Copied:
    """Copies a local file or folder into the instance; the errors are those of `copy_from`."""
    check_remote_path(path)
    local = parse_path(source, "source")
    entries = [*_entries(local)]
    name = local.name or local.resolve().name
    mode = "folder" if local.is_dir() else "file"
    stream = _open(tunnel, "write_archive", path=path, mode=mode, name=name)
    outcome = _Outcome(stream, path)
    with stream, ByteBar(f"copying {name}", is_visible=progress) as bar:
        bar.expect(sum(size for _, _, size in entries))
        upload = _Upload(stream, name, bar.advance)
        try:
            upload.run(entries)
        except (BrokenPipeError, TunnelError) as error:
            raise outcome.wait_for_error() or _reason(error) from error
        written = outcome.wait()
    for key, expected in (("files", upload.num_files), ("bytes", upload.size_bytes)):
        # What the instance has left out is not in its numbers.
        if (count := written.get(key)) is not None and count != expected and not outcome.skipped:
            raise StorageError(f"{path}: the job has written {count:,} of {expected:,} {key}")
    skipped = {**upload.skipped, **outcome.skipped}
    return Copied(str(written.get("path") or path), upload.num_files, upload.size_bytes, skipped)


def check_remote_path(path: str) -> None:
    """Raises InvalidInputError for a path in a job that is not absolute, or a pattern."""
    if not isinstance(path, str) or not path.startswith("/"):
        hint = "give the complete path, such as /ml/output/model"
        raise InvalidInputError([Problem("path", f"{path!r} is not an absolute path", hint)])
    if "\0" in path:
        raise InvalidInputError([Problem("path", "contains a NUL character")])
    if _PATTERN & set(path):
        hint = "copy the folder, or select files in the job: pai-sdk exec JOB -- sh -c 'tar …'"
        raise InvalidInputError([Problem("path", f"{path!r} is a pattern, and one path is copied", hint)])


def _local_target(target: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of the copy: in the target, if that is a folder or ends with a slash."""
    if name in (".", "..") or "/" in name or "\0" in name or (os.name == "nt" and set(name) & set("\\:")):
        raise StorageError(f"the job sent an invalid name: {name!r}")
    path = parse_path(target, "target")
    gets_copy = os.fspath(target).endswith(("/", os.sep)) or path.is_dir()
    if gets_copy:
        return path / name
    # As by `cp`: the file is replaced, and not the link to it. `name` is the job's, so that is never followed.
    return path.resolve() if path.is_symlink() and path.is_file() else path


def _open(tunnel: JobTunnel, kind: str, *, path: str, **parameters: Any) -> Stream:
    try:
        return tunnel.open(kind, path=path, **parameters)
    except TunnelRefusedError as error:
        raise _typed(error.code, str(error), path) from error
    except TunnelClosedError as error:
        raise reason_of(error) from error


def _size_in(result: dict[str, Any]) -> int:
    size = result.get("size_bytes")
    return size if isinstance(size, int) and size > 0 else 0  # none in a folder that takes long to read


def _typed(code: str, message: str, path: str) -> PaiError:
    if code == "NotFound":
        return ObjectNotFoundError(message or f"{path}: no such file or folder in the job", uri=path)
    if code == "InvalidRequest":
        return InvalidInputError([Problem("path", message)])
    return StorageError(message or f"{path}: {code}")


def _error_in(event: dict[str, Any], path: str) -> PaiError | None:
    """Returns the error of an event; None if it is none of an error."""
    error = event.get("error")
    if not isinstance(error, dict):
        return None
    return _typed(str(error.get("code", "")), str(error.get("message", "")), path)


def _note_skipped(event: dict[str, Any], skipped: dict[str, str]) -> None:
    if "skipped" in event and len(skipped) < _MAX_SKIPPED:
        skipped[str(event["skipped"])] = str(event.get("reason", ""))


def _reason(error: Exception) -> PaiError:
    return reason_of(error) if isinstance(error, PaiError) else StorageError(f"the job closed the stream: {error}")


class IncomingArchive(ForwardArchive):
    """The archive that a stream has as its data; events are collected."""

    def __init__(self, stream: Stream, path: str, on_data: Callable[[int], None]) -> None:
        super().__init__()
        self._stream = stream
        self._path = path
        self._on_data = on_data
        self.skipped: dict[str, str] = {}
        self.error: PaiError | None = None

    def drain(self) -> None:
        """Reads padding and events behind the archive; raises the error that the instance reports."""
        while self._next():
            pass
        if self.error is not None:
            raise self.error

    def _next(self) -> memoryview:
        try:
            while (message := self._stream.next_message(limit=_CHUNK_BYTES)) is not None:
                name, content = message
                if name == "stdout" and content:
                    self._on_data(len(content))
                    return memoryview(content)
                if name == "event":
                    _note_skipped(content, self.skipped)
                    self.error = self.error or _error_in(content, self._path)
                elif name == "exit" and (code := exit_code(content)):
                    # Killed between two entries, it leaves an archive that looks complete.
                    reason = f"{self._path}: the job has sent only a part: its copy ended with exit code {code}"
                    self.error = self.error or StorageError(reason)
        except TunnelClosedError as error:
            self.error = reason_of(error)
        if self.error is not None:
            raise self.error
        return memoryview(b"")


class _Upload:
    """Sends entries as an archive."""

    def __init__(self, stream: Stream, name: str, on_data: Callable[[int], None]) -> None:
        self._stream = stream
        self._name = name
        self._on_data = on_data
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self.num_files = 0
        self.size_bytes = 0
        self.skipped: dict[str, str] = {}

    def run(self, entries: list[tuple[str, Path, int]]) -> None:
        """Sends all entries."""
        file = _Outgoing(self._stream, self._on_data)
        # Mode "w|" would copy all data several times.
        with tarfile.TarFile(
            fileobj=file,  # type: ignore[arg-type]
            mode="w",
            format=tarfile.PAX_FORMAT,
            copybufsize=_CHUNK_BYTES,
        ) as archive:
            for name, path, _ in entries:
                # The source itself may be a link, such as one to the newest checkpoint.
                archive.dereference = not name
                try:
                    self._add(archive, path, name or self._name)
                except FileNotFoundError:
                    self.skipped[str(path)] = "it was deleted meanwhile"
                except BrokenPipeError:
                    raise
                except OSError as error:
                    raise StorageError(f"{path}: {error.strerror or error}") from error
        file.flush()
        self._stream.end()

    def _add(self, archive: tarfile.TarFile, path: Path, name: str) -> None:
        member = archive.gettarinfo(path, name)
        if member is None or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            self.skipped[str(path)] = "neither a file nor a folder"
            return
        if member.islnk():  # a second name of a file is sent as a file of its own
            member.type, member.linkname = tarfile.REGTYPE, ""
        if member.isreg():
            with path.open("rb") as file:
                member.size = os.fstat(file.fileno()).st_size
                archive.addfile(member, _Exact(file, path, self._buffer))  # type: ignore[arg-type]
            self.size_bytes += member.size
        else:
            archive.addfile(member)
        self.num_files += member.isreg()


class _Outgoing:
    """A stream as a file for writing, by large frames."""

    def __init__(self, stream: Stream, on_data: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_data = on_data
        self._buffer = bytearray()
        self._position = 0

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._position

    def write(self, data: bytes | memoryview) -> int:
        """Sends data; waits while the instance does not read."""
        self._position += len(data)
        self._buffer += data
        if len(self._buffer) >= _CHUNK_BYTES:
            self._send(len(self._buffer) // MAX_DATA_BYTES * MAX_DATA_BYTES)
        return len(data)

    def flush(self) -> None:
        """Sends the rest."""
        self._send(len(self._buffer))

    def _send(self, size: int) -> None:
        with memoryview(self._buffer) as view, view[:size] as sent:
            self._stream.write(sent)
        del self._buffer[:size]
        self._on_data(size)


class _Exact:
    """A file whose size is in the header of its archive; it must not shrink while it is read."""

    def __init__(self, file: IO[bytes], path: Path, buffer: memoryview) -> None:
        self._file = file
        self._path = path
        self._buffer = buffer

    def read(self, size: int) -> memoryview:
        """Returns the next bytes; they are valid until the next call."""
        data = self._buffer[:size]
        if self._file.readinto(data) != size:  # type: ignore[attr-defined]
            raise FileChangedError(f"{self._path} has become shorter while it was copied")
        return data


class _Outcome:
    """The events of an upload, read by a thread of their own while data are sent."""

    def __init__(self, stream: Stream, path: str) -> None:
        self._stream = stream
        self._path = path
        self._events: deque[dict[str, Any]] = deque(maxlen=16)
        self._failure: PaiError | None = None
        self.skipped: dict[str, str] = {}  # why the instance has left out entries, by their names
        self._thread = threading.Thread(target=self._read, name="pai-copy-outcome", daemon=True)
        self._thread.start()

    def wait(self) -> dict[str, Any]:
        """Returns what the instance has written."""
        if (error := self.wait_for_error()) is not None:
            raise error
        for event in reversed(self._events):
            if isinstance(written := event.get("written"), dict):
                return written
        raise StorageError(f"{self._path}: the job did not confirm the copy")

    def wait_for_error(self) -> PaiError | None:
        """Returns why the instance has closed the stream."""
        self._thread.join()
        errors = (_error_in(event, self._path) for event in self._events)
        return next(filter(None, errors), self._failure)

    def _read(self) -> None:
        try:
            for name, content in self._stream.messages():
                if name == "event" and "skipped" in content:
                    _note_skipped(content, self.skipped)
                elif name == "event":
                    self._events.append(content)
        except TunnelClosedError as error:
            self._failure = reason_of(error)


def _raise_unreadable(error: OSError) -> None:
    # A folder that was deleted meanwhile has nothing to copy.
    if not isinstance(error, FileNotFoundError):
        raise StorageError(f"{error.filename}: {error.strerror or error}") from error


def _entries(local: Path) -> Iterator[tuple[str, Path, int]]:
    """Yields the entries of a local file or folder: the name in the archive, the path, and the size."""
    try:
        if not local.is_dir():
            if not local.is_file() and local.exists():
                raise StorageError(f"{local}: neither a file nor a folder")
            yield "", local, local.stat().st_size
            return
        for folder, folders, files in os.walk(local, onerror=_raise_unreadable):
            base = Path(folder)
            if base != local:
                yield base.relative_to(local).as_posix(), base, 0
            links = [name for name in folders if (base / name).is_symlink()]
            for name in sorted([*files, *links]):
                size = 0
                with suppress(OSError):
                    size = (base / name).lstat().st_size
                yield (base / name).relative_to(local).as_posix(), base / name, size
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"{local}: no such file or folder", uri=str(local)) from error
    except OSError as error:
        raise StorageError(f"{local}: {error.strerror or error}") from error
