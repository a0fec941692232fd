"""Jobs of DLC in the list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import until


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("rows") / "data", ScriptedExecutor()) as client:
        yield client


def rows(service: Client, **query: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = service.get("/runs", fields="status,labels,hparams", **query)["runs"]
    return rows


def test_status_labels_and_hyperparameters(service: Client) -> None:
    dlc = DlcClient(service.info)
    training = service.create(job_body())
    named = dlc.create(dlc_body(Envs={"PAI_SDK_HPS": '{"lr":"0.1"}'}, Settings={"Tags": {"team": "a"}}))
    others = [dlc.create(dlc_body(Envs={"PAI_SDK_HPS": value})) for value in ("no json", "[1]", "7")]
    for job_id in (named, *others):
        dlc.until(job_id, "Running")
    until(lambda: [row["status"] for row in rows(service)].count("Running") == 5)
    by_id = {row["id"]: row for row in rows(service)}
    assert by_id[named]["labels"] == {"api": "dlc", "dlc_status": "Running", "team": "a"}
    assert by_id[named]["hparams"] == {"lr": "0.1"}
    assert not any(row.get("hparams") for job_id, row in by_id.items() if job_id != named)
    assert not by_id[training].get("labels")
    dlc.do("StopJob", ids={"job_id": named})
    until(lambda: [row["id"] for row in rows(service, filter="labels.dlc_status=Stopped")] == [named])
    assert {row["id"] for row in rows(service, filter="labels.api=dlc")} == {named, *others}
