from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.sync.manifest import manifest_uri
from pai_sdk._data.storage.transfer import download, upload, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import (
    CredentialsError,
    CredentialsRenewalError,
    InvalidInputError,
    StorageError,
    TransferError,
)
from tests.support.fake_oss import FakeOss, Seen, StoredObject
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.data.storage.conftest import BUCKET

FOLDER = OssUri(BUCKET, "code/3f2a/")
HOSTILE = {
    "a b/ü.txt": b"1",
    "quote'\"": b"2",
    "line\nbreak": b"3",
    "日本/#?%41&+": b"4",
    "-rf": b"",
    "$(x)": b"5",
}


SMALL_PARTS = PartSizes(1 << 16, 1 << 17)


@pytest.fixture
def small_parts(client: OssClient) -> None:
    """Parts of 64 KiB, so that a file of a megabyte is a large one."""
    client.part_sizes = SMALL_PARTS


def folder_with(root: Path, files: dict[str, bytes]) -> FileTree:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return FileTree.scan(root)


def key_is(name: str) -> object:
    return lambda seen: seen.key.endswith(name)


def test_a_folder_goes_up_and_comes_down(client: OssClient, tmp_path: Path) -> None:
    tree = folder_with(tmp_path / "src", HOSTILE | {f"many/{number}": b"x" * number for number in range(50)})
    (tmp_path / "src" / "many" / "7").chmod(0o755)
    tree = FileTree.scan(tmp_path / "src")
    assert upload_tree(client, tree, FOLDER) == len(tree.entries)
    target = download(client, FOLDER, tmp_path / "down")
    assert target == tmp_path / "down"
    assert FileTree.scan(target).digest == tree.digest


def test_an_unchanged_tree_is_one_request(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, HOSTILE)
    upload_tree(client, tree, FOLDER)
    assert oss.seen[-1].key == "code/3f2a.manifest.json"
    oss.seen.clear()
    assert upload_tree(client, tree, FOLDER) == 0
    assert [(seen.method, seen.query["prefix"]) for seen in oss.seen] == [("GET", "code/3f2a")]


def test_a_folder_that_was_emptied_by_hand_is_filled_again(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    tree = folder_with(tmp_path, HOSTILE)
    upload_tree(client, tree, FOLDER)
    for name in HOSTILE:
        del oss.buckets[BUCKET][f"code/3f2a/{name}"]
    assert upload_tree(client, tree, FOLDER) == len(HOSTILE)
    assert {name for name in HOSTILE if f"code/3f2a/{name}" in oss.buckets[BUCKET]} == set(HOSTILE)
    assert upload_tree(client, tree, FOLDER) == 0


def test_the_manifest_lists_what_is_there(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, HOSTILE)
    upload_tree(client, tree, FOLDER)
    manifest = json.loads(oss.buckets[BUCKET][manifest_uri(FOLDER).key].content)
    assert manifest["digest"] == tree.digest
    listed = {file["path"]: (file["size"], file["sha256"], file["executable"]) for file in manifest["files"]}
    assert listed == {
        name: (len(content), hashlib.sha256(content).hexdigest(), False) for name, content in HOSTILE.items()
    }


def test_another_tree_in_the_same_place_is_not_taken_for_this_one(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    one = folder_with(tmp_path / "one", {"a": b"1"})
    two = folder_with(tmp_path / "two", {"a": b"2"})
    upload_tree(client, one, FOLDER)
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.method == "PUT")
    with pytest.raises(TransferError):
        upload_tree(client, two, FOLDER)
    assert upload_tree(client, one, FOLDER) == 0
    assert upload_tree(client, two, FOLDER) == 1
    assert upload_tree(client, one, FOLDER) == 1
    assert oss.buckets[BUCKET]["code/3f2a/a"].content == b"1"


def test_without_a_marker_nothing_is_asked_or_left(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload_tree(client, folder_with(tmp_path, {"a": b"1"}), FOLDER, marker=False)
    assert [(seen.method, seen.key) for seen in oss.seen] == [("PUT", "code/3f2a/a")]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["reset", "lost", "status", "truncate"])
def test_large_files_go_in_parts_through_faults(
    client: OssClient, oss: FakeOss, tmp_path: Path, kind: str
) -> None:
    tree = folder_with(tmp_path / "src", {"large": os.urandom(700_001), "small": b"x"})
    oss.fail(kind, times=3, fits=lambda seen: "uploadId" in seen.query)
    upload_tree(client, tree, FOLDER)
    assert oss.buckets[BUCKET]["code/3f2a/large"].kind == "Multipart"
    assert oss.uploads == {}
    oss.fail(kind, times=3, fits=lambda seen: "range" in seen.headers)
    download(client, FOLDER, tmp_path / "down")
    assert FileTree.scan(tmp_path / "down").digest == tree.digest


@pytest.mark.usefixtures("small_parts")
def test_a_lost_answer_to_the_last_step_is_found_out(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, {"large": os.urandom(300_000)})
    oss.fail("lost", fits=lambda seen: seen.method == "POST" and "uploadId" in seen.query)
    assert upload_tree(client, tree, FOLDER) == 1


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_large_file_that_failed_are_dropped(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, {"large": os.urandom(300_000), "small": b"x"})
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.query.get("partNumber") == "3")
    with refused(TransferError) as caught:
        upload_tree(client, tree, FOLDER)
    assert list(caught.value.failures) == ["large"]
    assert oss.uploads == {}
    assert list(oss.buckets[BUCKET]) == ["code/3f2a/small"]


def test_other_files_arrive_when_some_fail(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path / "src", {f"f{number:02}": b"x" for number in range(40)})
    oss.fail("reset", times=100, fits=key_is("f07"))
    oss.fail("status", times=100, status=403, code="AccessDenied", fits=key_is("f21"))
    with pytest.raises(TransferError, match="2 of 40 files were not uploaded") as caught:
        upload_tree(client, tree, FOLDER)
    assert sorted(caught.value.failures) == ["f07", "f21"]
    assert "f07: oss://test-bucket/code/3f2a/f07: the connection" in str(caught.value)
    assert len(oss.buckets[BUCKET]) == 38
    oss.faults.clear()
    upload_tree(client, tree, FOLDER)
    oss.fail("truncate", times=100, fits=key_is("f33"))
    with pytest.raises(TransferError, match="1 of 40 files were not downloaded"):
        download(client, FOLDER, tmp_path / "down")
    assert len(list((tmp_path / "down").iterdir())) == 39


def test_a_dead_line_is_not_tried_for_every_file(oss: FakeOss, tmp_path: Path) -> None:
    client = OssClient(
        oss.endpoint, lambda: Credentials("id", "secret"), region="cn-test", retry=RetryPolicy(max_attempts=1)
    )
    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(300)})
    oss.fail("reset", times=10_000, fits=lambda seen: seen.method == "PUT")
    with pytest.raises(TransferError, match="all recent ones failed") as caught:
        upload_tree(client, tree, FOLDER, workers=8)
    assert 8 <= len(caught.value.failures) < 40


@pytest.mark.parametrize(
    ("status", "code"), [(503, "ServiceUnavailable"), (429, "QpsLimitExceeded"), (403, "AccessDenied")]
)
def test_a_store_that_only_refuses_is_not_asked_for_every_file(
    oss: FakeOss, client: OssClient, tmp_path: Path, status: int, code: str
) -> None:
    names = [f"f{number:03}" for number in range(300)]
    tree = folder_with(tmp_path / "src", dict.fromkeys(names, b"x"))
    oss.buckets[BUCKET] |= {f"run/{name}": StoredObject(b"x") for name in names}
    oss.fail("status", times=99_999, status=status, code=code, fits=lambda seen: bool(seen.key))
    with pytest.raises(
        TransferError, match="all recent ones failed, so the remaining files were skipped"
    ) as caught:
        upload_tree(client, tree, FOLDER, marker=False, workers=8)
    assert 8 <= len(caught.value.failures) < 40
    with pytest.raises(
        TransferError, match="all recent ones failed, so the remaining files were skipped"
    ) as caught:
        download(client, OssUri(BUCKET, "run/"), tmp_path / "down", workers=8)
    assert 8 <= len(caught.value.failures) < 40


@pytest.mark.usefixtures("small_parts")
def test_large_files_do_not_wait_for_such_a_store_one_after_the_other(
    oss: FakeOss, client: OssClient, tmp_path: Path
) -> None:
    tree = folder_with(tmp_path, {f"f{number:02}": bytes(100_000) for number in range(30)})
    oss.fail("status", times=99_999)
    # The three others that were under way when the eighth failed may fail, too.
    with pytest.raises(TransferError, match=r"(8|9|10|11) of 30 files were not uploaded") as caught:
        upload_tree(client, tree, FOLDER, marker=False, workers=8)
    # The policy allows four attempts. The first four files use them, and one more before the second of them fails.
    assert len(oss.seen) <= 5 * 4 + len(caught.value.failures) - 5


def test_refusals_between_successes_stop_nothing(oss: FakeOss, client: OssClient, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(100)})
    oss.fail("status", times=999, status=403, code="AccessDenied", fits=lambda seen: seen.key[-1] in "13579")
    with pytest.raises(TransferError, match=r"50 of 100 files were not uploaded to \S+\n"):
        upload_tree(client, tree, FOLDER, marker=False, workers=1 << 5)


@pytest.mark.parametrize("code", ["SecurityTokenExpired", "InvalidSecurityToken"])
def test_a_token_that_has_expired_is_told_once(oss: FakeOss, client: OssClient, tmp_path: Path, code: str) -> None:
    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(100)})
    oss.fail("status", times=999, status=403, code=code)
    with pytest.raises(StorageError, match="get a new one") as caught:
        upload_tree(client, tree, FOLDER, marker=False, workers=4)
    assert not isinstance(caught.value, TransferError)
    assert len(oss.seen) < 10


def test_a_wrong_endpoint_is_told_once_and_at_once(oss: FakeOss, tmp_path: Path) -> None:
    pauses: list[float] = []
    retry = RetryPolicy(sleep=pauses.append)
    endpoint = oss.endpoint.replace("http:", "https:")
    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(100)})
    with (
        OssClient(endpoint, lambda: Credentials("id", "secret"), region="cn-test", retry=retry) as client,
        pytest.raises(StorageError, match=r"write the endpoint with http://$") as caught,
    ):
        upload_tree(client, tree, FOLDER, marker=False, workers=4)
    assert not isinstance(caught.value, TransferError)
    assert pauses == []


def test_a_bucket_that_is_not_there_is_told_once(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(100)})
    with pytest.raises(StorageError, match="there is no bucket 'no-such-bucket'") as caught:
        upload_tree(client, tree, OssUri("no-such-bucket", "data/"), marker=False, workers=4)
    assert not isinstance(caught.value, TransferError)
    assert len(oss.seen) < 10


def test_keys_that_cannot_be_had_are_told_once(oss: FakeOss, tmp_path: Path) -> None:
    asked: list[int] = []

    def expired() -> Credentials:
        asked.append(1)
        raise CredentialsError("the role cannot be assumed any more")

    tree = folder_with(tmp_path, {f"f{number:03}": b"x" for number in range(100)})
    with (
        OssClient(oss.endpoint, expired, region="cn-test") as client,
        refused(CredentialsError),
    ):
        upload_tree(client, tree, FOLDER, marker=False, workers=4)
    assert len(asked) < 10


def test_a_key_that_is_renewed_a_moment_later(oss: FakeOss, tmp_path: Path) -> None:
    faults = [CredentialsRenewalError("the metadata server does not answer")]

    def provide() -> Credentials:
        if faults:
            raise faults.pop()
        return Credentials("id", "secret")

    tree = folder_with(tmp_path, {"a": b"1"})
    retry = RetryPolicy(sleep=lambda _: None)
    with OssClient(oss.endpoint, provide, region="cn-test", retry=retry) as client:
        upload_tree(client, tree, FOLDER, marker=False, workers=1)
    assert faults == []


def test_keys_that_are_too_long_are_told_before_anything_is_sent(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    deep = "/".join(["x" * 200] * 5)
    tree = folder_with(tmp_path, {"a": b"1", f"{deep}/b": b"2", f"{deep}/c": b"3"})
    with pytest.raises(InvalidInputError, match="bytes; OSS allows 1023") as caught:
        upload_tree(client, tree, OssUri(BUCKET, "p" * 30), marker=False)
    assert [problem.where for problem in caught.value.problems] == [f"{deep}/b", f"{deep}/c"]
    assert oss.seen == []


def test_a_file_changed_after_the_scan_is_told(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = folder_with(tmp_path, {"a": b"1", "b": b"2"})
    (tmp_path / "a").write_bytes(b"X")
    (tmp_path / "b").unlink()
    with pytest.raises(TransferError) as caught:
        upload_tree(client, tree, FOLDER)
    assert "was changed while it was being uploaded" in str(caught.value.failures["a"])
    assert isinstance(caught.value.failures["b"], FileNotFoundError)
    assert oss.buckets[BUCKET] == {}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("size_bytes", [1000, 70_000, 300_000])
def test_a_file_deleted_during_an_upload_is_told(
    client: OssClient, oss: FakeOss, tmp_path: Path, size_bytes: int
) -> None:
    files = {f"{number}": os.urandom(size_bytes) for number in range(2)}
    folder_with(tmp_path, files)

    def delete(seen: Seen) -> None:
        for name in files:
            (tmp_path / name).unlink(missing_ok=True)

    oss.before = delete
    with pytest.raises(TransferError) as caught:
        upload(client, tmp_path, FOLDER, progress=False, workers=1)
    assert set(caught.value.failures) <= set(files)


@pytest.mark.usefixtures("small_parts")
def test_a_file_that_only_grows_goes_up_as_it_was(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    files = {"small.log": b"line\n", "large.log": os.urandom(300_000)}
    tree = folder_with(tmp_path, files)

    def grow(seen: Seen) -> None:
        for name in files:
            with (tmp_path / name).open("ab") as out:
                out.write(b"x" * (1 << 16))

    grow(Seen("", "", {}, {}))
    oss.before = grow  # as fast as it is read, so that its end never comes
    upload_tree(client, tree, FOLDER, marker=False)
    assert {name: oss.buckets[BUCKET][FOLDER.key + name].content for name in files} == files


def test_nothing_is_written_outside_of_the_target(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    evil = ["../up", "a/../../up", "a/./b", "a//b", "..", ".", "sub/..", "nul\0l", "link/x", "folder/"]
    for name in [*evil, "good"]:
        oss.buckets[BUCKET][f"run/{name}"] = StoredObject(b"evil")
    target = tmp_path / "deep" / "target"
    (tmp_path / "elsewhere").mkdir()
    target.mkdir(parents=True)
    (target / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TransferError) as caught:
        download(client, OssUri(BUCKET, "run/"), target)
    assert sorted(caught.value.failures) == sorted(evil)
    assert sorted(path.name for path in target.iterdir()) == ["good", "link"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [target / "good"]


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    oss.buckets[BUCKET]["run/file"] = StoredObject(b"new")
    (tmp_path / "outside").write_bytes(b"old")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").symlink_to(tmp_path / "outside")
    download(client, OssUri(BUCKET, "run/"), tmp_path / "target")
    assert (tmp_path / "outside").read_bytes() == b"old"
    assert (tmp_path / "target" / "file").read_bytes() == b"new"


@pytest.mark.parametrize("through_a_link", [False, True])
def test_no_device_or_pipe_is_replaced(
    client: OssClient, oss: FakeOss, tmp_path: Path, through_a_link: bool
) -> None:
    oss.buckets[BUCKET]["run/file"] = StoredObject(b"new")
    target = tmp_path / "file"
    os.mkfifo(tmp_path / "pipe" if through_a_link else target)
    if through_a_link:
        target.symlink_to("pipe")
    with refused(TransferError):
        download(client, OssUri(BUCKET, "run/file"), target)
    assert target.is_fifo()


def test_a_file_goes_where_it_is_told(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET]["run/model.pt"] = StoredObject(b"weights")
    uri = OssUri(BUCKET, "run/model.pt")
    assert download(client, uri, tmp_path / "new" / "name") == tmp_path / "new" / "name"
    assert download(client, uri, tmp_path) == tmp_path / "model.pt"
    assert (tmp_path / "model.pt").read_bytes() == (tmp_path / "new" / "name").read_bytes() == b"weights"


def test_a_folder_without_its_slash_is_found_too(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET] |= {"run/model/": StoredObject(b""), "run/model/a": StoredObject(b"1")}
    oss.buckets[BUCKET]["run/model-old/b"] = StoredObject(b"2")
    download(client, OssUri(BUCKET, "run/model"), tmp_path / "down")
    assert [path.name for path in (tmp_path / "down").iterdir()] == ["a"]


def test_an_empty_folder_is_there_if_it_has_a_marker(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET]["run/empty/"] = StoredObject(b"")
    assert list(download(client, OssUri(BUCKET, "run/empty"), tmp_path / "down").iterdir()) == []
    with pytest.raises(StorageError, match="no such file or folder"):
        download(client, OssUri(BUCKET, "run/missing"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("small_parts")
def test_a_large_object_that_changes_meanwhile_is_not_mixed(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    oss.buckets[BUCKET]["large"] = StoredObject(b"a" * 500_000)
    versions = [b"b"]

    def change_at_the_fourth(seen: Seen) -> bool:
        if seen.headers.get("range", "").startswith("bytes=196608-") and versions:
            oss.buckets[BUCKET]["large"] = StoredObject(versions.pop() * 500_000)
        return False

    oss.fail("reset", fits=change_at_the_fourth)
    download(client, OssUri(BUCKET, "large"), tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == b"b" * 500_000
    (tmp_path / "large").unlink()
    versions += [bytes([number]) for number in range(90)]
    with refused(TransferError):
        download(client, OssUri(BUCKET, "large"), tmp_path / "large")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_parts")
def test_a_large_object_with_wrong_bytes_is_refused(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    meta = {"x-oss-meta-pai-sha256": "0" * 64, "x-oss-hash-crc64ecma": "1"}
    oss.buckets[BUCKET]["large"] = StoredObject(b"a" * 500_000, meta, kind="Multipart")
    with pytest.raises(TransferError, match="checksum"):
        download(client, OssUri(BUCKET, "large"), tmp_path / "large")
    assert list(tmp_path.iterdir()) == []


def test_work_is_parallel_and_bounded() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def piece() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    submitted = 0
    with TransferPool(4) as pool:
        for number in range(40):
            pool.submit_file(str(number), piece)
            submitted += 1
    assert (submitted, most, pool.failures) == (40, 4, {})


def test_an_interrupt_stops_what_has_not_begun() -> None:
    began: list[int] = []
    both_began, gate = threading.Event(), threading.Event()

    def piece(number: int) -> None:
        began.append(number)
        if len(began) == 2:
            both_began.set()
        gate.wait(PATIENCE_S)

    with pytest.raises(KeyboardInterrupt), TransferPool(2) as pool:  # noqa: PT012
        futures = [pool.submit(partial(piece, number)) for number in range(5)]
        # Those that have begun end when the last of the others has been given up.
        futures[-1].add_done_callback(lambda _: gate.set())
        assert both_began.wait(PATIENCE_S)
        assert not pool.stopped.is_set()
        raise KeyboardInterrupt
    assert sorted(began) == [0, 1]
    assert pool.stopped.is_set()


@pytest.mark.parametrize("files", [{f"f{number}": b"x" for number in range(99)}, {"large": bytes(1_000_000)}])
def test_an_interrupt_does_not_wait_for_a_dead_line(oss: FakeOss, tmp_path: Path, files: dict[str, bytes]) -> None:
    tree = folder_with(tmp_path, files)
    patient = RetryPolicy(deadline_s=5_000, first_pause_s=1_000, longest_pause_s=1_000)
    requests = itertools.count(1)

    def interrupt(seen: Seen) -> None:
        """A Ctrl-C that comes while the caller waits for a thread that has time."""
        if next(requests) == 3:
            signal.raise_signal(signal.SIGINT)  # in this thread, so that it wakes no other

    oss.before = interrupt
    oss.fail("status", times=999, fits=lambda seen: seen.method == "PUT")
    with OssClient(oss.endpoint, lambda: Credentials("id", "secret"), region="cn-test", retry=patient) as client:
        client.part_sizes = SMALL_PARTS
        with pytest.raises(KeyboardInterrupt):
            upload_tree(client, tree, FOLDER, marker=False, workers=4)
    assert oss.buckets[BUCKET] == {}


def test_what_is_under_way_ends_when_the_transfer_is_stopped(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    oss.buckets[BUCKET]["run/there"] = StoredObject(bytes(3_000_000))
    stopped = threading.Event()
    one_transfer = client.cancelled_by(stopped)
    assert one_transfer.get_bytes(OssUri(BUCKET, "run/there")) == bytes(3_000_000)
    stopped.set()
    uri = OssUri(BUCKET, "run/new")
    for call in (
        lambda: one_transfer.put_bytes(uri, bytes(3_000_000)),
        lambda: one_transfer.parts.put(uri, "id", 1, bytes(3_000_000)),
        lambda: one_transfer.get_bytes(OssUri(BUCKET, "run/there")),
        lambda: one_transfer.get_file(OssUri(BUCKET, "run/there"), tmp_path / "there"),
    ):
        with refused(StorageError):
            call()
    assert list(tmp_path.iterdir()) == []
    client.put_bytes(uri, b"others go on")
    assert set(oss.buckets[BUCKET]) == {"run/there", "run/new"}


class RecordingBar:
    """What tqdm is told."""

    def __init__(self, *, total: int, desc: str, **_: object) -> None:
        self.total, self.desc, self.n, self.is_closed = total, desc, 0, False

    def update(self, size_bytes: int) -> None:
        self.n += size_bytes

    def close(self) -> None:
        self.is_closed = True


def test_one_bar_counts_all_bytes(
    client: OssClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pai_sdk._data.storage import progress

    tree = folder_with(tmp_path, {f"f{number}": b"x" * 1024 for number in range(3)})
    upload_tree(client, tree, FOLDER)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_is_interactive", lambda: True)
    bars: list[RecordingBar] = []
    monkeypatch.setattr("tqdm.auto.tqdm", lambda **options: bars.append(RecordingBar(**options)) or bars[-1])
    download(client, FOLDER, tmp_path / "a", progress=False)
    assert bars == []
    download(client, FOLDER, tmp_path / "b")
    (bar,) = bars
    assert (bar.desc, bar.n, bar.total, bar.is_closed) == ("downloading", 3072, 3072, True)


def hugging_face_cache(folder: Path) -> Path:
    """A snapshot of a model as huggingface_hub keeps it: links to blobs beside it."""
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "1f3a").write_text("weights")
    snapshot = folder / "snapshots" / "abc"
    (snapshot / "deep").mkdir(parents=True)
    (snapshot / "model.bin").symlink_to("../../blobs/1f3a")
    (snapshot / "deep" / "all").symlink_to("../../../blobs")
    return snapshot


def test_links_in_data_are_followed(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, hugging_face_cache(tmp_path), OssUri(BUCKET, "models/"))
    names = {name: one.content for name, one in oss.buckets[BUCKET].items() if name.startswith("models/")}
    assert names == {"models/model.bin": b"weights", "models/deep/all/1f3a": b"weights"}


@pytest.mark.parametrize("links", ["inside", "error"])
def test_links_out_of_a_folder_may_be_refused(
    client: OssClient, oss: FakeOss, tmp_path: Path, links: Literal["inside", "error"]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        upload(client, hugging_face_cache(tmp_path), OssUri(BUCKET, "models/"), links=links)
    assert [problem.where for problem in refused.value.problems] == ["deep/all", "model.bin"]
    assert ".paiignore" not in str(refused.value), "nobody reads it there"
    assert not oss.buckets[BUCKET]


def test_a_link_to_nothing_in_data_is_an_error(client: OssClient, tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(InvalidInputError) as refused:
        upload(client, tmp_path, OssUri(BUCKET, "models/"))
    (problem,) = refused.value.problems
    assert (problem.where, problem.hint) == ("gone", "remove it")
