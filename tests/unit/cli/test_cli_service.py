"""`pai-sdk service` without a service, and `pai-sdk prune --service`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk.errors import EngineNotFoundError, InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.unit.cli.conftest import Pai


def test_a_service_that_does_not_run(pai: Pai, clean_home: Path) -> None:
    data = clean_home / ".pai" / "service"
    (data / "cache" / "pip").mkdir(parents=True)
    (data / "cache" / "pip" / "wheel").write_bytes(b"x" * 8192)
    told = pai("service", "status")
    assert told.exit_code == 102
    assert "not running" in told.stdout
    assert "pip cache" in told.stdout
    facts = json.loads(pai("service", "status", "--json").stdout)
    assert (facts["running"], facts["data"]) == (False, str(data))
    assert pai("service", "stop").stdout == "no service is running\n"
    assert "would free 8.2 kB" in pai("service", "clean", "--older-than", "0", "--dry-run").stdout
    assert (data / "cache" / "pip" / "wheel").exists()
    assert pai("service", "clean").stdout == "nothing to remove\n", "it is of today"
    assert "freed 8.2 kB" in pai("service", "clean", "--older-than", "0").stdout
    assert not (data / "cache" / "pip").exists()


@pytest.mark.parametrize("text", ["7", "soon", "-1d", "1y", ""])
def test_what_is_no_duration_is_wrong_usage(pai: Pai, text: str) -> None:
    assert pai("service", "clean", f"--older-than={text}").exit_code == 2


@pytest.fixture
def deleted(memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    deleted: list[str] = []
    records = {
        "old": {"Status": "Failed", "GmtModifiedTime": "2026-01-01T00:00:00Z"},
        "running": {"Status": "Running", "GmtModifiedTime": "2026-01-01T00:00:00Z"},
        "unknown": {"Status": "Succeed", "GmtModifiedTime": None, "GmtCreateTime": "yesterday"},
        "future": {"Status": "Succeed", "GmtModifiedTime": "2999-01-01T00:00:00Z"},
    }
    jobs = []
    for name, fields in records.items():
        memory.extra = {"TrainingJobName": name, **fields}
        jobs.append(TrainingJob(f"train-{name}", memory, record=memory.get(f"train-{name}")))
    monkeypatch.setattr(TrainingJob, "list", lambda **_: iter(jobs))
    monkeypatch.setattr(memory, "delete", deleted.append)
    return deleted


@pytest.mark.parametrize("place", [(), ("--local",)])
@pytest.mark.parametrize("option", [("--dry-run",), ("--name", "digits"), ("--older-than", "7d")])
def test_pruning_local_jobs_refuses_the_options_that_it_would_ignore(
    pai: Pai, monkeypatch: pytest.MonkeyPatch, place: tuple[str, ...], option: tuple[str, ...]
) -> None:
    pruned: list[str] = []

    def prune() -> Sequence[str]:
        pruned.append("all")
        return pruned

    local = SimpleNamespace(local=SimpleNamespace(prune=prune))
    monkeypatch.setattr("pai_sdk.cli.jobs.get_default_session", lambda **_: local)
    refused = pai("prune", *option, *place)
    assert refused.exit_code == 2
    assert "only for jobs of a service" in refused.stderr
    assert not pruned
    assert pai("prune", *place).stdout == "removed 1: all\n"


def test_pruning_without_docker_names_the_option_for_a_service(pai: Pai, monkeypatch: pytest.MonkeyPatch) -> None:
    def prune() -> Sequence[str]:
        raise EngineNotFoundError("no Docker engine responds")

    local = SimpleNamespace(local=SimpleNamespace(prune=prune))
    monkeypatch.setattr("pai_sdk.cli.jobs.get_default_session", lambda **_: local)
    with pytest.raises(InvalidInputError, match="--service"):
        pai("prune")
    with pytest.raises(EngineNotFoundError):
        pai("prune", "--local")


def test_only_jobs_that_ended_long_ago_are_pruned(pai: Pai, deleted: list[str]) -> None:
    assert pai("prune", "--service", "--dry-run").stdout == "would remove train-old  old  Failed\n"
    assert pai("prune", "--service", input="n\n").exit_code == 1
    assert deleted == []
    assert pai("prune", "--service", "--yes").stdout == "removed 1 job; its outputs are kept\n"
    assert deleted == ["train-old"]
