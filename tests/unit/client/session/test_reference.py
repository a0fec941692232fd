"""Stores that are pickled use the same services where they are loaded, or say why they cannot."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import pai_sdk._client.session.default
from pai_sdk._client.session.default import SessionReference, default_session_from, get_default_session
from pai_sdk._client.session.session import Session
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import SettingsError
from tests.support.messages import refused


def session(region: str = "cn-hangzhou", **more: Any) -> Session:
    return Session(
        region, "1", oss_bucket_name="models", access_key_id="id-1", access_key_secret="planted", **more
    )


def loaded(store: RunStore) -> RunStore:
    content = pickle.dumps(store)
    assert b"planted" not in content
    copy: RunStore = pickle.loads(content)
    return copy


@pytest.fixture(autouse=True)
def no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pai_sdk._client.session.default, "_default", None)


def test_the_same_services_with_the_keys_of_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    store = loaded(RunStore.create("oss://models/team", session=session()))
    monkeypatch.setattr(pai_sdk._client.session.default, "_default", session())
    assert open_store("oss://models", store._session).uri == "oss://models/"
    assert pickle.loads(pickle.dumps(store))._session == store._session  # also after it was opened


@pytest.mark.parametrize("other", [session("cn-beijing"), session(oss_endpoint="http://127.0.0.1:1")])
def test_other_services_are_refused(other: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    store = loaded(RunStore.create("oss://models/team", session=session()))
    monkeypatch.setattr(pai_sdk._client.session.default, "_default", other)
    with refused(SettingsError):
        store.exists(store.get_run_path("r1"))


def test_no_service_is_started_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    store = loaded(RunStore.create("oss://models/team", session=session()))

    def start(*args: object) -> None:
        raise AssertionError("a service was started")

    monkeypatch.setattr(Session, "embedded", start)
    with refused(SettingsError):
        store.exists(store.get_run_path("r1"))


def test_without_a_session_it_is_that_of_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pai_sdk._client.session.default, "_default", session("cn-beijing"))
    store = loaded(RunStore.create("oss://models/team"))
    assert store._session == SessionReference("cn-beijing")
    monkeypatch.setattr(pai_sdk._client.session.default, "_default", session())
    with refused(SettingsError):
        store.exists(store.get_run_path("r1"))


def test_the_embedded_service_is_the_one_of_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session()
    made._embedded.data_dir = tmp_path / "service"
    made._embedded.data_dir.mkdir()
    store = loaded(RunStore.create("oss://pai-local/team", session=made))
    asked: list[object] = []

    def embedded(folder: object) -> Session:
        asked.append(folder)
        return session()

    monkeypatch.setattr(Session, "embedded", embedded)
    for _ in range(2):
        open_store("oss://pai-local", store._session)
    assert asked == [str(tmp_path / "service")]
    shutil.rmtree(tmp_path / "service")
    with refused(SettingsError):
        open_store("oss://pai-local", loaded(store)._session)


def test_other_kinds_of_stores_need_no_session(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path)
    store.write_text(f"{tmp_path}/a", "1")
    assert loaded(store).read(f"{tmp_path}/a") == b"1"


def test_a_default_session_for_a_block_is_opened_at_its_first_use() -> None:
    opened = []

    def open_session() -> Session:
        opened.append("shanghai")
        return session("cn-shanghai")

    with default_session_from(open_session):
        assert not opened
        assert get_default_session().settings.region_id == "cn-shanghai"
        assert get_default_session().settings.region_id == "cn-shanghai"
    assert opened == ["shanghai"]
    assert pai_sdk._client.session.default._default is None
