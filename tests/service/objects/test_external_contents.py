"""Contents of objects in S3, in a server that may die: what its clients and the next service see."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import boto3
import oss2
import pytest

from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.external import claim
from pai_sdk._service.oss.external.external_blobs import ExternalBlobs, is_external
from pai_sdk._service.oss.object_rows import ContentLimits
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.sweep import Sweeper
from pai_sdk._service.services.backup import back_up, restore
from pai_sdk.errors import InvalidInputError, ServiceStartError, StorageError
from tests.service.certificates import Authority
from tests.service.objects import serving
from tests.service.objects.conftest import Wire
from tests.service.objects.elsewhere import KEY, S3, objects_store, oss_server, s3_server, strict_s3
from tests.service.objects.serving import BUCKET, served
from tests.service.postgres import url_for
from tests.service.services import job_body, running_service
from tests.support.waiting import PATIENCE_S, until

LARGE = os.urandom(300_000)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("_", "-")


def opened(root: Path, store: Store) -> ObjectStore:
    made = ObjectStore(root, contents=store)
    made.create_bucket(BUCKET)
    return made


def read(store: ObjectStore, key: str) -> bytes:
    with store.open(BUCKET, key) as stream:
        return stream.read()


def local_files(root: Path) -> list[Path]:
    return [path for name in ("blobs", "incoming") for path in (root / name).rglob("*") if path.is_file()]


def test_large_contents_are_there_and_not_here(s3: S3, prefix: str, tmp_path: Path) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        store.put_bytes(BUCKET, "large", LARGE)
        store.put_bytes(BUCKET, "small", b"small")
        store.copy(BUCKET, "large", BUCKET, "copy")
        assert len(s3.keys(prefix)) == 2
        assert local_files(tmp_path) == []
        store.delete(BUCKET, "large")
        assert len(s3.keys(prefix)) == 1
    with opened(tmp_path, s3.store(prefix)) as store:
        assert read(store, "copy") == LARGE
        assert read(store, "small") == b"small"


def test_an_object_that_is_appended_to_stays_here(s3: S3, prefix: str, tmp_path: Path) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        for position in (0, len(LARGE)):
            with store.writer() as writer:
                writer.write(LARGE)
                store.append(writer, BUCKET, "log", position)
        assert read(store, "log") == LARGE + LARGE
    assert s3.keys(prefix) == []


def test_a_content_that_is_read_is_deleted_after_its_last_reader(s3: S3, prefix: str, tmp_path: Path) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        store.put_bytes(BUCKET, "large", LARGE)
        with store.open(BUCKET, "large") as one, store.open(BUCKET, "large") as other:
            assert one.read(10) == LARGE[:10]
            store.delete(BUCKET, "large")
            assert one.read() == LARGE[10:]
            assert other.read() == LARGE
        assert s3.keys(prefix) == []


@pytest.mark.parametrize("is_read", [False, True])
def test_a_content_that_is_being_deleted_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    store = open_store((tmp_path / "elsewhere").as_uri())
    blobs = ExternalBlobs(tmp_path / "objects", store, ContentLimits(), is_referenced=False)
    name = blobs._upload([tmp_path / "file"])
    delete, refused = store.delete, []

    def delete_later(paths: Iterable[str]) -> None:
        with pytest.raises(FileNotFoundError):
            blobs.open(name)
        refused.append(name)
        delete(paths)

    monkeypatch.setattr(store, "delete", delete_later)
    reader = blobs.open(name)[0] if is_read else None
    blobs.remove([name])
    if reader is not None:
        assert (reader.read(), refused) == (b"x" * 100, [])
        reader.close()
    assert (refused, blobs.size_of(name)) == ([name], -1)


def test_a_content_that_someone_else_deletes_is_an_error_and_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    store = open_store((tmp_path / "elsewhere").as_uri())
    blobs = ExternalBlobs(tmp_path / "objects", store, ContentLimits(), is_referenced=False)
    name = blobs._upload([tmp_path / "file"])
    with blobs.open(name)[0] as reader:
        store.delete([found.path for found in store.list("blobs/")])
        with pytest.raises(StorageError, match="was deleted from its store") as caught:
            reader.read()
    assert not caught.value.retryable


def test_contents_from_before_stay_in_the_folder_and_are_read(s3: S3, prefix: str, tmp_path: Path) -> None:
    with ObjectStore(tmp_path) as store:
        store.create_bucket(BUCKET)
        store.put_bytes(BUCKET, "before", LARGE)
    with opened(tmp_path, s3.store(prefix)) as store:
        assert read(store, "before") == LARGE
        store.copy(BUCKET, "before", BUCKET, "copy")
        assert read(store, "copy") == LARGE


def test_without_the_store_of_its_contents_a_service_does_not_start(s3: S3, prefix: str, tmp_path: Path) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        store.put_bytes(BUCKET, "large", LARGE)
    for other in (None, s3.store(f"{prefix}-2")):
        with pytest.raises(ServiceStartError, match=f"--objects s3://objects/{prefix}/"):
            ObjectStore(tmp_path, contents=other)
    with opened(tmp_path, s3.store(prefix)) as store:
        assert read(store, "large") == LARGE


def test_a_prefix_that_another_service_uses_is_refused(s3: S3, prefix: str, tmp_path: Path) -> None:
    with (
        opened(tmp_path / "one", s3.store(prefix)),
        pytest.raises(ServiceStartError, match="of another service"),
    ):
        ObjectStore(tmp_path / "other", contents=s3.store(prefix))


def test_of_two_services_that_start_at_once_one_gets_the_prefix(
    s3: S3, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked, and seen no marker, before either of them writes it."""
    with oss_server(tmp_path / "oss") as oss:
        for server in (s3, oss):
            both_have_looked = threading.Barrier(2)

            def look(
                store: Store,
                owner_of: Callable[[Store], str] = claim._owner_of,
                looked: threading.Barrier = both_have_looked,
            ) -> str:
                owner = owner_of(store)
                if not owner:
                    looked.wait(PATIENCE_S)
                return owner

            monkeypatch.setattr(claim, "_owner_of", look)
            outcomes: list[str] = []

            def start(name: str, server: object = server, outcomes: list[str] = outcomes) -> None:
                try:
                    opened(tmp_path / name, server.store(prefix)).close()
                    outcomes.append("started")
                except ServiceStartError:
                    outcomes.append("refused")

            names = [f"{type(server).__name__}{number}" for number in range(2)]
            threads = [threading.Thread(target=start, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            assert sorted(outcomes) == ["refused", "started"]
            monkeypatch.undo()


def test_a_store_behind_https_gets_bodies_with_their_length(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many stores that speak like S3 demand; by default, botocore leaves the length out over https."""
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.file))
    with strict_s3(files) as endpoint:
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        client.create_bucket(Bucket="objects")
        store = objects_store("s3://objects/" + prefix, endpoint=endpoint, region="us-east-1", key=KEY)
        with opened(tmp_path / "service", store) as service:
            service.put_bytes(BUCKET, "large", LARGE)
            assert read(service, "large") == LARGE


def test_a_store_that_was_emptied_is_refused(s3: S3, prefix: str, tmp_path: Path) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        store.put_bytes(BUCKET, "large", LARGE)
    s3.client.delete_object(Bucket=s3.bucket, Key=f"{prefix}/pai-sdk-objects.json")
    with pytest.raises(ServiceStartError, match="has no pai-sdk-objects"):
        opened(tmp_path, s3.store(prefix))


def test_a_wrong_key_is_said_at_the_start_without_the_secret(tmp_path: Path) -> None:
    with oss_server(tmp_path / "oss") as oss:
        with pytest.raises(ServiceStartError) as error:
            ObjectStore(tmp_path / "store", contents=oss.store("p", ("test-id", "wrong-secret")))
        assert "oss://" in str(error.value)
        assert "wrong-secret" not in f"{error.value!r} {error.value}"


def test_a_bucket_that_is_missing_is_said_at_the_start(s3: S3, tmp_path: Path) -> None:
    s3.bucket, kept = "no-such-bucket", s3.bucket
    try:
        with pytest.raises(ServiceStartError, match="cannot be used"):
            ObjectStore(tmp_path, contents=s3.store("p", KEY))
    finally:
        s3.bucket = kept


def test_the_sweep_deletes_what_no_object_names_when_it_is_a_day_old(
    s3: S3, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, s3.store(prefix)) as store:
        store.put_bytes(BUCKET, "large", LARGE)
    stray, foreign = f"{prefix}/blobs/ab/ext-{'ab' * 14}", f"{prefix}/blobs/ab/notes.txt"
    for key in (stray, foreign):
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=b"x")
    external_sweeps, sweep = [], Sweeper._sweep_shards
    monkeypatch.setattr(ExternalBlobs, "external_shards", ("ext-ab",))
    monkeypatch.setattr(
        Sweeper,
        "_sweep_shards",
        lambda self, shards: sweep(self, shards) and (external_sweeps.extend(filter(is_external, shards)) or True),
    )
    with opened(tmp_path, s3.store(prefix)) as store:
        until(lambda: external_sweeps, "the sweep", within_s=60)
        assert len(s3.keys(prefix)) == 3
    limits = ContentLimits(min_external_age_s=-60.0)
    with ObjectStore(tmp_path, contents=s3.store(prefix), limits=limits) as store:
        until(lambda: stray not in s3.keys(prefix), "the sweep", within_s=60)
        assert foreign in s3.keys(prefix)
        assert read(store, "large") == LARGE


@pytest.fixture
def mortal() -> Iterator[S3]:
    """An S3 of the test's own, which it may kill."""
    with s3_server() as server:
        yield server


@pytest.fixture
def wire(mortal: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    monkeypatch.setattr(serving, "open_store", lambda root: ObjectStore(root, contents=mortal.store("p")))
    with served(tmp_path / "store") as (store, endpoint):
        made = Wire(endpoint, store)
        yield made
        made.close()


def test_while_the_store_is_down_clients_are_told_to_come_back(mortal: S3, wire: Wire, tmp_path: Path) -> None:
    bucket = wire.bucket()
    bucket.put_object("large", LARGE)
    bucket.put_object("small", b"small")
    mortal.kill()
    for request in (lambda: bucket.put_object("other", LARGE), lambda: bucket.get_object("large").read()):
        began = time.monotonic()
        with pytest.raises(oss2.exceptions.ServerError) as error:
            request()
        assert time.monotonic() - began < PATIENCE_S / 2
        assert (error.value.status, error.value.code) == (503, "ServiceUnavailable")
        assert error.value.headers["Retry-After"] == "5"
    assert bucket.get_object("small").read() == b"small"
    assert bucket.head_object("large").content_length == len(LARGE)
    mortal.start()
    mortal.client.create_bucket(Bucket=mortal.bucket)  # moto forgets, which no S3 does
    bucket.put_object("other", LARGE)
    assert bucket.get_object("other").read() == LARGE
    assert local_files(tmp_path / "store") == []


def test_a_job_waits_for_a_store_that_is_down(mortal: S3, wire: Wire) -> None:
    files = BucketStore(wire.store, OssUri(BUCKET, "outputs/"))
    mortal.kill()
    back = threading.Timer(3, lambda: (mortal.start(), mortal.client.create_bucket(Bucket=mortal.bucket)))
    back.start()
    files.write("model.pt", LARGE)
    back.join()
    assert b"".join(files.read("model.pt")) == LARGE


def test_killed_between_upload_and_commit_an_object_is_whole_or_not_there(s3: S3, tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.index import ObjectIndex
from pai_sdk.cli.service.external_objects import objects_store
root, endpoint, name, secret = sys.argv[1:]
contents = objects_store("s3://objects/killed", endpoint=endpoint, region="us-east-1", key=(name, secret))
store = ObjectStore(Path(root), contents=contents)
store.create_bucket("my-bucket")
store.put_bytes("my-bucket", "key", b"old" * 100_000)
ObjectIndex.record = lambda *arguments, **options: os.kill(os.getpid(), 9)
store.put_bytes("my-bucket", "key", b"new" * 100_000)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), s3.endpoint, *KEY], check=False)
    assert done.returncode == -9
    assert len(s3.keys("killed")) == 2
    with ObjectStore(tmp_path, contents=s3.store("killed")) as store:
        assert read(store, "key") == b"old" * 100_000
        assert local_files(tmp_path) == []


def test_a_job_has_its_code_inputs_and_outputs_in_the_store(s3: S3, prefix: str, tmp_path: Path) -> None:
    with running_service(tmp_path / "data", objects=s3.store(prefix)) as client:
        bucket = client.bucket()
        train = "/ml/input/data/train/large"
        bucket.put_object("code/train.sh", f"cat {train} {train} > /ml/output/model/both")
        bucket.put_object("inputs/large", LARGE)
        uri = f"oss://{client.info.bucket}"
        body = job_body(
            "sh /ml/usercode/train.sh",
            CodeDir={"LocationType": "oss", "LocationValue": {"Bucket": client.info.bucket, "Key": "code/"}},
            InputChannels=[{"Name": "train", "InputUri": f"{uri}/inputs/"}],
            OutputChannels=[{"Name": "model", "OutputUri": f"{uri}/outputs/"}],
        )
        job = client.until(client.create(body), timeout_s=60)
        assert job["Status"] == "Succeed", job
        assert bucket.get_object("outputs/both").read() == LARGE + LARGE
    assert len(s3.keys(prefix)) == 2
    assert local_files(tmp_path / "data" / "objects") == []


def test_a_backup_names_the_store_and_is_restored_only_with_it(s3: S3, prefix: str, tmp_path: Path) -> None:
    with running_service(tmp_path / "data", objects=s3.store(prefix)) as client:
        client.bucket().put_object("large", LARGE)
        made = back_up(tmp_path / "data", tmp_path / "backup", database_url=url_for(tmp_path / "data"))
    assert made.objects_uri == f"s3://objects/{prefix}/"
    for other in (None, "s3://objects/other"):
        with pytest.raises(InvalidInputError, match=f"give --objects s3://objects/{prefix}/"):
            restore(tmp_path / "backup", tmp_path / "new", objects_uri=other)
    restore(
        tmp_path / "backup",
        tmp_path / "new",
        database_url=url_for(tmp_path / "new"),
        objects_uri=f"s3://objects/{prefix}",
    )
    with running_service(tmp_path / "new", objects=s3.store(prefix)) as client:
        assert client.bucket().get_object("large").read() == LARGE


def test_a_large_upload_in_parts_takes_little_memory(s3: S3, tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.cli.service.external_objects import objects_store
root, endpoint, name, secret = sys.argv[1:]
contents = objects_store("s3://objects/memory", endpoint=endpoint, region="us-east-1", key=(name, secret))
# Of this process alone: what `getrusage` says begins with the memory of the parent.
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
with ObjectStore(Path(root), contents=contents) as store:
    store.create_bucket("my-bucket")
    store.put_bytes("my-bucket", "first", bytes(100_000))
    before = peak()
    upload = store.uploads.start("my-bucket", "large", content_type="x", headers={})
    for number in range(1, 11):
        with store.writer() as writer:
            for _ in range(10):
                writer.write(bytes(1 << 20))
            store.uploads.add_part(writer, "my-bucket", "large", upload, number)
    assert store.uploads.complete("my-bucket", "large", upload).size_bytes == 100 << 20
    with store.open("my-bucket", "large") as stream:
        assert sum(map(len, iter(lambda: stream.read(1 << 20), b""))) == 100 << 20
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), s3.endpoint, *KEY], check=True, stdout=subprocess.PIPE
    )
    assert int(done.stdout) < 60, "MiB more than for a small object"
