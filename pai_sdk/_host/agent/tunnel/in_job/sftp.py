"""A server of SFTP version 3 on stdin and stdout, as a function in the job's view (`children`).

Source: draft-ietf-secsh-filexfer-02, and the PROTOCOL of OpenSSH for extensions and the arguments of SYMLINK.
Standard library only.
"""

from __future__ import annotations

import itertools
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from pai_sdk._host.agent.tunnel.children import report

_INIT, _VERSION = 1, 2
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS, _EXTENDED_REPLY = 101, 102, 103, 104, 105, 201
_OK, _EOF, _NO_SUCH_FILE, _PERMISSION_DENIED, _FAILURE, _BAD_MESSAGE, _UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
_MAX_PACKET_BYTES = 256 * 1024 + 1024
_MAX_READ_BYTES = 256 * 1024
_MAX_HANDLES = 1000
_NAMES_A_PACKET = 100
_RECENT_S = 180 * 24 * 3600
_EXTENSIONS = {
    b"posix-rename@openssh.com": b"1",
    b"hardlink@openssh.com": b"1",
    b"fsync@openssh.com": b"1",
    b"statvfs@openssh.com": b"2",
    b"limits@openssh.com": b"1",
}


class _BadMessageError(Exception):
    """A packet that is too short."""


class _Refusal(Exception):
    """A status that is no success."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Attributes(NamedTuple):
    size: int | None = None
    owner: tuple[int, int] | None = None
    mode: int | None = None
    times: tuple[int, int] | None = None


class _Packet:
    """Reads the fields of a packet."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._content):
            raise _BadMessageError
        part = self._content[self._position : end]
        self._position = end
        return part

    def u32(self) -> int:
        number: int = struct.unpack(">I", self.take(4))[0]
        return number

    def u64(self) -> int:
        number: int = struct.unpack(">Q", self.take(8))[0]
        return number

    def string(self) -> bytes:
        return self.take(self.u32())

    def path(self) -> bytes:
        path = self.string()
        if b"\0" in path:
            raise _BadMessageError
        return path or b"."

    def attributes(self) -> _Attributes:
        flags = self.u32()
        size = self.u64() if flags & 1 else None
        owner = (self.u32(), self.u32()) if flags & 2 else None
        mode = self.u32() & 0o7777 if flags & 4 else None
        times = (self.u32(), self.u32()) if flags & 8 else None
        return _Attributes(size, owner, mode, times)


def sftp(_: Mapping[str, Any]) -> int:
    """Serves requests until the client closes the stream."""
    report({"opened": {}})
    source = sys.stdin.buffer
    server = _Server()
    while packet := _receive(source):
        kind, body = packet
        if kind == _INIT:
            extensions = b"".join(_string(name) + _string(value) for name, value in _EXTENSIONS.items())
            _send(_VERSION, struct.pack(">I", 3) + extensions)
        else:
            _send(*server.respond(kind, body))
    return 0


class _Server:
    """The open files and folders of one client."""

    def __init__(self) -> None:
        self._files: dict[bytes, int] = {}
        self._folders: dict[bytes, Iterator[tuple[bytes, bytes]]] = {}
        self._last = 0
        self._requests: dict[int, Callable[[_Packet], tuple[int, bytes]]] = {
            3: self._open,
            4: self._close,
            5: self._read,
            6: self._write,
            7: lambda packet: _attributes(os.lstat(packet.path())),
            8: lambda packet: _attributes(os.fstat(self._file(packet))),
            9: self._set_attributes,
            10: lambda packet: _apply(self._file(packet), packet.attributes()),
            11: self._open_folder,
            12: self._read_folder,
            13: lambda packet: _done(os.unlink, packet.path()),
            14: self._make_folder,
            15: lambda packet: _done(os.rmdir, packet.path()),
            16: lambda packet: _single_name(os.path.realpath(packet.path())),
            17: lambda packet: _attributes(os.stat(packet.path())),  # noqa: PTH116 - bytes
            18: self._rename,
            19: lambda packet: _single_name(os.readlink(packet.path())),  # noqa: PTH115 - bytes
            20: self._link,
            200: self._extended,
        }

    def respond(self, kind: int, body: bytes) -> tuple[int, bytes]:
        """Returns type and body of the response to a request."""
        number = body[:4].ljust(4, b"\0")
        request = self._requests.get(kind)
        try:
            if request is None:
                raise _Refusal(_UNSUPPORTED, "not supported")
            kind, content = request(_Packet(body[4:]))
        except _Refusal as refusal:
            kind, content = _status(refusal.code, str(refusal))
        except FileNotFoundError as error:
            kind, content = _status(_NO_SUCH_FILE, error.strerror or "no such file")
        except PermissionError as error:
            kind, content = _status(_PERMISSION_DENIED, error.strerror or "permission denied")
        except OSError as error:
            kind, content = _status(_FAILURE, error.strerror or str(error))
        except (_BadMessageError, ValueError, OverflowError):
            kind, content = _status(_BAD_MESSAGE, "malformed request")
        return kind, number + content

    # ---- files ----

    def _open(self, packet: _Packet) -> tuple[int, bytes]:
        path, flags, attributes = packet.path(), packet.u32(), packet.attributes()
        access = {1: os.O_RDONLY, 2: os.O_WRONLY, 3: os.O_RDWR}.get(flags & 3)
        if access is None:
            raise _BadMessageError
        for bit, flag in ((4, os.O_APPEND), (8, os.O_CREAT), (16, os.O_TRUNC), (32, os.O_EXCL)):
            access |= flag if flags & bit else 0
        mode = 0o666 if attributes.mode is None else attributes.mode & 0o777
        # A pipe without another end would stop all requests.
        descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        try:
            return _HANDLE, _string(self._add(self._files, descriptor))
        except BaseException:
            os.close(descriptor)
            raise

    def _close(self, packet: _Packet) -> tuple[int, bytes]:
        handle = packet.string()
        if handle in self._files:
            os.close(self._files.pop(handle))
        elif self._folders.pop(handle, None) is None:
            raise _Refusal(_FAILURE, "no such handle")
        return _status(_OK, "")

    def _read(self, packet: _Packet) -> tuple[int, bytes]:
        descriptor, offset, size = self._file(packet), packet.u64(), packet.u32()
        data = os.pread(descriptor, min(size, _MAX_READ_BYTES), offset)
        return (_DATA, _string(data)) if data or not size else _status(_EOF, "end of file")

    def _write(self, packet: _Packet) -> tuple[int, bytes]:
        descriptor, offset, data = self._file(packet), packet.u64(), memoryview(packet.string())
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
        return _status(_OK, "")

    def _file(self, packet: _Packet) -> int:
        descriptor = self._files.get(packet.string())
        if descriptor is None:
            raise _Refusal(_FAILURE, "no such handle")
        return descriptor

    @staticmethod
    def _set_attributes(packet: _Packet) -> tuple[int, bytes]:
        return _apply(packet.path(), packet.attributes())

    # ---- folders and names ----

    def _open_folder(self, packet: _Packet) -> tuple[int, bytes]:
        path = packet.path()
        names = sorted([b".", b"..", *os.listdir(path)])  # noqa: PTH208 - bytes
        return _HANDLE, _string(self._add(self._folders, _entries(path, names)))

    def _read_folder(self, packet: _Packet) -> tuple[int, bytes]:
        entries = self._folders.get(packet.string())
        if entries is None:
            raise _Refusal(_FAILURE, "no such handle")
        names = list(itertools.islice(entries, _NAMES_A_PACKET))
        if not names:
            return _status(_EOF, "end of folder")
        return _NAME, struct.pack(">I", len(names)) + b"".join(name + content for name, content in names)

    @staticmethod
    def _make_folder(packet: _Packet) -> tuple[int, bytes]:
        path, attributes = packet.path(), packet.attributes()
        return _done(os.mkdir, path, 0o777 if attributes.mode is None else attributes.mode & 0o777)

    @staticmethod
    def _rename(packet: _Packet) -> tuple[int, bytes]:
        source, target = packet.path(), packet.path()
        # Of version 3: an existing file is never replaced.
        if os.path.lexists(target):
            raise _Refusal(_FAILURE, "the target exists")
        return _done(os.rename, source, target)

    @staticmethod
    def _link(packet: _Packet) -> tuple[int, bytes]:
        target, link = packet.string(), packet.path()
        return _done(os.symlink, target, link)

    def _extended(self, packet: _Packet) -> tuple[int, bytes]:
        name = packet.string()
        if name == b"posix-rename@openssh.com":
            source, target = packet.path(), packet.path()
            return _done(os.replace, source, target)
        if name == b"hardlink@openssh.com":
            source, target = packet.path(), packet.path()
            return _done(os.link, source, target)
        if name == b"fsync@openssh.com":
            return _done(os.fsync, self._file(packet))
        if name == b"statvfs@openssh.com":
            return _EXTENDED_REPLY, _file_system(os.statvfs(packet.path()))
        if name == b"limits@openssh.com":
            limits = (_MAX_PACKET_BYTES, _MAX_READ_BYTES, _MAX_READ_BYTES, _MAX_HANDLES)
            return _EXTENDED_REPLY, struct.pack(">4Q", *limits)
        raise _Refusal(_UNSUPPORTED, "not supported")

    def _add(self, handles: dict[bytes, Any], content: object) -> bytes:
        if len(self._files) + len(self._folders) >= _MAX_HANDLES:
            raise _Refusal(_FAILURE, "too many open files")
        self._last += 1
        handle = struct.pack(">I", self._last)
        handles[handle] = content
        return handle


def _entries(folder: bytes, names: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a folder: name and long name, and attributes."""
    for name in names:
        try:
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - bytes
        except OSError:
            # Removed meanwhile.
            continue
        yield _string(name) + _string(_long_name(name, status)), _packed(status)


def _long_name(name: bytes, status: os.stat_result) -> bytes:
    """Returns a line as of `ls -l`, which clients print."""
    is_recent = abs(time.time() - status.st_mtime) < _RECENT_S
    date = time.strftime("%b %d %H:%M" if is_recent else "%b %d  %Y", time.localtime(status.st_mtime))
    mode = stat.filemode(status.st_mode)
    line = f"{mode} {status.st_nlink:4} {status.st_uid:<8} {status.st_gid:<8} {status.st_size:8} {date} "
    return line.encode() + name


def _apply(target: bytes | int, attributes: _Attributes) -> tuple[int, bytes]:
    """Sets the attributes of a file by path or descriptor."""
    if attributes.size is not None:
        os.truncate(target, attributes.size)
    if attributes.mode is not None:
        os.chmod(target, attributes.mode)  # noqa: PTH101 - bytes
    if attributes.times is not None:
        os.utime(target, attributes.times)
    if attributes.owner is not None:
        os.chown(target, *attributes.owner)
    return _status(_OK, "")


def _attributes(status: os.stat_result) -> tuple[int, bytes]:
    return _ATTRS, _packed(status)


def _packed(status: os.stat_result) -> bytes:
    times = (max(0, int(seconds)) & 0xFFFFFFFF for seconds in (status.st_atime, status.st_mtime))
    return struct.pack(">IQIIIII", 15, status.st_size, status.st_uid, status.st_gid, status.st_mode, *times)


def _file_system(status: os.statvfs_result) -> bytes:
    return struct.pack(
        ">11Q",
        status.f_bsize,
        status.f_frsize,
        status.f_blocks,
        status.f_bfree,
        status.f_bavail,
        status.f_files,
        status.f_ffree,
        status.f_favail,
        status.f_fsid,
        status.f_flag & 3,
        status.f_namemax,
    )


def _single_name(path: bytes) -> tuple[int, bytes]:
    return _NAME, struct.pack(">I", 1) + _string(path) + _string(path) + struct.pack(">I", 0)


def _done(function: Callable[..., object], *arguments: object) -> tuple[int, bytes]:
    function(*arguments)
    return _status(_OK, "")


def _status(code: int, message: str) -> tuple[int, bytes]:
    return _STATUS, struct.pack(">I", code) + _string(message.encode(errors="replace")) + _string(b"en")


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _receive(source: BinaryIO) -> tuple[int, bytes] | None:
    """Returns type and body of the next packet; None at the end, or for what is no packet."""
    header = source.read(5)
    if len(header) < 5:
        return None
    size, kind = struct.unpack(">IB", header)
    if not 1 <= size <= _MAX_PACKET_BYTES:
        return None
    body = source.read(size - 1)
    return (kind, body) if len(body) == size - 1 else None


def _send(kind: int, body: bytes) -> None:
    data = memoryview(struct.pack(">IB", len(body) + 1, kind) + body)
    while data:
        data = data[os.write(1, data) :]
