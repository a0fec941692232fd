"""Archives of an instance's files: what they contain, and that nothing leaves the folder."""

from __future__ import annotations

import errno
import io
import os
import sys
import tarfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelRefusedError
from tests.support.tunnels import RunningTunnel
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")


@pytest.fixture
def folder(running: RunningTunnel, request: pytest.FixtureRequest) -> Path:
    folder = running.folder / f"test{abs(hash(request.node.name))}"
    folder.mkdir()
    return folder


class Read:
    """The members of an archive that an instance has sent, and its events."""

    def __init__(self, tunnel: Tunnel, path: Path | str, **parameters: object) -> None:
        stream = tunnel.open("read_archive", path=str(path), **parameters)
        self.result = stream.result
        self.events: list[dict[str, object]] = []
        content = b""
        for name, part in stream.messages():
            if name == "stdout":
                content += part
            elif name == "event":
                self.events.append(part)
        assert stream.wait_exit(0) == 0
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            self.members = {member.name: member for member in archive.getmembers()}
            self.contents = {
                name: archive.extractfile(member).read() for name, member in self.members.items() if member.isreg()
            }


def send(tunnel: Tunnel, content: bytes, path: Path | str, mode: str = "folder", name: str = "") -> list[dict]:
    stream = tunnel.open("write_archive", path=str(path), mode=mode, name=name)
    stream.write(content)
    stream.end()
    return [content for kind, content in stream.messages() if kind == "event"]


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as writer:
        for info, content in members:
            info.size = len(content)
            writer.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def test_special_files_are_not_replaced(tunnel: Tunnel, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (event,) = send(tunnel, archive((member("a"), b"a")), folder / "pipe", mode="file", name="a")
    assert event["error"]["code"] == "NotWritable"
    for kind in (tarfile.REGTYPE, tarfile.SYMTYPE):
        event = send(tunnel, archive((member("pipe", kind, "x"), b"")), folder)[0]
        assert event["skipped"] == "pipe"
    assert (folder / "pipe").is_fifo()


# ---- reading ----------------------------------------------------------------------------------------------


def test_a_folder_with_all_kinds_of_entries(tunnel: Tunnel, folder: Path) -> None:
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_bytes(b"content")
    (folder / "large").write_bytes(os.urandom(1_000_001))
    (folder / "script").write_bytes(b"#!/bin/sh\n")
    (folder / "script").chmod(0o755)
    (folder / ("long-" * 40)).write_bytes(b"x")
    (folder / "line\nbreak ü").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(folder) + b"/not-utf8-\xff")).write_bytes(b"bytes")
    (folder / "link").symlink_to("sub/a.txt")
    os.mkfifo(folder / "fifo")
    read = Read(tunnel, folder)
    assert read.result["kind"] == "folder"
    assert read.result["name"] == folder.name
    assert read.result["size_bytes"] == 7 + 1_000_001 + 10 + 1 + 5
    for name in ("sub/a.txt", "large", "script", "long-" * 40, "line\nbreak ü", "not-utf8-\udcff"):
        assert read.contents[name] == (folder / name).read_bytes()
    assert read.members["sub/empty"].isdir()
    assert read.members["link"].linkname == "sub/a.txt"
    assert read.members["script"].mode == 0o755
    assert [event["skipped"] for event in read.events] == ["fifo"]


def test_a_file_and_paths_relative_to_the_working_directory(tunnel: Tunnel, folder: Path) -> None:
    (folder / "file").write_bytes(b"content")
    for path in (folder / "file", f"{folder.name}/file", f"~/{folder.name}/file"):
        read = Read(tunnel, path)
        assert read.result == {"kind": "file", "name": "file", "size_bytes": 7}
        assert read.contents == {"file": b"content"}


@pytest.mark.parametrize("path", ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"])
def test_files_whose_size_is_not_known_are_read_to_their_end(tunnel: Tunnel, path: str) -> None:
    if not Path(path).exists():
        pytest.skip("this kernel has none")
    read = Read(tunnel, path)
    assert (read.contents, read.events) == ({Path(path).name: Path(path).read_bytes()}, [])


def test_a_file_that_cannot_be_read_is_an_error(tunnel: Tunnel) -> None:
    stream = tunnel.open("read_archive", path="/proc/self/mem")
    codes = [content["error"]["code"] for kind, content in stream.messages() if kind == "event"]
    assert (codes, stream.wait_exit(5)) == (["NotReadable"], 1)


def test_a_path_that_ends_with_dots_has_the_name_of_its_folder(tunnel: Tunnel, folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    assert Read(tunnel, folder / "a" / "b" / "..").result["name"] == "a"


def test_links_are_followed_on_request_only(tunnel: Tunnel, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"outside")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "up").symlink_to("..")
    (folder / "nothing").symlink_to("none")
    read = Read(tunnel, folder)
    assert read.contents == {}
    assert {name: info.linkname for name, info in read.members.items()} == {
        "link": str(tmp_path / "outside"),
        "nothing": "none",
        "up": "..",
    }
    followed = Read(tunnel, folder / "sub" if (folder / "sub").exists() else folder, follow=True)
    assert followed.contents["link"] == b"outside"
    assert "nothing" not in followed.members


def test_a_link_to_a_folder_above(tunnel: Tunnel, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "loop").symlink_to("..")
    read = Read(tunnel, folder, follow=True)
    assert [event["skipped"] for event in read.events] == ["sub/loop"]


@pytest.mark.parametrize(
    ("path", "code"), [("/no/such", "NotFound"), ("", "InvalidRequest"), ("/dev/null", "InvalidRequest")]
)
def test_what_cannot_be_read(tunnel: Tunnel, path: str, code: str) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("read_archive", path=path)
    assert caught.value.code == code


def test_files_that_change_while_they_are_read(tunnel: Tunnel, folder: Path) -> None:
    """The archive stays valid when files grow, shrink and vanish."""
    for number in range(40):
        (folder / f"file{number:02}").write_bytes(bytes([number]) * 200_000)
    stop = threading.Event()

    def change() -> None:
        number = 39
        while not stop.is_set() and number:
            path = folder / f"file{number:02}"
            if number % 3 == 0:
                path.unlink()
            elif number % 3 == 1:
                os.truncate(path, 1000)
            else:
                with path.open("ab") as file:
                    file.write(bytes(100_000))
            number -= 1

    changing = threading.Thread(target=change)
    changing.start()
    read = Read(tunnel, folder)
    stop.set()
    changing.join()
    assert read.contents["file00"] == bytes(200_000)
    skipped = {event["skipped"] for event in read.events}
    for name, content in read.contents.items():
        if len(content) == 200_000 and name not in skipped:
            # Bytes that `splice` has passed on become zeros if the file is truncated before they are read.
            assert {*content} <= {content[0], 0}


# ---- writing ----------------------------------------------------------------------------------------------


def test_a_folder_is_written(tunnel: Tunnel, folder: Path) -> None:
    content = archive(
        (member("sub", tarfile.DIRTYPE, mode=0o500), b""),
        (member("sub/script", mode=0o4755), b"#!/bin/sh\n"),
        (member("./deep/er/file"), b"x" * 300_000),
        (member("sub/link", tarfile.SYMTYPE, "../deep"), b""),
        (member("again", tarfile.LNKTYPE, "deep/er/file"), b""),
    )
    events = send(tunnel, content, folder / "new")
    written = {"path": str(folder / "new"), "files": 3, "bytes": 10 + 600_000}
    assert events == [{"written": written}]
    assert (folder / "new/sub/script").stat().st_mode & 0o7777 == 0o755
    assert (folder / "new/deep/er/file").read_bytes() == b"x" * 300_000
    assert (folder / "new/sub/link").readlink() == Path("../deep")
    assert (folder / "new/again").samefile(folder / "new/deep/er/file")
    # Into the existing folder, as by `cp -r`; existing files are replaced.
    (folder / "new/source").mkdir()
    (folder / "new/source/sub").mkdir()
    (folder / "new/source/sub/script").write_bytes(b"old")
    events = send(tunnel, content, folder / "new", name="source")
    assert events[-1]["written"]["path"] == str(folder / "new/source")
    assert (folder / "new/source/sub/script").read_bytes() == b"#!/bin/sh\n"
    assert not list(folder.rglob(".pai-sdk-*"))


@pytest.mark.parametrize(
    ("path", "target"), [("file", "file"), ("existing", "existing/source"), ("new/", "new/source")]
)
def test_a_file_is_written(tunnel: Tunnel, folder: Path, path: str, target: str) -> None:
    (folder / "existing").mkdir()
    events = send(tunnel, archive((member("any/name"), b"content")), f"{folder}/{path}", "file", "source")
    assert events == [{"written": {"path": str(folder / target), "files": 1, "bytes": 7}}]
    assert (folder / target).read_bytes() == b"content"


def test_a_target_that_is_a_link_to_a_file_stays_a_link(tunnel: Tunnel, folder: Path) -> None:
    (folder / "file").write_text("old")
    (folder / "link").symlink_to("file")
    send(tunnel, archive((member("a"), b"new")), folder / "link", "file", "a")
    assert (folder / "link").is_symlink()
    assert (folder / "file").read_text() == "new"
    (folder / "device").symlink_to("/dev/null")
    with pytest.raises(TunnelRefusedError):
        send(tunnel, archive((member("a"), b"new")), folder / "device", "file", "a")


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/../../escaped", ".."])
def test_members_that_would_leave_the_folder(tunnel: Tunnel, folder: Path, name: str) -> None:
    events = send(tunnel, archive((member(name), b"x")), folder / "new")
    assert events[-1]["error"]["code"] == "InvalidArchive"
    assert not list(folder.rglob("escaped"))


@pytest.mark.parametrize(
    "target", ["/etc", "..", "../..", "sub/../../..", "/", "", "../folder/../../x"], ids=lambda name: repr(name)
)
def test_links_that_would_leave_the_folder(tunnel: Tunnel, folder: Path, target: str) -> None:
    content = archive((member("link", tarfile.SYMTYPE, target), b""), (member("link/file"), b"x"))
    events = send(tunnel, content, folder / "new")
    assert events[0]["skipped"] == "link"
    # The member below is in a folder of its own.
    assert (folder / "new/link").is_dir()
    assert not (folder / "new/link").is_symlink()


def test_nothing_is_written_through_links(tunnel: Tunnel, folder: Path, tmp_path: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new/out").symlink_to(tmp_path)
    (folder / "new/name").symlink_to(tmp_path / "file")
    content = archive(
        (member("out/file"), b"x"),
        (member("out", tarfile.DIRTYPE), b""),
        (member("name"), b"inside"),
        (member("inner", tarfile.SYMTYPE, "sub"), b""),
        (member("inner/file"), b"x"),
        (member("hard", tarfile.LNKTYPE, "out/file"), b""),
        (member("device", tarfile.CHRTYPE), b""),
    )
    events = send(tunnel, content, folder / "new")
    assert [event.get("skipped") for event in events[:-1]] == ["out/file", "out", "inner/file", "hard", "device"]
    assert events[-1]["written"]["files"] == 1
    assert list(tmp_path.iterdir()) == []
    # The link itself was replaced.
    assert (folder / "new/name").read_bytes() == b"inside"
    assert not (folder / "new/name").is_symlink()


def broken(change: Callable[[bytes], bytes]) -> bytes:
    return change(archive((member("first"), b"1"), (member("second"), b"2" * 100_000)))


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive" * 1000, broken(lambda content: content[:40_000])],
    ids=["empty", "other", "truncated"],
)
def test_damaged_archives(tunnel: Tunnel, folder: Path, content: bytes) -> None:
    events = send(tunnel, content, folder / "new")
    assert events[-1]["error"]["code"] == "InvalidArchive"
    assert not list(folder.rglob(".pai-sdk-*"))
    assert not (folder / "new/second").exists()


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"path": "/no/such/folder/file", "mode": "file"}, "NotFound"),
        ({"path": "x", "mode": "other"}, "InvalidRequest"),
        ({"path": "x", "mode": "file", "name": "../y"}, "InvalidRequest"),
        ({"path": "x", "mode": "file", "name": ".."}, "InvalidRequest"),
        ({"mode": "file"}, "InvalidRequest"),
        ({"path": "/proc/x", "mode": "folder"}, "NotFound"),
    ],
    ids=str,
)
def test_what_cannot_be_written(tunnel: Tunnel, parameters: dict[str, object], code: str) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("write_archive", **parameters)
    assert caught.value.code == code


@pytest.mark.parametrize("names", [(), (".pai-sdk-0a",)], ids=["without", "of-the-temporary-file"])
def test_a_failed_write_names_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    archives = import_module("pai_sdk._host.agent.tunnel.in_job.archives")  # Linux only
    events = list[dict[str, Any]]()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names)

    monkeypatch.setattr(archives.Extraction, "extract", fail)
    monkeypatch.setattr(archives, "report", events.append)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    target = tmp_path / "new"
    assert archives.write_archive({"path": str(target), "mode": "file"}) == 1
    message = events[-1]["error"]["message"]
    assert message.startswith(f"{target}: ")
    assert ".pai-sdk" not in message


def test_the_client_leaves_in_the_middle(tunnel: Tunnel, folder: Path) -> None:
    content = archive((member("first"), b"1" * 5_000_000))
    stream: Stream = tunnel.open("write_archive", path=str(folder / "new"), mode="folder")
    stream.write(content[:3_000_000])
    until(lambda: list(folder.rglob(".pai-sdk-*")), "a part of the file")
    stream.close()
    until(lambda: not list(folder.rglob(".pai-sdk-*")), "the end of the part")
    assert not (folder / "new/first").exists()
