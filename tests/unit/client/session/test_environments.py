"""Where a session leads in each place it may be made: every source of settings at once, and no packet sent."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session, get_default_session, setup_default_session
from pai_sdk._core.config.settings import save_config
from pai_sdk.errors import SettingsError
from tests.support.messages import refused

PUBLIC = ("https://pai.{}.aliyuncs.com", "https://oss-{}.aliyuncs.com")
VPC = ("https://pai-vpc.{}.aliyuncs.com", "https://oss-{}-internal.aliyuncs.com")
FILE = {"region_id": "cn-hangzhou", "workspace_id": "1", "oss_bucket_name": "of-file"}
DSW = {"DSW_INSTANCE_ID": "dsw-1", "dsw_region": "cn-beijing", "PAI_AI_WORKSPACE_ID": "2"}
DLC = {"DLC_JOB_ID": "dlc1", "REGION": "cn-shanghai", "PAI_WORKSPACE_ID": "3"}
HERE = {
    "region_id": "local",
    "endpoint": "http://127.0.0.1:8765",
    "oss_endpoint": "http://127.0.0.1:8765",
    "oss_bucket_name": "pai-local",
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may go over the network here")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)


@pytest.mark.parametrize(
    ("arguments", "environment", "file", "region", "workspace", "bucket", "hosts"),
    [
        pytest.param({}, {}, FILE, "cn-hangzhou", "1", "of-file", PUBLIC, id="file"),
        pytest.param(
            {}, {"PAI_WORKSPACE_ID": "9"}, FILE, "cn-hangzhou", "9", "of-file", PUBLIC, id="environment over file"
        ),
        pytest.param(
            {"workspace_id": "8"},
            {"PAI_WORKSPACE_ID": "9"},
            FILE,
            "cn-hangzhou",
            "8",
            "of-file",
            PUBLIC,
            id="argument over environment",
        ),
        pytest.param(
            {},
            {"ALIBABA_CLOUD_REGION_ID": "cn-hangzhou"},
            FILE,
            "cn-hangzhou",
            "1",
            "of-file",
            PUBLIC,
            id="same region",
        ),
        pytest.param(
            {"region_id": "cn-wulanchabu"},
            {},
            FILE,
            "cn-wulanchabu",
            None,
            None,
            PUBLIC,
            id="another region alone",
        ),
        pytest.param({"network": "VPC"}, {}, FILE, "cn-hangzhou", "1", "of-file", VPC, id="VPC by argument"),
        pytest.param(
            {}, {"PAI_NETWORK_TYPE": "vpc"}, FILE, "cn-hangzhou", "1", "of-file", VPC, id="VPC by environment"
        ),
        pytest.param({}, {}, {**FILE, "network": "VPC"}, "cn-hangzhou", "1", "of-file", VPC, id="VPC by file"),
        pytest.param({}, DSW, None, "cn-beijing", "2", None, VPC, id="a notebook of PAI"),
        pytest.param({}, DLC, None, "cn-shanghai", "3", None, VPC, id="a job of PAI"),
        pytest.param({}, DSW, FILE, "cn-beijing", "2", None, VPC, id="a notebook with a file of another region"),
        pytest.param(
            {},
            DLC,
            {"oss_bucket_name": "of-file"},
            "cn-shanghai",
            "3",
            "of-file",
            VPC,
            id="a job with a file of no region",
        ),
        pytest.param(
            {"network": "PUBLIC"}, DLC, None, "cn-shanghai", "3", None, PUBLIC, id="a job over public hosts"
        ),
        pytest.param(
            {"region_id": "cn-hangzhou"},
            DLC,
            FILE,
            "cn-hangzhou",
            "1",
            "of-file",
            PUBLIC,
            id="a job to another region",
        ),
        pytest.param(
            HERE,
            DSW,
            FILE,
            "local",
            None,
            "pai-local",
            ("http://127.0.0.1:8765", "http://127.0.0.1:8765"),
            id="a service on this machine",
        ),
    ],
)
def test_where_a_session_leads(
    arguments: dict[str, str],
    environment: dict[str, str],
    file: dict[str, str] | None,
    region: str,
    workspace: str | None,
    bucket: str | None,
    hosts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (tmp_path / "pai.json").write_text(json.dumps(file))
        monkeypatch.setenv("PAI_CONFIG_PATH", str(tmp_path / "pai.json"))
    made = Session(**arguments)  # type: ignore[arg-type]
    found = made.settings
    assert (found.region_id, found.workspace_id, found.oss_bucket_name) == (region, workspace, bucket)
    assert (found.pai_url, found.oss_url) == tuple(host.format(region) for host in hosts)
    assert made.backend_for("ecs.c6.large")  # a backend is made without network, too
    made.close()


def test_a_region_alone_inherits_nothing_of_the_session_before() -> None:
    setup_default_session("cn-hangzhou", "1", oss_bucket_name="first", endpoint="first.example.com")
    setup_default_session("cn-shanghai")
    now = get_default_session().settings
    assert (now.workspace_id, now.oss_bucket_name, now.endpoint) == (None, None, None)
    with pytest.raises(SettingsError) as caught:
        now.require("workspace_id", "oss_bucket_name")
    assert str(caught.value).startswith("2 settings are missing:")


def test_a_region_that_is_not_the_files_says_why_its_values_are_not_used(clean_home: Path) -> None:
    save_config(Session(**FILE).settings)  # type: ignore[arg-type]
    with refused(SettingsError):
        Session("cn-shanghai").settings.require("oss_bucket_name")
