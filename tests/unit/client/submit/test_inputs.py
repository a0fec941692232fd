"""What an input or an output can be: file systems, tables, datasets, objects; and what none of them is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.job import DatasetConfig
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._wire.pai.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
from pai_sdk._wire.pai.spec import Channel
from pai_sdk.errors import InvalidInputError
from tests.unit.client.submit.test_parameter_types import made, problems

DATASET = "d-ybko3rap60c4gs9flc"


class Theirs(FileSystemInputBase):
    """A file system of a user's own, with the method as alipai has it."""

    def to_input_uri(self) -> str:  # type: ignore[override]
        return "nas://mine.cn-x/there/"


FORMS: list[tuple[Any, dict[str, str]]] = [
    ("oss://bkt/data/", {"Uri": "oss://bkt/data/"}),
    ("oss://bkt.oss-cn-x.aliyuncs.com/data/", {"Uri": "oss://bkt.oss-cn-x.aliyuncs.com/data/"}),
    (OssUri("bkt", "data/"), {"Uri": "oss://bkt/data/"}),
    (FileSystemInput("0a1b"), {"Uri": "nas://0a1b.cn-x/"}),
    (FileSystemInput("0a1b", "/a/b/"), {"Uri": "nas://0a1b.cn-x/a/b/"}),
    (FileSystemInput(file_system_id="0a1b", directory_path="a/"), {"Uri": "nas://0a1b.cn-x/a/"}),
    (CpfsFileSystemInput("cpfs-1", "ptc-2", "exp-3"), {"Uri": "cpfs://cpfs-1.cn-x/ptc-2/exp-3/"}),
    (
        CpfsFileSystemInput(file_system_id="c", protocol_service_id="p", export_id="e"),
        {"Uri": "cpfs://c.cn-x/p/e/"},
    ),
    (Theirs(), {"Uri": "nas://mine.cn-x/there/"}),
    ("bmcpfs://bmcpfs-1.cn-x/dir/", {"Uri": "bmcpfs://bmcpfs-1.cn-x/dir/"}),
    ("odps://project/tables/clicks", {"Uri": "odps://project/tables/clicks"}),
    (DATASET, {"DatasetId": DATASET}),
    (f"{DATASET}/v2", {"DatasetId": DATASET, "VersionName": "v2"}),
    (DatasetConfig(dataset_id="d-1"), {"DatasetId": "d-1"}),
]


@pytest.mark.parametrize(("given", "sent"), FORMS, ids=lambda value: str(value)[:40])
def test_every_form_is_an_input_and_an_output(given: Any, sent: dict[str, str]) -> None:
    request = made().plan({"a": given}, {"b": given}).request.to_wire()
    for kind, name in (("Input", "a"), ("Output", "b")):
        wanted = {(f"{kind}Uri" if key == "Uri" else key): value for key, value in sent.items()}
        assert request[f"{kind}Channels"] == [{"Name": name, **wanted}]


def test_an_output_folder_is_one_and_a_table_is_none() -> None:
    outputs = {
        "folder": "oss://bkt/x",
        "nas": FileSystemInput("0a1b", "out"),
        "table": "odps://project/tables/t",
    }
    channels = made().plan({}, outputs).request.to_wire()["OutputChannels"]
    assert [channel["OutputUri"] for channel in channels] == [
        "oss://bkt/x/",
        "nas://0a1b.cn-x/out/",
        "odps://project/tables/t",
    ]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: FileSystemInput(""), ["file_system_id"]),
        (lambda: FileSystemInput("a/b"), ["file_system_id"]),
        (lambda: FileSystemInput("a", 3), ["directory_path"]),  # type: ignore[arg-type]
        (lambda: CpfsFileSystemInput(" ", None, "e"), ["file_system_id", "protocol_service_id"]),  # type: ignore[arg-type]
    ],
)
def test_a_file_system_needs_its_parts(make: Any, names: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert [problem.where for problem in caught.value.problems] == names


def test_a_file_system_without_a_region_takes_the_default_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    from pai_sdk._client.session import setup_default_session

    monkeypatch.setattr("pai_sdk._client.session.default._default", None)  # and put back at the end
    setup_default_session("cn-here", "1", access_key_id="i", access_key_secret="s")
    assert FileSystemInput("a").to_input_uri() == "nas://a.cn-here/"


def test_a_dataset_that_is_a_file_too_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / DATASET).write_text("1")
    assert "is both the id of a dataset and a local path" in problems(made(), {"a": DATASET})["inputs['a']"]
    assert made().plan({"a": f"./{DATASET}"}).uploads


def test_a_required_channel_and_a_misnamed_one_are_reported_together() -> None:
    processor = made()
    processor.set_input_channels([Channel(name="train", required=True)])
    assert {*problems(processor, {"trian": FileSystemInput("a")})} == {"inputs['trian']", "inputs['train']"}


def test_an_input_folder_may_have_links_to_files_elsewhere(tmp_path: Path) -> None:
    """As the cache of huggingface_hub has it."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1f3a").write_text("weights")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.bin").symlink_to("../blobs/1f3a")
    (upload,) = made().plan({"model": snapshot}).uploads
    assert [(file.path, file.size_bytes) for file in upload.tree.entries] == [("model.bin", 7)]
