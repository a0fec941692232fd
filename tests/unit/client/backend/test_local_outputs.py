"""What a local job left in a folder, copied to another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.backend.local.files import copy_output
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk.errors import StorageError, TransferError
from tests.support.messages import refused


@pytest.fixture
def output(tmp_path: Path) -> Path:
    output = tmp_path / "out"
    (output / "step 1").mkdir(parents=True)
    (output / "step 1" / "w.bin").write_text("w")
    return output


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_links_that_name_the_output_as_the_job_saw_it_lead_there(output: Path, tmp_path: Path) -> None:
    (output / "latest").symlink_to("/ml/output/checkpoints/step 1")
    (output / "step 1" / "same").symlink_to("/ml/output/checkpoints/step 1/w.bin")
    JobFolder(Sandbox(tmp_path), {"checkpoints": output}).mend_links("checkpoints")
    assert (output / "latest" / "w.bin").read_text() == "w"
    assert (output / "latest").is_symlink()
    copy_output(output, tmp_path / "copy")
    copied = files_of(tmp_path / "copy")
    assert sorted(copied) == ["latest/same", "latest/w.bin", "step 1/same", "step 1/w.bin"]
    assert set(copied.values()) == {"w"}


def test_what_leads_elsewhere_is_named_and_the_rest_is_there(output: Path, tmp_path: Path) -> None:
    """A link meant a file of the container; the one of this machine is another."""
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    for name, target in {"out": secret, "nothing": "/no/such/file", "loop": "."}.items():
        (output / name).symlink_to(target)
    with refused(TransferError) as failed:
        copy_output(output, tmp_path / "copy")
    assert sorted(failed.value.failures) == ["loop", "nothing", "out"]
    assert files_of(tmp_path / "copy") == {"step 1/w.bin": "w"}


def test_an_output_without_files_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    copy_output(tmp_path / "out", tmp_path / "deep" / "copy")
    assert list((tmp_path / "deep" / "copy").iterdir()) == []


def test_a_file_in_the_way_is_named(output: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("a file")
    with refused(StorageError):
        copy_output(output, tmp_path / "copy")


def test_an_output_without_files_is_reported_as_it_is_of_oss(tmp_path: Path) -> None:
    """So that a script which fetches an output that is not always there fails here, not where it costs money."""
    (tmp_path / "out" / "empty").mkdir(parents=True)
    with refused(StorageError, code="NoSuchKey") as failed:
        LocalBackend(tmp_path).download((tmp_path / "out").as_uri() + "/", tmp_path / "copy")
    assert failed.value.code == "NoSuchKey"
    assert not (tmp_path / "copy").exists()


def test_an_output_that_is_where_it_is_wanted_stays_there(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fit(outputs={"model": "out"})`, then `download("model", "out")`."""
    monkeypatch.chdir(tmp_path)
    assert LocalBackend(tmp_path).download(output.as_uri() + "/", Path("out")) == Path("out")
    assert files_of(output) == {"step 1/w.bin": "w"}
