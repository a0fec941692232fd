"""Archives of jobs: complete files only, and nothing outside of the target, whatever the archive has."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from pai_sdk._client.tunnel.copying import IncomingArchive
from pai_sdk._client.tunnel.extraction import Extraction
from pai_sdk.errors import PathConflictError, StorageError


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=mode)


def extracted(target: Path, *members: tuple[tarfile.TarInfo, bytes], is_folder: bool = True) -> Extraction:
    return extracted_bytes(target, archive_of(*members), is_folder=is_folder)


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as writing:
        for info, content in members:
            writing.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def extracted_bytes(target: Path, data: bytes, *, is_folder: bool) -> Extraction:
    incoming = IncomingArchive(Sent(data), "/source", lambda _: None)  # type: ignore[arg-type]
    extraction = Extraction(target, is_folder=is_folder)
    with extraction, tarfile.open(fileobj=incoming, mode="r:") as reading:
        for info in reading:
            extraction.add(info, incoming.copy_to)
        incoming.drain()
        extraction.finish()
    return extraction


class Sent:
    """A stream with an archive, in messages of odd sizes."""

    def __init__(self, data: bytes) -> None:
        self._messages = [data[start : start + 333] for start in range(0, len(data), 333)]

    def next_message(self, *, limit: int) -> tuple[str, bytes] | None:
        return ("stdout", self._messages.pop(0)) if self._messages else None


def tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_links(tmp_path: Path) -> None:
    done = extracted(
        tmp_path / "new" / "copy",
        folder("."),
        folder("deep/er", 0o500),
        member("deep/er/a", b"a", mode=0o755, mtime=1_700_000_000),
        link("deep/up", "../b"),
        link("to-deep", "deep/er"),
        link("b2", "b", tarfile.LNKTYPE),
        member("b", b"b"),
        link("b3", "b", tarfile.LNKTYPE),
    )
    copy = tmp_path / "new" / "copy"
    assert tree(copy) == {"deep/er/a": "a", "b": "b", "b3": "b", "deep/up": "b"}
    assert (copy / "to-deep" / "a").read_text() == "a"
    assert (copy / "deep/er/a").stat().st_mode & 0o777 == 0o755
    assert (copy / "deep/er/a").stat().st_mtime == 1_700_000_000
    assert done.skipped.keys() == {"b2"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy"]


def test_nothing_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    hostile = [
        member("../out", b"x"),
        member("a/../../out", b"x"),
        member("/tmp/out-of-an-archive", b"x"),
        link("up", ".."),
        member("up/out", b"x"),
        link("absolute", "/etc"),
        link("d", "."),
        link("d2", "d/.."),
        link("a/b/c", "../../.."),
        link("hard", "../secret", tarfile.LNKTYPE),
        link("hard2", "up/secret", tarfile.LNKTYPE),
        member("fifo", type=tarfile.FIFOTYPE),
        member("device", type=tarfile.CHRTYPE),
        member("good", b"good"),
    ]
    done = extracted(tmp_path / "copy", *hostile)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "secret"]
    assert tree(tmp_path / "copy") == {"up/out": "x", "good": "good"}
    assert not (tmp_path / "copy" / "up").is_symlink()
    links = [path.name for path in (tmp_path / "copy").rglob("*") if path.is_symlink()]
    assert links == ["d"]
    assert {"../out", "absolute", "hard", "hard2", "fifo", "device", "d2", "a/b/c"} <= done.skipped.keys()


def test_links_behind_links_do_not_leave_the_folder(tmp_path: Path) -> None:
    hostile = [
        link("d", "."),
        link("d/up", ".."),
        link("up/out", "copy/payload"),
        link("up/new/out", "payload"),
        member("payload", b"x"),
    ]
    done = extracted(tmp_path / "copy", *hostile)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]
    assert [path.name for path in (tmp_path / "copy").rglob("*") if path.is_symlink()] == ["d", "out", "out"]
    assert done.skipped.keys() == {"d/up"}


def test_a_file_replaces_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    extracted(tmp_path / "a", member("anything/../name", b"new"), is_folder=False)
    assert tree(tmp_path) == {"a": "new"}
    with pytest.raises(StorageError):
        extracted(tmp_path / "b", link("b", "/etc/passwd"), is_folder=False)
    with pytest.raises(StorageError):
        extracted(tmp_path / "b", is_folder=False)
    assert tree(tmp_path) == {"a": "new"}


def test_special_files_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PathConflictError):
        extracted(tmp_path / "pipe", member("a", b"a"), is_folder=False)
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_merged_into_an_existing_one(tmp_path: Path) -> None:
    (tmp_path / "copy" / "sub").mkdir(parents=True)
    (tmp_path / "copy" / "sub" / "stays").write_text("1")
    (tmp_path / "copy" / "sub" / "changes").write_text("1")
    extracted(tmp_path / "copy", member("sub/changes", b"2"), member("new/file", b"2"))
    assert tree(tmp_path / "copy") == {"sub/stays": "1", "sub/changes": "2", "new/file": "2"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    (tmp_path / "folder" / "a").mkdir(parents=True)
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    for target, members, is_folder in (
        ("file", [member("a")], True),
        ("folder", [member("folder")], False),
        ("folder", [member("a", b"x")], True),
        ("folder", [member("link/file", b"x")], True),
        ("file/in", [member("in", b"x")], False),
        ("file/deep/in", [member("a", b"x")], True),
    ):
        with pytest.raises(PathConflictError):
            extracted(tmp_path / target, *members, is_folder=is_folder)
    assert (tmp_path / "file").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_errors_name_the_copy_and_not_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path_in_error(name: str, *, is_folder: bool) -> Path:
        extraction = Extraction(tmp_path / name, is_folder=is_folder)
        with pytest.raises(OSError) as caught, extraction:
            extraction.add(member("x" * 300)[0], lambda *_: None)
        return extraction.path_in(caught.value)

    assert path_in_error("copy", is_folder=False) == tmp_path / "copy"
    assert path_in_error("copy", is_folder=True) == tmp_path / "copy" / ("x" * 300)

    def refuse(prefix: str, dir: Path) -> str:
        raise PermissionError(13, "Permission denied", f"{dir}/{prefix}0a")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert path_in_error("copy", is_folder=True) == tmp_path / "copy"


def test_an_incomplete_file_does_not_appear(tmp_path: Path) -> None:
    data = archive_of(member("big", bytes(100_000)))[:50_000]
    with pytest.raises((tarfile.TarError, OSError)):
        extracted_bytes(tmp_path / "big", data, is_folder=False)
    assert [*tmp_path.iterdir()] == []


def test_entries_that_are_not_what_they_seem(tmp_path: Path) -> None:
    """A negative size, one without an end, and a sparse file."""
    before, after = member("before", b"before"), member("after", b"after")
    for size in (-512, -(1 << 40), 1 << 40):
        data = bytearray(archive_of(before, member("b" * 80, b"x" * 600), after))
        offset = 1024 + 124
        data[offset : offset + 12] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
        header = data[1024:1536]
        data[1024 + 148 : 1024 + 156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]  # type: ignore[attr-defined]
        with pytest.raises((tarfile.TarError, StorageError)):
            extracted_bytes(tmp_path / "copy", bytes(data), is_folder=True)
        assert [*tmp_path.iterdir()] == []
    sparse = member("sparse", b"abc", pax_headers={"GNU.sparse.major": "0", "GNU.sparse.map": "0,3"})
    assert extracted(tmp_path / "copy", before, sparse, after).skipped.keys() == {"sparse"}
    assert tree(tmp_path / "copy") == {"before": "before", "after": "after"}


def test_paths_of_linux_that_windows_reads_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.tunnel.extraction._IS_WINDOWS", True)
    names = link("out", "..\\..\\secret"), link("drive", "C:secret"), member("..\\out", b"x"), member("C:x", b"x")
    done = extracted(tmp_path / "copy", *names, member("kept", b"x"))
    assert done.skipped.keys() == {"out", "drive", "..\\out", "C:x"}
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["kept"]
