"""Settings: every source, their order, and what is said when something is missing or wrong."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._core.config.settings import Settings, load_settings, save_config
from pai_sdk.errors import SettingsError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter

EVERY = {
    "region_id": "cn-hangzhou",
    "workspace_id": "12345",
    "oss_bucket_name": "models",
    "oss_endpoint": "oss-cn-hangzhou-internal.aliyuncs.com",
    "endpoint": "http://127.0.0.1:8765",
    "aiworkspace_endpoint": "https://aiworkspace.example.com",
    "network": "VPC",
    "trusted_oss_endpoints": "oss.example.com,http://10.0.0.5:9000",
}
VARIABLES = {
    "region_id": "PAI_REGION_ID",
    "workspace_id": "PAI_WORKSPACE_ID",
    "oss_bucket_name": "PAI_OSS_BUCKET_NAME",
    "oss_endpoint": "PAI_OSS_ENDPOINT",
    "endpoint": "PAI_ENDPOINT",
    "aiworkspace_endpoint": "PAI_AIWORKSPACE_ENDPOINT",
    "network": "PAI_NETWORK_TYPE",
    "trusted_oss_endpoints": "PAI_TRUSTED_OSS_ENDPOINTS",
}
OTHER = {
    "workspace_id": "999",
    "oss_bucket_name": "other",
    "oss_endpoint": "other.example.com",
    "endpoint": "other.example.com",
    "aiworkspace_endpoint": "other.example.com",
    "network": "PUBLIC",
    "trusted_oss_endpoints": "other.example.com",
}


@pytest.fixture
def config_file(clean_home: Path) -> Path:
    path = clean_home / ".pai" / "config.json"
    path.parent.mkdir()
    return path


def values_of(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in EVERY}


def test_nothing_is_set() -> None:
    assert set(values_of(load_settings({})).values()) == {None}


@pytest.mark.parametrize("name", EVERY)
class TestPrecedence:
    def test_each_source_alone(self, name: str, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        value = EVERY[name]
        config_file.write_text(json.dumps({name: value}))
        from_file = load_settings({})
        assert (getattr(from_file, name), from_file.sources) == (value, {name: str(config_file)})
        config_file.unlink()
        monkeypatch.setenv(VARIABLES[name], value)
        from_environment = load_settings({})
        assert getattr(from_environment, name) == value
        assert from_environment.sources == {name: f"environment variable {VARIABLES[name]}"}
        monkeypatch.delenv(VARIABLES[name])
        from_argument = load_settings({name: value})
        assert (getattr(from_argument, name), from_argument.sources) == (value, {name: "argument"})

    def test_their_order(self, name: str, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        others = {**OTHER, "region_id": "cn-beijing"}
        config_file.write_text(json.dumps({name: others[name]}))
        monkeypatch.setenv(VARIABLES[name], EVERY[name])
        assert getattr(load_settings({}), name) == EVERY[name]
        monkeypatch.setenv(VARIABLES[name], others[name])
        assert getattr(load_settings({name: EVERY[name]}), name) == EVERY[name]

    @pytest.mark.parametrize("nothing", [None, "", "  "])
    def test_empty_is_not_given(
        self, name: str, nothing: str | None, config_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config_file.write_text(json.dumps({name: EVERY[name]}))
        monkeypatch.setenv(VARIABLES[name], nothing or "")
        assert getattr(load_settings({name: nothing}), name) == EVERY[name]


class TestRegions:
    """Workspace, bucket and endpoints of one region are of no use in another."""

    def test_values_of_another_region_are_passed_over(self, config_file: Path) -> None:
        config_file.write_text(json.dumps({**EVERY, "region_id": "cn-hangzhou"}))
        settings = load_settings({"region_id": "cn-shanghai"})
        of_no_region = {name: EVERY[name] for name in ("network", "trusted_oss_endpoints")}
        assert values_of(settings) == dict.fromkeys(EVERY) | {"region_id": "cn-shanghai", **of_no_region}
        with refused(SettingsError):
            settings.require("workspace_id")

    def test_the_same_region_is_the_same_region(self, config_file: Path) -> None:
        config_file.write_text(json.dumps(EVERY))
        assert values_of(load_settings({"region_id": "cn-hangzhou"})) == EVERY

    def test_a_source_without_a_region_goes_with_any(
        self, config_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config_file.write_text(json.dumps({"workspace_id": "7"}))
        monkeypatch.setenv("PAI_REGION_ID", "cn-beijing")
        assert load_settings({}).workspace_id == "7"

    def test_between_environment_and_file(self, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config_file.write_text(json.dumps(EVERY))
        monkeypatch.setenv("PAI_REGION_ID", "cn-beijing")
        monkeypatch.setenv("PAI_WORKSPACE_ID", "7")
        settings = load_settings({})
        assert (settings.workspace_id, settings.oss_bucket_name) == ("7", None)


class TestInsidePai:
    def test_a_notebook(self) -> None:
        dsw = {"DSW_INSTANCE_ID": "dsw-1", "dsw_region": "cn-hangzhou", "PAI_AI_WORKSPACE_ID": "12"}
        settings = load_settings({}, environ=dsw)
        assert (settings.region_id, settings.workspace_id, settings.network) == ("cn-hangzhou", "12", "VPC")
        assert settings.pai_url == "https://pai-vpc.cn-hangzhou.aliyuncs.com"
        assert settings.sources["network"] == "running inside PAI"

    def test_a_job(self) -> None:
        dlc = {"DLC_JOB_ID": "dlc1", "REGION": "cn-shanghai", "PAI_WORKSPACE_ID": "34"}
        settings = load_settings({}, environ=dlc)
        assert (settings.region_id, settings.workspace_id, settings.network) == ("cn-shanghai", "34", "VPC")

    def test_its_network_can_be_chosen(self) -> None:
        settings = load_settings({"network": "public"}, environ={"DLC_JOB_ID": "d", "REGION": "cn-beijing"})
        assert settings.oss_url == "https://oss-cn-beijing.aliyuncs.com"

    def test_outside_of_pai_such_names_mean_something_else(self) -> None:
        assert load_settings({}, environ={"REGION": "us-east-1", "dsw_region": "x"}).region_id is None

    def test_our_own_name_wins(self) -> None:
        environ = {"DLC_JOB_ID": "d", "REGION": "cn-beijing", "PAI_REGION_ID": "cn-hangzhou"}
        assert load_settings({}, environ=environ).region_id == "cn-hangzhou"


class TestEndpointsOfAnotherRegion:
    @pytest.mark.parametrize("name", ["endpoint", "aiworkspace_endpoint"])
    @pytest.mark.parametrize(
        "host",
        [
            "pai.cn-shanghai.aliyuncs.com",
            "https://PAI-vpc.cn-shanghai.aliyuncs.com/",
            "aiworkspace.cn-shanghai.aliyuncs.com",
            "aiworkspace-vpc.cn-shanghai.aliyuncs.com",
            "paistudio.cn-shanghai.aliyuncs.com",
            "pai.cn-shanghai.data.aliyun.com",
        ],
    )
    def test_are_refused(self, name: str, host: str) -> None:
        with refused(SettingsError):
            load_settings({"region_id": "cn-hangzhou"}, environ={f"PAI_{name.upper()}": host})

    @pytest.mark.parametrize(
        "host",
        [
            "pai.cn-hangzhou.aliyuncs.com",
            "pai.cn-hangzhou.data.aliyun.com",
            "proxy.example.com",
            "127.0.0.1:80",
            "pai.aliyuncs.com",
        ],
    )
    def test_others_are_not(self, host: str) -> None:
        assert load_settings({"region_id": "cn-hangzhou", "endpoint": host}, environ={}).endpoint == host

    def test_without_a_region_there_is_no_contradiction(self) -> None:
        assert load_settings({"endpoint": "pai.cn-hangzhou.aliyuncs.com"}, environ={}).region_id is None

    def test_a_bucket_may_lie_elsewhere(self) -> None:
        given = {"region_id": "cn-hangzhou", "oss_endpoint": "oss-cn-beijing.aliyuncs.com"}
        assert load_settings(given, environ={}).oss_url == "https://oss-cn-beijing.aliyuncs.com"


class TestUrls:
    @pytest.mark.parametrize(
        ("given", "pai", "aiworkspace", "oss"),
        [
            (
                {"region_id": "cn-hangzhou"},
                "https://pai.cn-hangzhou.aliyuncs.com",
                "https://aiworkspace.cn-hangzhou.aliyuncs.com",
                "https://oss-cn-hangzhou.aliyuncs.com",
            ),
            (
                {"region_id": "ap-southeast-1", "network": "vpc"},
                "https://pai-vpc.ap-southeast-1.aliyuncs.com",
                "https://aiworkspace-vpc.ap-southeast-1.aliyuncs.com",
                "https://oss-ap-southeast-1-internal.aliyuncs.com",
            ),
            (
                {
                    "endpoint": "127.0.0.1:1",
                    "aiworkspace_endpoint": "HTTP://Host.example:2/",
                    "oss_endpoint": "https://oss.example",
                },
                "http://127.0.0.1:1",
                "http://host.example:2",
                "https://oss.example",
            ),
            (  # what begins with letters of "http://" keeps them, and a port stays
                {
                    "endpoint": "http://pt.th.example:80",
                    "aiworkspace_endpoint": "https://thttp.example",
                    "oss_endpoint": "https://storage.example.com:8443",
                },
                "http://pt.th.example:80",
                "https://thttp.example",
                "https://storage.example.com:8443",
            ),
        ],
    )
    def test_of_every_service(self, given: dict[str, str], pai: str, aiworkspace: str, oss: str) -> None:
        settings = load_settings(given)
        assert (settings.pai_url, settings.aiworkspace_url, settings.oss_url) == (pai, aiworkspace, oss)

    @pytest.mark.parametrize("url", ["pai_url", "aiworkspace_url", "oss_url"])
    def test_without_a_region(self, url: str) -> None:
        with refused(SettingsError):
            getattr(Settings(), url)


def test_all_that_is_missing_is_reported_at_once(clean_home: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(region_id="cn-hangzhou").require("region_id", "workspace_id", "oss_bucket_name")
    text = str(caught.value)
    assert text.startswith("2 settings are missing:")
    assert "region_id" not in text
    for name in ("workspace_id", "oss_bucket_name"):
        assert f"Session({name}=…)" in text
        assert f"export {VARIABLES[name]}=…" in text
        assert f'"{name}": "…" in {clean_home}/.pai/config.json' in text
    assert "embedded" not in text


@pytest.mark.usefixtures("clean_home")
def test_where_nothing_is_configured_the_way_without_settings_is_reported() -> None:
    with refused(SettingsError):
        Settings().require("region_id", "workspace_id")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("region_id", "Hangzhou!"),
        ("region_id", "cn-hangzhou.evil.com/"),
        ("workspace_id", "None"),
        ("workspace_id", "a b"),
        ("oss_bucket_name", "oss://models/"),
        ("oss_bucket_name", "UPPER"),
        ("oss_endpoint", "http://host/path"),
        ("endpoint", "ftp://host"),
        ("endpoint", "host:port"),
        ("network", "INTRANET"),
    ],
)
def test_malformed_values_name_their_source(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[name], value)
    with refused(SettingsError):
        load_settings({})


def test_a_password_in_an_endpoint_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"endpoint": "http://me:hush@host"})
    assert "hush" not in str(caught.value)


def test_an_unknown_argument_is_an_error() -> None:
    with refused(SettingsError):
        load_settings({"oss_bucket": "x"})


class TestFile:
    def test_another_file_by_variable_at_call_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "my ü config.json"
        path.write_text('{"region_id": "cn-beijing"}')
        monkeypatch.setenv("PAI_CONFIG_PATH", str(path))
        assert load_settings({}).region_id == "cn-beijing"
        monkeypatch.delenv("PAI_CONFIG_PATH")
        assert load_settings({}).region_id is None

    def test_a_file_by_argument(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAI_CONFIG_PATH", str(tmp_path / "none.json"))
        (tmp_path / "c.json").write_text('{"workspace_id": 12345}')
        assert load_settings({}, config_path=tmp_path / "c.json").workspace_id == "12345"
        with refused(SettingsError):
            load_settings({}, config_path=tmp_path / "d.json")

    def test_unknown_keys_are_named_and_let_be(self, config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
        config_file.write_text('{"region_id": "cn-hangzhou", "wrong_key": "x", "other": {}}')
        assert load_settings({}).region_id == "cn-hangzhou"
        assert "unknown settings are ignored: other, wrong_key" in caplog.text

    @pytest.mark.parametrize(
        ("content", "reported"),
        [
            (b'{\n "region_id": "cn-hangzhou",\n}', r"line [23], column \d+: not JSON"),
            (b'{\n "region_id" "x"}', r"line 2, column 14: not JSON"),
            (b"", r"line 1, column 1: not JSON"),
            (b"[1]", r"expected a JSON object"),
            (b"\xff\xfe", r"is not UTF-8 text"),
            (b"[" * 100_000, r"cannot be read as JSON: maximum recursion depth"),
            (b'{"a": 1' + b"0" * 5000 + b"}", r"cannot be read as JSON: Exceeds the limit"),
        ],
    )
    def test_a_broken_file_is_reported_with_its_line(
        self, config_file: Path, content: bytes, reported: str
    ) -> None:
        config_file.write_bytes(content)
        with pytest.raises(SettingsError, match=reported) as caught:
            load_settings({})
        assert str(caught.value).count(str(config_file)) == 1
        assert "\n" not in str(caught.value)

    def test_a_folder_in_its_place(self, config_file: Path) -> None:
        config_file.mkdir()
        with refused(SettingsError):
            load_settings({})
        with refused(SettingsError):
            save_config(Settings(region_id="cn-hangzhou"))

    def test_one_that_may_not_be_read(self, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def forbidden(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(config_file))

        monkeypatch.setattr(Path, "read_text", forbidden)
        with refused(SettingsError):
            load_settings({})

    @pytest.mark.parametrize("value", [True, 1.5, [7], {"id": "7"}])
    def test_what_is_no_text_is_not_made_one(self, config_file: Path, value: Any) -> None:
        config_file.write_text(json.dumps({"workspace_id": value}))
        with refused(SettingsError):
            load_settings({})
        with refused(SettingsError):
            load_settings({"workspace_id": value})

    def test_a_variable_that_names_no_file_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("PAI_CONFIG_PATH", str(tmp_path / "tpyo.json"))
        load_settings({})
        reported = f"PAI_CONFIG_PATH names {tmp_path / 'tpyo.json'}, which does not exist"
        assert caplog.messages.count(reported) == 1


class TestSave:
    def test_written_and_read_again(self, clean_home: Path) -> None:
        path = save_config(load_settings(EVERY))
        assert path == clean_home / ".pai" / "config.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert values_of(load_settings({})) == EVERY

    def test_where_they_are_read_from(
        self, tmp_path: Path, clean_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PAI_CONFIG_PATH", str(tmp_path / "team" / "pai.json"))
        path = save_config(Settings(region_id="cn-hangzhou"))
        assert path == tmp_path / "team" / "pai.json"
        assert load_settings({}).region_id == "cn-hangzhou"
        assert save_config(Settings(region_id="cn-beijing"), tmp_path / "other.json") == tmp_path / "other.json"
        assert load_settings({}).region_id == "cn-hangzhou"
        assert [*clean_home.iterdir()] == []

    def test_what_else_is_there_stays(self, config_file: Path) -> None:
        config_file.write_text('{"mine": {"a": 1}, "region_id": "cn-beijing", "workspace_id": "7"}')
        config_file.chmod(0o644)
        save_config(Settings(region_id="cn-hangzhou"))
        content = json.loads(config_file.read_text())
        assert content == {"mine": {"a": 1}, "region_id": "cn-hangzhou", "workspace_id": "7"}
        assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
        assert [*config_file.parent.iterdir()] == [config_file]

    def test_a_broken_file_is_not_overwritten(self, config_file: Path) -> None:
        config_file.write_text("{not json")
        with pytest.raises(SettingsError, match="not JSON"):  # with the words of this Python
            save_config(Settings(region_id="cn-hangzhou"))
        assert config_file.read_text() == "{not json"

    def test_never_half_of_it(self, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config_file.write_text('{"region_id": "cn-beijing"}')

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with refused(SettingsError):
            save_config(Settings(region_id="cn-hangzhou"))
        assert config_file.read_text() == '{"region_id": "cn-beijing"}'
        assert [*config_file.parent.iterdir()] == [config_file]

    def test_a_link_stays_a_link(self, config_file: Path, tmp_path: Path) -> None:
        real = tmp_path / "dotfiles" / "pai.json"
        real.parent.mkdir()
        real.write_text("{}")
        config_file.symlink_to(real)
        save_config(Settings(region_id="cn-hangzhou"))
        assert config_file.is_symlink()
        assert json.loads(real.read_text()) == {"region_id": "cn-hangzhou"}

    def test_what_several_save_at_once_is_all_there(self, config_file: Path) -> None:
        start = threading.Barrier(len(EVERY))

        def save(name: str) -> None:
            start.wait(PATIENCE_S)
            save_config(Settings(**{name: EVERY[name]}))

        threads = [threading.Thread(target=save, args=(name,)) for name in EVERY]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert json.loads(config_file.read_text()) == EVERY
        assert [*config_file.parent.iterdir()] == [config_file]

    def test_keys_are_never_written_and_files_with_keys_never_touched(self, clean_home: Path) -> None:
        others = [clean_home / ".alibabacloud" / "credentials.ini", clean_home / ".aliyun" / "config.json"]
        for file in others:
            file.parent.mkdir()
            file.write_text("[default]\n[work]\n")
            file.chmod(0o640)
        session = Session(**EVERY, access_key_id="LTAI-id", access_key_secret="hush", security_token="token-hush")
        written = save_config(session.settings).read_text()
        assert not [secret for secret in ("LTAI-id", "hush", "token") if secret in written]
        for file in others:
            assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("[default]\n[work]\n", 0o640)


def test_no_network_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert load_settings(EVERY).pai_url


def test_what_is_passed_over_is_logged(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config_file.write_text(json.dumps(EVERY))
    load_settings({"region_id": "cn-shanghai"})
    assert "has one for cn-hangzhou" in caplog.text
