"""What every store does. A test module makes a subclass with the fixture `store`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._data.storage.store import LocalStore, Store, StoredFile
from pai_sdk._data.storage.sync.dir_sync import move_file
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, StorageError

HOSTILE = ["a b.txt", "quote'\".py", "日本.py", "line\nbreak", "-rf", "$(touch x)", "%2e%2e", "#?&", "a+b"]
LARGE = bytes(range(256)) * 4 * 9000  # 9 MiB: more than one part


class StoreConformance:
    keeps_modes = True

    def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert store.uri.endswith("/")
        assert "://" in store.uri

    def test_what_is_written_is_read(self, store: Store) -> None:
        for content in (b"", b"hello", LARGE):
            written = store.write("dir/file", content)
            assert (written.path, written.size_bytes) == ("dir/file", len(content))
            assert b"".join(store.read("dir/file")) == content
            assert store.head("dir/file").size_bytes == len(content)

    def test_content_comes_as_bytes_as_pieces_or_as_a_file(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(LARGE)
        store.write("file", tmp_path / "source")
        store.write("pieces", (LARGE[at : at + 1000] for at in range(0, len(LARGE), 1000)))
        store.write("nothing", iter(()))
        assert b"".join(store.read("file")) == b"".join(store.read("pieces")) == LARGE
        assert b"".join(store.read("nothing")) == b""

    def test_ranges(self, store: Store) -> None:
        store.write("file", b"0123456789")
        for start, end in [(0, None), (0, 0), (3, 3), (2, 5), (9, 10), (4, None), (7, 99), (10, None), (50, 60)]:
            assert b"".join(store.read("file", start, end)) == b"0123456789"[start:end]
        store.write("empty", b"")
        assert b"".join(store.read("empty", 0, 10)) == b""
        store.write("large", LARGE)
        assert b"".join(store.read("large", 8_000_000, 9_000_000)) == LARGE[8_000_000:9_000_000]

    def test_a_list_is_sorted_by_path_and_begins_with_the_prefix(self, store: Store) -> None:
        names = ["a.txt", "a/b", "a-b", "a/b.c/d", "runs/7/x", "runs/71/x", "z", "日本/ä", *HOSTILE]
        for name in names:
            store.write(name, name.encode())
        found = list(store.list())
        assert [file.path for file in found] == sorted(names, key=str.encode)
        assert [file.size_bytes for file in found] == [len(file.path.encode()) for file in found]
        assert [file.path for file in store.list("runs/7")] == ["runs/7/x", "runs/71/x"]
        assert [file.path for file in store.list("runs/7/")] == ["runs/7/x"]
        assert list(store.list("missing/")) == []
        for name in names:
            assert b"".join(store.read(name)) == name.encode()

    def test_an_etag_changes_with_the_content_and_only_then(self, store: Store) -> None:
        etag = store.write("file", b"one").etag
        assert store.head("file").etag == etag
        assert [file.etag for file in store.list()] == [etag]
        store.write("file", b"two")
        assert store.head("file").etag != etag
        assert [file.etag for file in store.list()] == [store.head("file").etag]

    def test_times(self, store: Store) -> None:
        store.write("file", b"")
        assert (store.head("file").modified_ns or 0) > 1_600_000_000 * 10**9
        assert (next(iter(store.list())).modified_ns or 0) > 1_600_000_000 * 10**9

    def test_programs(self, store: Store, tmp_path: Path) -> None:
        store.write("run", b"#!", executable=True)
        store.write("data", b"#!")
        store.copy("run", "twin")
        marked = {path for path in ("run", "data", "twin") if store.head(path).executable}
        assert marked == ({"run", "twin"} if self.keeps_modes else set())

    @pytest.mark.parametrize("content", [b"", b"hello", LARGE * 2], ids=["empty", "small", "large"])
    def test_files_come_from_the_local_disk_and_go_back(
        self, store: Store, tmp_path: Path, content: bytes
    ) -> None:
        here, again = LocalStore(tmp_path / "here"), LocalStore(tmp_path / "again")
        here.write("deep/file", content, executable=True)
        move_file(here, here.head("deep/file"), store, "a b/twin")
        move_file(store, store.head("a b/twin"), again, "ü")
        assert (again.root / "ü").read_bytes() == b"".join(store.read("a b/twin")) == content
        assert again.head("ü").executable == self.keeps_modes
        with pytest.raises(ObjectNotFoundError):
            move_file(store, StoredFile("missing", 1, None, "etag"), again, "missing")
        assert [file.path for file in again.list()] == ["ü"]

    def test_what_is_not_there_is_typed(self, store: Store) -> None:
        store.write("dir/file", b"x")
        for act in (store.head, lambda path: list(store.read(path)), lambda path: store.copy(path, "other")):
            for path in ("missing", "dir", "missing/file", "dir/file/below"):
                with pytest.raises(ObjectNotFoundError) as caught:
                    act(path)
                assert caught.value.code == "NoSuchKey"
                assert path in str(caught.value)
        assert [file.path for file in store.list()] == ["dir/file"]

    def test_copies(self, store: Store) -> None:
        store.write("a", b"hello")
        copied = store.copy("a", "deep/b")
        assert (copied.path, copied.size_bytes) == ("deep/b", 5)
        assert copied.etag == store.head("deep/b").etag
        store.write("a", b"other")
        assert b"".join(store.read("deep/b")) == b"hello"
        store.copy("a", "deep/b")
        assert b"".join(store.read("deep/b")) == b"other"

    def test_a_file_is_created_once(self, store: Store) -> None:
        assert store.create("run/owner.json", b"first")
        assert not store.create("run/owner.json", b"second")
        assert b"".join(store.read("run/owner.json")) == b"first"

    def test_deletions(self, store: Store) -> None:
        for name in ("a", "dir/b", "dir/c", *HOSTILE):
            store.write(name, b"")
        store.delete(["a", "dir/b", "missing", "missing/x", *HOSTILE])
        assert [file.path for file in store.list()] == ["dir/c"]
        store.delete([])
        store.delete(["dir/c"])
        store.write("dir", b"a file where a folder was")
        assert [file.path for file in store.list()] == ["dir"]

    @pytest.mark.parametrize("path", ["", "..", "../x", "/etc/passwd", "a/../../x", "a//b", "./a", "nul\0"])
    def test_a_path_never_leads_out(self, store: Store, path: str) -> None:
        for act in (
            store.head,
            lambda path: list(store.read(path)),
            lambda path: store.write(path, b"x"),
            lambda path: store.delete([path]),
            lambda path: store.copy("ours", path),
        ):
            store.write("ours", b"")
            with pytest.raises(InvalidInputError):
                act(path)

    def test_an_unfinished_write_changes_nothing(self, store: Store) -> None:
        store.write("file", b"old")

        def fails() -> Iterator[bytes]:
            yield LARGE
            yield LARGE
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError):
            store.write("file", fails())
        with pytest.raises(RuntimeError):
            store.write("new", fails())
        assert b"".join(store.read("file")) == b"old"
        assert [file.path for file in store.list()] == ["file"]

    def test_readers_see_the_old_or_the_new_content(self, store: Store) -> None:
        versions = [bytes([number]) * 300_000 for number in range(8)]
        store.write("file", versions[0])
        done = threading.Event()
        seen: list[bytes] = []

        def read() -> None:
            while not done.is_set():
                seen.append(b"".join(store.read("file")))

        reader = threading.Thread(target=read)
        reader.start()
        for version in versions:
            store.write("file", version)
        done.set()
        reader.join()
        assert set(seen) <= set(versions)

    def test_empty_folders_are_listed_on_request(self, store: Store) -> None:
        store.write("full/file", b"")
        store.write("empty/", b"")
        assert [file.path for file in store.list()] == ["full/file"]
        assert [file.path for file in store.list(folders=True)] == ["empty/", "full/file"]
        folder = next(iter(store.list(folders=True)))
        assert folder.is_folder
        store.delete(["empty/", "full/"])
        assert [file.path for file in store.list(folders=True)] == ["full/file"]

    def test_errors_are_those_of_pai_sdk(self, store: Store) -> None:
        store.write("file", b"")
        for path in ("file/below",):
            try:
                written = store.write(path, b"x")
            except StorageError:
                continue
            assert isinstance(written, StoredFile)
