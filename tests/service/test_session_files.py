"""Files moved by hand through a session, to a real object store and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk import Session
from pai_sdk.errors import StorageError
from tests.service.services import running_service, session_on
from tests.support.messages import refused


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with running_service(tmp_path / "service") as client, session_on(client.info) as session:
        yield session


def test_there_and_back(session: Session, tmp_path: Path) -> None:
    bucket = session.settings.oss_bucket_name
    data = tmp_path / "my data ü"
    (data / "sub").mkdir(parents=True)
    (data / "a.csv").write_text("1,2\n")
    (data / "sub" / "b.bin").write_bytes(b"\0\xff" * 1000)
    folder = session.upload(data, f"oss://{bucket}/datasets/points/", progress=False)
    assert folder == f"oss://{bucket}/datasets/points/"
    assert session.upload(data / "a.csv", folder, progress=False) == f"{folder}a.csv"
    there = session.download(folder, tmp_path / "back", progress=False)
    assert there == tmp_path / "back"
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*.*")) == ["a.csv", "sub/b.bin"]
    one = session.download(f"{folder}sub/b.bin", tmp_path / "one.bin", progress=False)
    assert one.read_bytes() == b"\0\xff" * 1000
    with refused(StorageError):
        session.download(f"oss://{bucket}/datasets/pionts/", tmp_path / "none", progress=False)
