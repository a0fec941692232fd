"""Where access keys come from, and what is said when there is none."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from pai_sdk import Session
from pai_sdk._core.config import credentials as module
from pai_sdk._core.config.credentials import Credentials, default_credentials, provider_of, static_credentials
from pai_sdk.errors import CredentialsError, CredentialsRenewalError, SettingsError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.interpreter


@pytest.fixture(autouse=True)
def library(clean_home: Path) -> None:
    """The official library, loaded before a test sets anything.

    It keeps what some variables were when it was loaded, for all tests that the same process runs afterwards.
    """
    importlib.import_module("alibabacloud_credentials.provider")


def set_key(monkeypatch: pytest.MonkeyPatch, access_key_id: str, secret: str, token: str | None = None) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", access_key_id)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", secret)
    if token:
        monkeypatch.setenv("ALIBABA_CLOUD_SECURITY_TOKEN", token)


def write_cli_profile(home: Path, **more: Any) -> None:
    (home / ".aliyun").mkdir()
    profile = {
        "name": "default",
        "mode": "AK",
        "access_key_id": "cli-id",
        "access_key_secret": "cli-secret",
        **more,
    }
    (home / ".aliyun" / "config.json").write_text(json.dumps({"current": "default", "profiles": [profile]}))


def write_ini(path: Path, section: str = "default", key: str = "ini-id") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"[{section}]\ntype = access_key\naccess_key_id = {key}\naccess_key_secret = ini-secret\n")


class TestStatic:
    def test_a_key(self) -> None:
        assert static_credentials("id", "secret")() == Credentials("id", "secret", None)
        assert static_credentials("id", "secret", "token")().security_token == "token"
        assert static_credentials("id", "secret", "")().security_token is None

    def test_secrets_are_not_shown(self) -> None:
        key = Credentials("id", "hush", "token-hush", "bearer-hush")
        for text in (repr(key), str(key), f"{key}", f"{[key]}", f"{key!r:>40}"):
            assert "hush" not in text

    @pytest.mark.parametrize(
        "parts", [("", "secret"), ("id", ""), ("id\n", "secret"), ("id", "se cret"), ("id", "ü")]
    )
    def test_what_cannot_be_a_key(self, parts: tuple[str, str]) -> None:
        with pytest.raises(CredentialsError) as caught:
            static_credentials(*parts)
        assert "se cret" not in str(caught.value)
        assert isinstance(caught.value, SettingsError)


class Provided:
    """A function of the user's that gives one thing after the other, or raises it."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def __call__(self) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class TestGiven:
    @pytest.mark.parametrize(
        "given",
        [
            lambda: ("id", "hush"),
            lambda: None,
            lambda: Credentials("id", "hush\n"),
            Credentials("id", ""),
            Credentials("id", b"hush"),  # type: ignore[arg-type]
        ],
    )
    def test_what_is_given_as_a_key_must_be_one(self, given: Any) -> None:
        with refused(CredentialsError) as caught:
            provider_of(None, None, None, given)()
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        "fault",
        [
            OSError(5, "metadata server"),
            TimeoutError("timed out"),
            requests.ConnectionError("oidc"),
            RuntimeError("sts: 503, result: hush"),
        ],
    )
    def test_a_renewal_that_fails_may_succeed_later(self, fault: Exception) -> None:
        answers: list[Credentials | Exception] = [Credentials("id-1", "hush"), fault, Credentials("id-2", "hush")]
        find = provider_of(None, None, None, Provided(answers))
        assert find().access_key_id == "id-1"
        with refused(CredentialsRenewalError) as caught:
            find()
        assert caught.value.__cause__ is fault
        assert "hush" not in str(caught.value)
        assert find().access_key_id == "id-2"

    @pytest.mark.parametrize(
        "fault", [KeyError("role"), FileNotFoundError(2, "no such file"), PermissionError(13, "no")]
    )
    def test_a_function_that_never_gave_a_key_is_reported_at_once(self, fault: Exception) -> None:
        with refused(CredentialsError) as caught:
            provider_of(None, None, None, Provided([fault]))()
        assert type(caught.value) is CredentialsError
        assert caught.value.__cause__ is fault

    def test_a_first_key_that_the_network_holds_back_may_come_later(self) -> None:
        with pytest.raises(CredentialsRenewalError):
            provider_of(None, None, None, Provided([requests.ConnectionError("metadata")]))()

    @pytest.mark.parametrize("given", [None, Credentials("id", "hush\n"), CredentialsError("there is no role")])
    def test_no_key_where_there_was_one_is_final(self, given: Any) -> None:
        find = provider_of(None, None, None, Provided([Credentials("id", "hush"), given]))
        find()
        with pytest.raises(CredentialsError) as caught:
            find()
        assert type(caught.value) is CredentialsError

    def test_an_interrupt_is_not_wrapped(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            provider_of(None, None, None, Provided([KeyboardInterrupt()]))()

    def test_a_bearer_token_needs_no_key(self) -> None:
        key = Credentials("", "", bearer_token="token")
        assert provider_of(None, None, None, key)() is key


class TestEnvironment:
    def test_read_at_each_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        find = default_credentials()
        set_key(monkeypatch, "env-1", "secret-1")
        assert find() == Credentials("env-1", "secret-1")
        set_key(monkeypatch, "env-2", "secret-2", "token-2")
        assert find() == Credentials("env-2", "secret-2", "token-2")

    def test_wins_over_files(self, clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_cli_profile(clean_home)
        set_key(monkeypatch, "env-1", "secret-1")
        assert default_credentials()().access_key_id == "env-1"

    def test_no_sign_is_cut_off_either_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        odd = ("STS.:/id=", '=+/Secret:A"', "'AWS:token==")
        set_key(monkeypatch, *odd)
        assert default_credentials()() == static_credentials(*odd)() == Credentials(*odd)

    def test_half_a_key_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "env-1")
        with refused(CredentialsError):
            default_credentials()()


class TestFiles:
    def test_the_profile_of_the_aliyun_command(self, clean_home: Path) -> None:
        write_cli_profile(clean_home)
        assert default_credentials()() == Credentials("cli-id", "cli-secret")

    def test_a_temporary_key_in_it(self, clean_home: Path) -> None:
        write_cli_profile(clean_home, mode="StsToken", sts_token="cli-token")
        assert default_credentials()() == Credentials("cli-id", "cli-secret", "cli-token")

    def test_the_credentials_file(self, clean_home: Path) -> None:
        write_ini(clean_home / ".alibabacloud" / "credentials.ini")
        assert default_credentials()().access_key_id == "ini-id"

    def test_another_file_and_profile_chosen_late(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_ini(tmp_path / "mine.ini", section="work", key="work-id")
        monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_FILE", str(tmp_path / "mine.ini"))
        monkeypatch.setenv("ALIBABA_CLOUD_PROFILE", "work")
        assert default_credentials()().access_key_id == "work-id"

    def test_the_command_can_be_left_out(self, clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_cli_profile(clean_home)
        write_ini(clean_home / ".alibabacloud" / "credentials.ini")
        monkeypatch.setenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")
        assert default_credentials()().access_key_id == "ini-id"

    def test_a_broken_file_is_passed_over_and_named(self, clean_home: Path) -> None:
        (clean_home / ".aliyun").mkdir()
        (clean_home / ".aliyun" / "config.json").write_text("{broken")
        with refused(CredentialsError):
            default_credentials()()
        write_ini(clean_home / ".alibabacloud" / "credentials.ini")
        assert default_credentials()().access_key_id == "ini-id"


class TestUri:
    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        server = ScriptedServer()
        monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_URI", f"{server.endpoint}/key")
        yield server
        server.close()

    def test_a_temporary_key_in_one_piece(self, server: ScriptedServer) -> None:
        server.script = [
            Reply(
                {
                    "Code": "Success",
                    "AccessKeyId": "STS.uri",
                    "AccessKeySecret": "uri-secret",
                    "SecurityToken": "uri-token",
                    "Expiration": "2099-01-01T00:00:00Z",
                }
            )
        ]
        find = default_credentials()
        assert find() == find() == Credentials("STS.uri", "uri-secret", "uri-token")
        assert len(server.asked) == 1

    def test_half_a_key_is_not_quoted(self, server: ScriptedServer) -> None:
        server.script = [Reply({"Code": "Success", "AccessKeyId": "x", "AccessKeySecret": "hush-hush"})]
        with pytest.raises(CredentialsError, match="ALIBABA_CLOUD_CREDENTIALS_URI: error retrieving") as caught:
            default_credentials()()
        assert "hush-hush" not in str(caught.value)


class TestNothing:
    def test_what_was_tried_and_three_ways_out(
        self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(CredentialsError) as caught:
            default_credentials()()
        text = str(caught.value)
        for tried in ("environment: neither", "aliyun command", "credentials file"):
            assert tried in text
        assert "Do one of these:" in text
        for way in ("export ALIBABA_CLOUD_ACCESS_KEY_ID=…", "aliyun configure", "Session.embedded()"):
            assert way in text
        assert capfd.readouterr() == ("", "")
        assert "Traceback" not in caplog.text

    @pytest.mark.parametrize("content", ['{"access_key_id": "an-id", "access_key_secret": "hush"}', "{}", "{"])
    def test_a_key_in_the_config_file_is_named_and_not_shown(self, clean_home: Path, content: str) -> None:
        (clean_home / ".pai").mkdir()
        (clean_home / ".pai" / "config.json").write_text(content)
        with pytest.raises(CredentialsError) as caught:
            default_credentials()()
        text = str(caught.value)
        assert ("config.json: its access key is not used" in text) is ("hush" in content)
        assert "hush" not in text
        assert "an-id" not in text

    def test_a_key_that_comes_later_is_found(self, clean_home: Path) -> None:
        find = default_credentials()
        with pytest.raises(CredentialsError):
            find()
        write_cli_profile(clean_home)
        assert find().access_key_id == "cli-id"


class TestRenewal:
    class Provider:
        """A provider of the official library whose key changes with every question."""

        def __init__(self) -> None:
            self.count = 0
            self.broken = False

        def get_credentials(self) -> Any:
            if self.broken:
                raise RuntimeError("role gone, http_code: 403, result: {secret-in-answer}")
            self.count += 1
            return self.Key(self.count)

        class Key:
            def __init__(self, number: int) -> None:
                self.number = number

            def get_access_key_id(self) -> str:
                return f"id-{self.number}"

            def get_access_key_secret(self) -> str:
                return f"secret-{self.number}"

            def get_security_token(self) -> str:
                return f"token-{self.number}"

    def test_one_consistent_key_a_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = self.Provider()
        searches: list[int] = []

        def places() -> Any:
            searches.append(1)
            yield "here", lambda: provider

        monkeypatch.setattr(module, "_sources", places)
        find = default_credentials()
        keys: list[Credentials] = []
        threads = [threading.Thread(target=lambda: keys.append(find())) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(keys) == 20
        assert all(len({part.partition("-")[2] for part in key[:3] if part}) == 1 for key in keys)
        assert len(searches) == 1

    def test_a_key_that_cannot_be_renewed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = self.Provider()
        monkeypatch.setattr(module, "_sources", lambda: iter([("here", lambda: provider)]))
        find = default_credentials()
        find()
        provider.broken = True
        with refused(CredentialsRenewalError) as caught:
            find()
        assert "secret-in-answer" not in str(caught.value)


def test_the_official_library_is_loaded_only_when_needed() -> None:
    check = (
        "import sys, pai_sdk._core.config.credentials as c, pai_sdk._core.config.settings, pai_sdk.errors;"
        "c.default_credentials();"
        "heavy = {'alibabacloud_credentials', 'requests', 'oss2', 'tenacity', 'pydantic'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_config_of_the_official_library_is_a_key_too() -> None:
    """alipai takes it as `credential_config`."""
    from alibabacloud_credentials.models import Config

    config = Config(type="sts", access_key_id="id", access_key_secret="hush", security_token="token")
    assert provider_of(None, None, None, config)() == Credentials("id", "hush", "token")
    session = Session("cn-x", "1", oss_bucket_name="models", credential_config=config)  # type: ignore[call-arg]
    assert session.oss_bucket.auth.credentials_provider.get_credentials().get_access_key_id() == "id"


# ---- profiles with a command


def external(home: Path, *, expires_s: float | None = None) -> tuple[Path, Path]:
    """The file of runs of the command, and the config file."""
    answer = {"mode": "StsToken", "access_key_id": "id", "access_key_secret": "top-secret", "sts_token": "token"}
    if expires_s is not None:
        answer["expiration"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + expires_s))
    command, runs, config = home / "key.sh", home / "runs", home / ".aliyun" / "config.json"
    command.write_text(f"#!/bin/sh\nprintf x >> {runs}\necho '{json.dumps(answer)}'\n")
    command.chmod(0o755)
    config.parent.mkdir()
    profiles = [{"name": "sso", "mode": "External", "process_command": str(command)}]
    config.write_text(json.dumps({"current": "sso", "profiles": profiles}))
    return runs, config


@pytest.mark.skipif(sys.platform == "win32", reason="the command is a script of the shell")
@pytest.mark.parametrize("expires_s", [None, 3600, 100])
def test_a_command_runs_once_for_many_requests_and_its_key_is_in_no_file(
    clean_home: Path, expires_s: float | None
) -> None:
    runs, config = external(clean_home, expires_s=expires_s)
    before = config.read_bytes()
    credentials = default_credentials()
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: credentials(), range(40)))
    assert keys == {Credentials("id", "top-secret", "token")}
    assert 1 <= len(runs.read_text()) <= 8, "each thread may search once before the first key is there"
    once = len(runs.read_text())
    assert [credentials() for _ in range(5)] == 5 * [*keys]
    assert len(runs.read_text()) == once
    assert config.read_bytes() == before


def test_a_key_of_a_command_is_kept_for_a_minute(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = external(clean_home)
    now = [1000.0]
    monkeypatch.setattr(
        "pai_sdk._core.config.credentials.time", SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    )
    credentials = default_credentials()
    for seconds, count in ((0, 1), (59, 1), (61, 2), (100, 2), (122, 3)):
        now[0] = 1000.0 + seconds
        credentials()
        assert len(runs.read_text()) == count
