"""What is wrong with data sets, code sources and labels."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._wire.workspace import checks
from pai_sdk._wire.workspace.code_sources import CodeSourceUpdate, NewCodeSource
from pai_sdk._wire.workspace.datasets import DatasetUpdate, DatasetVersionUpdate, NewDataset, NewDatasetVersion
from pai_sdk._wire.workspace.labels import ResourceLabel

URI = "oss://b.oss-cn-x.aliyuncs.com/d/"
DATASET = {"Name": "data", "Uri": URI, "DataSourceType": "OSS", "Property": "DIRECTORY"}
CODE = {"DisplayName": "code", "CodeRepo": "https://git.example/a.git", "MountPath": "/mnt/code"}
LONG = "k" * 129


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, []),
        ({"Name": "数据-1_a"}, []),
        ({"Options": '{"mountPath":"/mnt/data"}'}, []),
        ({"Labels": [{"Key": "k", "Value": ""}]}, []),
        (
            {"Name": None, "Uri": None, "DataSourceType": "", "Property": ""},
            ["Uri", "DataSourceType", "Property", "Name"],
        ),
        ({"Name": "-x"}, ["Name"]),
        ({"Name": "a b"}, ["Name"]),
        ({"Name": "a" * 128}, ["Name"]),
        ({"Uri": "/data"}, ["Uri"]),
        ({"DataSourceType": "S3", "Property": "FOLDER"}, ["DataSourceType", "Property"]),
        ({"Accessibility": "ALL"}, ["Accessibility"]),
        ({"Options": "x"}, ["Options"]),
        ({"Options": "[]"}, ["Options"]),
        ({"Options": '{"mountPath":"data"}'}, ["Options"]),
        ({"Labels": [{"Key": "k"}, {"Key": "k"}]}, ["Labels"]),
    ],
)
def test_data_sets(changes: dict[str, Any], where: list[str]) -> None:
    dataset = NewDataset.model_validate({**DATASET, **changes})
    assert [problem.where for problem in checks.dataset_problems(dataset)] == where


def test_versions_and_updates() -> None:
    assert checks.dataset_problems(DatasetUpdate()) == checks.dataset_problems(DatasetVersionUpdate()) == []
    assert [each.where for each in checks.dataset_problems(NewDatasetVersion())] == [
        "Uri",
        "DataSourceType",
        "Property",
    ]
    assert [each.where for each in checks.dataset_problems(DatasetUpdate(name="/", options="x"))] == [
        "Name",
        "Options",
    ]
    assert [each.where for each in checks.dataset_problems(DatasetVersionUpdate(options="x"))] == ["Options"]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, []),
        ({"CloneType": "1"}, []),
        ({"DisplayName": "", "CodeRepo": "", "MountPath": ""}, ["DisplayName", "CodeRepo", "MountPath"]),
        ({"CloneType": 2, "MountPath": "code", "Accessibility": "x"}, ["Accessibility", "CloneType", "MountPath"]),
    ],
)
def test_code_sources(changes: dict[str, Any], where: list[str]) -> None:
    source = NewCodeSource.model_validate({**CODE, **changes})
    assert [problem.where for problem in checks.code_source_problems(source)] == where


def test_an_update_of_a_code_source_needs_nothing() -> None:
    assert checks.code_source_problems(CodeSourceUpdate()) == []
    assert [each.where for each in checks.code_source_problems(CodeSourceUpdate(mount_path="x"))] == ["MountPath"]


@pytest.mark.parametrize(("keys", "count"), [(["a", "b"], 0), ([""], 1), ([LONG], 1), (["a", "a", "b", ""], 2)])
def test_labels(keys: list[str], count: int) -> None:
    labels = [ResourceLabel(key=key, value="v") for key in keys]
    assert len(checks.label_problems("Labels", labels)) == count


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (None, None),
        ("", None),
        ("{", None),
        ("[]", None),
        ("{}", None),
        ('{"mountPath": 3}', None),
        ('{"mountPath": ""}', None),
        ('{"mountPath": "/mnt/data"}', "/mnt/data"),
    ],
)
def test_default_mount_paths(options: str | None, path: str | None) -> None:
    assert checks.default_mount_path(options) == path


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        (URI, "OSS"),
        ("OSS://b/d/", "OSS"),
        ("nas://1.cn-x/", "NAS"),
        ("odps://p/tables/t", "MAXCOMPUTE"),
        ("/d", None),
    ],
)
def test_types_of_uris(uri: str, kind: str | None) -> None:
    assert checks.data_source_type_for(uri) == kind
