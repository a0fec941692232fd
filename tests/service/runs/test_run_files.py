"""The files of a run over HTTP: sizes of folders, previews, and folders as ZIP archives."""

from __future__ import annotations

import gc
import io
import itertools
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import Mock

import psutil
import pytest
import requests

from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._service.services.budgets import RUNS, Work
from pai_sdk._service.services.runs import files
from pai_sdk._service.services.runs.files import files_of_zip, list_entries, no_file, zip_chunks
from pai_sdk._service.services.runs.parts import run_parts
from pai_sdk._service.wire_errors import WireError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("files") / "data", ScriptedExecutor()) as service:
        yield service


def new_job(client: Client, operator: Client | None = None) -> tuple[str, Path]:
    """A running job, and the folder of its outputs."""
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    output = (operator or client).info.data_dir / "jobs" / job_id / "ml" / "output"
    (output / "model").mkdir(parents=True, exist_ok=True)
    return job_id, output


def download(client: Client, job_id: str, **body: Any) -> requests.Response:
    url = client.call("POST", f"/runs/{job_id}/downloads", body=body).json()["url"]
    return requests.get(client.info.endpoint + url, timeout=PATIENCE_S)


def archive_of(answer: requests.Response) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    assert archive.testzip() is None
    return archive


def test_folders_have_the_size_of_their_files(client: Client) -> None:
    job_id, output = new_job(client)
    (output / "model" / "deep" / "er").mkdir(parents=True)
    (output / "model" / "deep" / "a").write_bytes(b"x" * 10)
    (output / "model" / "deep" / "er" / "b").write_bytes(b"x" * 5)
    top = {entry["name"]: entry for entry in client.get(f"/runs/{job_id}/files")["entries"]}
    assert (top["model"]["size_bytes"], top["model"]["is_folder"]) == (15, True)
    (deep,) = client.get(f"/runs/{job_id}/files?path=model")["entries"]
    assert (deep["size_bytes"], deep.get("is_partial")) == (15, None)
    assert "uri" not in client.get(
        f"/runs/{job_id}/files?path=model"
    )  # the folder is on the service's machine only


def test_a_folder_with_too_many_files_has_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for number in range(10):
            (tmp_path / name / str(number)).write_bytes(b"x")
    monkeypatch.setattr(files, "_MAX_FILES", 15)
    entries, is_truncated = list_entries(LocalStore(tmp_path, links="inside"), "", Work(RUNS))
    sizes = [(entry["name"], entry["size_bytes"], entry.get("is_partial", False)) for entry in entries]
    assert is_truncated
    assert (sizes[0], sizes[2]) == (("a", 10, False), ("c", 0, True))
    assert sizes[1][0] == "b"
    assert sizes[1][1] < 10
    assert sizes[1][2]


def test_folders_that_were_not_counted_are_at_most_as_many_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in range(10):
        (tmp_path / str(name) / "deep").mkdir(parents=True)
        (tmp_path / str(name) / "deep" / "file").write_bytes(b"x")
    monkeypatch.setattr(files, "_MAX_FILES", 1)
    monkeypatch.setattr(files, "_MAX_ENTRIES", 4)
    entries, is_truncated = list_entries(LocalStore(tmp_path, links="inside"), "", Work(RUNS))
    assert ([entry["name"] for entry in entries], is_truncated) == (["0", "1", "2", "3"], True)


def test_a_run_of_very_many_empty_files_is_not_searched_to_its_end() -> None:
    class ManyFiles(LocalStore):
        def list(self, *args: Any, **options: Any) -> Iterator[StoredFile]:
            for number in range(100_000):
                assert number < 20_000
                yield StoredFile(str(number), 0, None, "")

    runs = Mock(**{"log.side_effect": no_file("log"), "files.return_value": {"logs": ManyFiles(Path())}})
    assert [*run_parts(runs, "a")] == ["files"]


def test_many_names_that_become_alike_are_archived_in_linear_time(tmp_path: Path) -> None:
    class EmptyFiles(LocalStore):
        def head(self, path: str) -> StoredFile:
            return StoredFile(path, 0, None, "")

        def open(self, path: str) -> BinaryIO:
            return Path(os.devnull).open("rb", buffering=0)

    names = ["".join(chars) for chars in itertools.product(map(chr, range(1, 13)), repeat=4)]
    listed = [StoredFile(name, 0, None, "") for name in names]
    begun = time.thread_time()  # of the processor, which other processes use, too
    content = b"".join(zip_chunks(EmptyFiles(tmp_path), listed, "", "all"))
    assert time.thread_time() - begun < 20
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert len({*archive.namelist()}) == len(names)


def test_the_beginning_of_a_file_is_never_a_document(client: Client) -> None:
    job_id, output = new_job(client)
    (output / "model" / "page.html").write_text("<script>alert(1)</script>")
    (output / "model" / "large").write_bytes(b"x" * (3 << 20))
    (output / "model" / "large.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * (3 << 20))
    answer = client.call("GET", f"/runs/{job_id}/files/preview?path=model/page.html")
    assert answer.text == "<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    sizes = {
        name: len(client.call("GET", f"/runs/{job_id}/files/preview?path=model/{name}").content)
        for name in ("large", "large.png")
    }
    assert sizes == {"large": 1 << 20, "large.png": (3 << 20) + 8}


def test_a_folder_is_downloaded_as_an_archive(client: Client) -> None:
    job_id, output = new_job(client)
    (output / "model" / "deep").mkdir()
    (output / "model" / "deep" / "a.txt").write_text("text " * 1000)
    (output / "model" / "deep" / "w.pt").write_bytes(os.urandom(1 << 20))
    answer = download(client, job_id, kind="folder", path="model/deep/")
    assert 'filename="deep.zip"' in answer.headers["content-disposition"]
    with archive_of(answer) as archive:
        assert archive.namelist() == ["deep/a.txt", "deep/w.pt"]
        assert archive.read("deep/a.txt").decode() == "text " * 1000
        assert archive.read("deep/w.pt") == (output / "model" / "deep" / "w.pt").read_bytes()
        assert archive.getinfo("deep/a.txt").compress_size < 1000
    with archive_of(download(client, job_id, kind="folder", path="model")) as archive:
        assert archive.namelist() == ["model/deep/a.txt", "model/deep/w.pt"]


def test_hostile_names_and_links_stay_out_of_an_archive(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    job_id, output = new_job(client)
    folder = output / "model"
    (folder / "..\\..\\up.txt").write_text("a")
    (folder / "C:evil").write_text("b")
    (folder / "C_evil").write_text("c")
    (folder / "line\nend").write_text("d")
    (folder / os.fsdecode(b"bad\xff")).write_text("e")
    (folder / "out").symlink_to(tmp_path)
    (folder / "file").symlink_to(tmp_path / "secret")
    (folder / "inside").symlink_to("C_evil")
    os.mkfifo(folder / "pipe")
    with archive_of(download(client, job_id, kind="folder", path="model")) as archive:
        names = archive.namelist()
        contents = {name: archive.read(name) for name in names}
    assert b"secret" not in contents.values()
    assert not [name for name in names if "\\" in name or ":" in name or "\n" in name or ".." in name.split("/")]
    assert len(names) == len({*names})
    assert sorted(value for value in contents.values() if len(value) == 1)[:2] == [b"a", b"b"]
    preview = client.call("GET", f"/runs/{job_id}/files/preview?path=model/file")
    assert preview.status_code == 404
    for path in ("model/out", "../..", "model/../..", "/etc", "nothing", "model/C_evil"):
        refused = client.call("POST", f"/runs/{job_id}/downloads", body={"kind": "folder", "path": path})
        assert refused.status_code in (400, 404), path


def test_a_folder_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(files, "MAX_ZIP_FILES", 2)
    with pytest.raises(WireError) as refused:
        files_of_zip(LocalStore(tmp_path, links="inside"), "", Work(RUNS))
    assert (refused.value.status_code, refused.value.code) == (400, "FolderTooLarge")


def test_a_file_that_is_removed_meanwhile_is_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    store = LocalStore(tmp_path, links="inside")
    listed, _ = files_of_zip(store, "", Work(RUNS))
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_text("b and more")
    content = b"".join(zip_chunks(store, listed, "", "all"))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.read("all/b") == b"b and more"
        assert archive.read("NOT-IN-THIS-ARCHIVE.txt") == b"all/a: no longer there"


MIB = 1 << 20


def rewrite(file: Path) -> None:
    file.write_bytes(b"new" * MIB)


def shrink(file: Path) -> None:
    os.truncate(file, MIB + 1)


def rewrite_with_the_same_size(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(3 * MIB)
        stream.write(b"new")
    os.utime(file)  # the clock of a disk has steps of milliseconds


def grow(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"new")


def replace(file: Path) -> None:
    file.with_name(".draft").write_bytes(b"new")
    file.with_name(".draft").replace(file)


def make_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def make_a_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


def make_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


OLD = b"old." * MIB
CHANGES = [rewrite, shrink, rewrite_with_the_same_size, grow, replace, make_a_pipe, make_a_link, make_a_folder]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_packed_is_whole_or_named(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "b.bin"
    file.write_bytes(OLD)
    (tmp_path / "a.bin").write_bytes(OLD)
    (tmp_path / "c").write_bytes(b"last")
    store = LocalStore(tmp_path, links="inside")
    listed, _ = files_of_zip(store, "", Work(RUNS))
    chunks, content = zip_chunks(store, listed, "", "all"), b""
    while b"all/b.bin" not in content:
        content += next(chunks)
    change(file)
    content += b"".join(chunks)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert (archive.read("all/a.bin"), archive.read("all/c")) == (OLD, b"last")
        told = archive.read("NOT-IN-THIS-ARCHIVE.txt") if "NOT-IN-THIS-ARCHIVE.txt" in archive.namelist() else b""
        assert (archive.read("all/b.bin") == OLD) == (told == b"")
    assert told in (b"", b"all/b.bin: incomplete or damaged: changed while it was read")


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_before_it_is_packed_is_the_new_one_or_named(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "b.bin"
    file.write_bytes(OLD)
    store = LocalStore(tmp_path, links="inside")
    listed, _ = files_of_zip(store, "", Work(RUNS))
    change(file)
    with zipfile.ZipFile(io.BytesIO(b"".join(zip_chunks(store, listed, "", "all")))) as archive:
        if file.is_file() and not file.is_symlink():
            assert archive.namelist() == ["all/b.bin"]
            assert archive.read("all/b.bin") == file.read_bytes()
        else:
            assert archive.namelist() == ["NOT-IN-THIS-ARCHIVE.txt"]
            assert str(tmp_path) not in archive.read("NOT-IN-THIS-ARCHIVE.txt").decode()


def test_what_cannot_be_packed_is_named(tmp_path: Path) -> None:
    (tmp_path / "top" / "model").mkdir(parents=True)
    os.mkfifo(tmp_path / "top" / "other")
    folder = tmp_path / "top" / "model"
    (folder / "a").write_text("a")
    (folder / "out").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")
    store = LocalStore(tmp_path, links="inside")
    listed, unlisted = files_of_zip(store, "top/model", Work(RUNS))
    content = b"".join(zip_chunks(store, listed, "top/model", "model", unlisted=unlisted))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        told = archive.read("NOT-IN-THIS-ARCHIVE.txt").decode().splitlines()
    assert [line.partition(":")[0] for line in told] == ["model/out", "model/pipe"]


@pytest.mark.parametrize("change", [shrink, rewrite_with_the_same_size])
def test_the_connection_of_a_file_that_changes_while_it_is_sent_breaks(
    client: Client, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    job_id, output = new_job(client)
    file = output / "model" / "b.bin"
    file.write_bytes(OLD)
    read = files.read_version

    def changing(store: Store, path: str) -> Iterator[bytes]:
        for number, chunk in enumerate(read(store, path)):
            if number == 1:
                change(file)
            yield chunk

    monkeypatch.setattr("pai_sdk._service.routes.runs.files.read_version", changing)
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        download(client, job_id, kind="file", path="model/b.bin")


def test_the_files_of_a_reader_that_leaves_are_closed(client: Client) -> None:
    job_id, output = new_job(client)
    file = output / "model" / "large.bin"
    with file.open("wb") as stream:
        stream.truncate(1 << 30)
    body = {"kind": "folder", "path": "model"}
    url = client.info.endpoint + client.call("POST", f"/runs/{job_id}/downloads", body=body).json()["url"]

    def is_open() -> bool:
        return any(each.path == str(file) for each in psutil.Process().open_files())

    gc.disable()
    try:
        with requests.get(url, stream=True, timeout=PATIENCE_S) as answer:
            chunks = answer.iter_content(MIB)  # without a reference, its end would close the connection
            next(chunks)
            until(is_open, "the file is open")
        until(lambda: not is_open(), "the file is closed")
    finally:
        gc.enable()


def test_files_of_other_users_do_not_exist(client: Client) -> None:
    alice, bob = user(client, "alice"), user(client, "bob")
    job_id, output = new_job(alice, client)
    (output / "model" / "a").write_text("hers")
    assert alice.call("GET", f"/runs/{job_id}/files/preview?path=model/a").text == "hers"
    for path in ("files", "files/preview?path=model/a", "log/lines?level=error"):
        assert bob.call("GET", f"/runs/{job_id}/{path}").status_code == 404
    for body in ({"kind": "folder", "path": "model"}, {"kind": "file", "path": "model/a"}, {"kind": "log"}):
        assert bob.call("POST", f"/runs/{job_id}/downloads", body=body).status_code == 404


def test_objects_whose_names_are_no_paths_are_left_out_of_an_archive(client: Client) -> None:
    uri = f"oss://{client.info.bucket}/odd/"
    job_id = client.create(job_body(OutputChannels=[{"Name": "model", "OutputUri": uri}]))
    client.until(job_id, "Running")
    for key in ("a.txt", "b//c.txt", "../up.txt", "b/../../up.txt"):
        client.bucket().put_object(f"odd/{key}", b"content")
    shutil.rmtree(client.info.data_dir / "jobs" / job_id / "ml" / "output", ignore_errors=True)
    assert client.get(f"/runs/{job_id}/files?path=model")["uri"] == uri
    archive = archive_of(download(client, job_id, path="model", kind="folder"))
    assert archive.namelist() == ["model/a.txt", "NOT-IN-THIS-ARCHIVE.txt"]
    assert archive.read("NOT-IN-THIS-ARCHIVE.txt").count(b"\n") == 2


def test_a_job_is_compared_with_visible_jobs_only(client: Client) -> None:
    alice, bob = user(client, "alice-of-diff"), user(client, "bob-of-diff")
    hidden, mine = alice.create(job_body(TrainingJobName="secret-name")), bob.create(job_body())
    answer = bob.call("GET", f"/runs/{mine}/diff?with={hidden}")
    assert (answer.status_code, "secret-name" in answer.text) == (404, False)
    assert client.call("GET", f"/runs/{mine}/diff?with={hidden}").status_code == 200
