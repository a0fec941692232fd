"""alipai's `upload` and `download`, and buckets of oss2, against the object store of the service."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oss2
import pytest

from pai_sdk import Session, setup_default_session
from pai_sdk._client.session import default
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.alipai.pai.common.oss_utils import OssUriObj, download, upload
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, SettingsError
from tests.service.services import Client


@pytest.fixture
def session(service: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The default session, as code written for alipai makes it."""
    info = service.info
    monkeypatch.setenv("PAI_ENDPOINT", info.endpoint)
    monkeypatch.setenv("PAI_AIWORKSPACE_ENDPOINT", info.endpoint)
    monkeypatch.setattr(default, "_default", None)
    with setup_default_session(
        access_key_id=info.access_key_id,
        access_key_secret=info.access_key_secret,
        region_id=info.region_id,
        workspace_id=1,  # type: ignore[arg-type] # alipai takes numbers
        oss_bucket_name=info.bucket,
        oss_endpoint=info.oss_endpoint,
    ) as made:
        yield made


def own_bucket(service: Client) -> Any:
    """A bucket as a user makes it with oss2."""
    info = service.info
    return oss2.Bucket(oss2.Auth(info.access_key_id, info.access_key_secret), info.oss_endpoint, info.bucket)


def test_the_session_says_where_it_works(session: Session, service: Client) -> None:
    info = service.info
    assert (session.region_id, session.workspace_id, session.oss_bucket_name) == ("local", "1", info.bucket)
    assert (session.workspace_name, session.is_inner) == ("local", False)
    assert session.oss_endpoint == info.oss_endpoint.removeprefix("http://")
    assert session.get_storage_path_by_category("input_data", "x") == "pai/input_data/x/"


def test_the_endpoint_is_used_as_that_of_the_cloud(session: Session, service: Client) -> None:
    info = service.info
    auth = oss2.Auth(info.access_key_id, info.access_key_secret)
    oss2.Bucket(auth, session.oss_endpoint, info.bucket).put_object("compat/b.txt", b"hello")
    with Session(
        info.region_id,
        oss_endpoint=session.oss_endpoint,
        access_key_id=info.access_key_id,
        access_key_secret=info.access_key_secret,
    ) as same:
        uri = f"oss://{info.bucket}.{session.oss_endpoint}/compat/b.txt"
        assert same.files().get_bytes(OssUri.parse(uri)) == b"hello"


def test_its_bucket_is_a_real_one_of_oss2(session: Session, tmp_path: Path) -> None:
    bucket = session.oss_bucket
    assert isinstance(bucket, oss2.Bucket)
    (tmp_path / "a.txt").write_text("hello")
    bucket.put_object_from_file("compat/a.txt", str(tmp_path / "a.txt"))
    assert bucket.object_exists("compat/a.txt")
    assert (
        session.get_oss_bucket(bucket.bucket_name, bucket.endpoint).get_object("compat/a.txt").read() == b"hello"
    )
    assert not session.get_oss_bucket(bucket.bucket_name).object_exists("compat/none.txt")
    with pytest.raises(SettingsError, match="oss_bucket_name"):
        _ = Session("cn-x", "1", access_key_id="i", access_key_secret="s").oss_bucket


@pytest.mark.parametrize("given", ["none", "of the session", "of the user"])
def test_files_and_folders_go_there_and_back(
    session: Session, service: Client, tmp_path: Path, given: str
) -> None:
    bucket = {"none": None, "of the session": session.oss_bucket, "of the user": own_bucket(service)}[given]
    name = service.info.bucket
    source = tmp_path / "src"
    (source / "inner").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "inner" / "b.txt").write_text("b")
    key = f"compat/{given.replace(' ', '-')}"
    assert upload(str(source / "a.txt"), f"{key}/file/", bucket) == f"oss://{name}/{key}/file/a.txt"
    assert upload(source / "a.txt", f"{key}/as.txt", bucket=bucket) == f"oss://{name}/{key}/as.txt"
    assert upload(str(source), f"{key}/folder", bucket) == f"oss://{name}/{key}/folder/"
    assert upload(str(source), OssUriObj(f"oss://{name}/{key}/folder/"), bucket) == f"oss://{name}/{key}/folder/"
    assert download(f"{key}/as.txt", str(tmp_path / "one"), bucket) == str(tmp_path / "one" / "as.txt")
    assert download(f"oss://{name}/{key}/folder", str(tmp_path / "all"), bucket) == str(tmp_path / "all")
    assert (tmp_path / "all" / "inner" / "b.txt").read_text() == "b"
    with pytest.raises(ObjectNotFoundError):
        download(f"{key}/none", str(tmp_path / "none"), bucket)


def test_a_folder_goes_as_one_archive(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "inner" / "run.sh").write_text("true")
    (tmp_path / "src" / "inner" / "run.sh").chmod(0o755)
    uri = upload(str(tmp_path / "src"), "compat/tar/", is_tar=True)
    assert uri == f"oss://{session.oss_bucket_name}/compat/tar/source.tar.gz"
    assert download(uri, str(tmp_path / "out"), un_tar=True) == str(tmp_path / "out")
    assert (tmp_path / "out" / "inner" / "run.sh").stat().st_mode & 0o100
    assert download(uri, str(tmp_path / "packed")).endswith("source.tar.gz")


@pytest.mark.parametrize("member", ["../outside.txt", "/outside.txt", "link"])
def test_an_archive_writes_nothing_outside_of_the_folder(session: Session, tmp_path: Path, member: str) -> None:
    """alipai's `un_tar` does."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        entry = tarfile.TarInfo(member)
        if member == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
        packed.addfile(entry, io.BytesIO(b""))
    session.oss_bucket.put_object("compat/evil.tar.gz", content.getvalue())
    with pytest.raises(InvalidInputError, match="within it"):
        download("compat/evil.tar.gz", str(tmp_path / "out"), un_tar=True)
    assert [*tmp_path.rglob("*")] == [tmp_path / "out"]


def test_upload_data_gives_the_uri_of_an_input(session: Session, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2\n")
    uri = session.upload_data(str(tmp_path / "train.csv"), key_prefix="compat/data")
    assert uri == f"oss://{session.oss_bucket_name}/compat/data/train.csv"


def test_a_bucket_that_does_not_show_its_key_is_refused(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    bucket = oss2.Bucket(oss2.AnonymousAuth(), session.oss_endpoint, "models")
    with pytest.raises(InvalidInputError, match="get_oss_bucket"):
        upload(str(tmp_path / "a"), "a", bucket)
