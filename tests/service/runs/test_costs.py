"""What jobs cost: by the price list of the service, as it was when they started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pai_sdk._core.prices import PriceList
from pai_sdk._service.services.jobs.details.costs import cost_of, price_of
from pai_sdk._service.settings import Pace
from pai_sdk._service.state.models import Job, JobPrice, Transition
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.cli.root import new_app
from pai_sdk.cli.selection.backend import session_on
from pai_sdk.cli.service.serve_files import read_price_list
from pai_sdk.errors import InvalidInputError
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body
from tests.support.waiting import until

PRICES = PriceList(
    "CNY", {"local": 12.0, "ecs.a": 10.0, "ecs.b": 20.0, "ecs.b spot": 3.0}, {"A10": 8.0, "other": 5.0}, 0.5
)
ENDED = ("Succeed", "Failed", "Terminated")


def rows(client: Client, **query: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in client.get("/runs", fields="cost,currency,status", **query)["runs"]}


def on(**compute: Any) -> dict[str, Any]:
    return job_body(ComputeResource=compute)


@pytest.fixture
def executor() -> ScriptedExecutor:
    executor = ScriptedExecutor()
    executor.begun_before_s = 3600.0
    return executor


# ---- the list and the job -----------------------------------------------------------------------------------


def test_the_cost_of_a_job_grows_until_its_end_and_stays(
    start: Callable[..., Any], executor: ScriptedExecutor
) -> None:
    with start(executor, prices=PRICES, pace=Pace(cost_s=0.05)) as client:
        job_id = client.create(on(EcsSpec="local", EcsCount=2))
        client.until(job_id, "Running")
        until(lambda: 24.0 <= rows(client)[job_id].get("cost", 0) < 25.0)
        first = rows(client)[job_id]["cost"]
        until(lambda: rows(client)[job_id]["cost"] > first)
        executor.stop(client.info.data_dir / "jobs" / job_id, reason_code="", reason_message="")
        client.until(job_id, *ENDED)
        until(lambda: rows(client)[job_id]["status"] in ENDED)
        last = rows(client)[job_id]
        assert (last["currency"], last["cost"] >= first) == ("CNY", True)
        details = client.get(f"/runs/{job_id}")
        assert (details["cost"], details["currency"]) == (last["cost"], "CNY")
        brief = session_on(client.info).runs.list(f"id={job_id}").runs[0]
        assert (brief.cost, brief.currency) == (last["cost"], "CNY")


def test_the_time_between_the_end_of_an_attempt_and_its_return_to_the_queue_is_free(
    start: Callable[..., Any], executor: ScriptedExecutor
) -> None:
    executor.begun_before_s = 0.0
    prices = PriceList(instance_types={"local": 3600.0})
    with start(executor, prices=prices, pace=Pace(cost_s=0.05, first_retry_wait_s=600.0)) as client:
        tags = {"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "OutOfMemory,KilledBySignal"}
        job_id = client.create({**on(EcsSpec="local", EcsCount=1), "Settings": {"Tags": tags}})
        until(lambda: rows(client).get(job_id, {}).get("cost", 0) > 1)
        executor.ended_before_s = 86_400.0  # as after a day without a service
        executor.fail(client.info.data_dir / "jobs" / job_id, f"{job_id}-master-0", 137)
        until(lambda: rows(client)[job_id]["status"] == "Submitted")
        assert rows(client)[job_id]["cost"] < 1


def test_jobs_without_a_price_have_no_cost_and_the_others_are_filtered_and_sorted_by_it(
    start: Callable[..., Any], executor: ScriptedExecutor
) -> None:
    with start(executor, prices=PRICES, slots=4) as client:
        cheap, dear, unknown = (
            client.create(on(EcsSpec=name, EcsCount=1)) for name in ("ecs.a", "ecs.b", "ecs.c")
        )
        for job_id in (cheap, dear, unknown):
            client.until(job_id, "Running")
        queued = client.create(on(EcsSpec="ecs.a", EcsCount=4))
        until(lambda: {*rows(client)} == {cheap, dear, unknown, queued})
        until(lambda: all("cost" in rows(client)[job_id] for job_id in (cheap, dear)))
        for job_id in (unknown, queued):
            assert rows(client)[job_id].keys().isdisjoint({"cost", "currency"})
        assert {*rows(client, filter="cost>15")} == {dear}
        assert {*rows(client, filter="cost!=0")} == {cheap, dear, unknown, queued}
        assert [*rows(client, sort="-cost")][:2] == [dear, cheap]
        assert [*rows(client, sort="cost")][:2] == [cheap, dear]


def test_a_new_price_is_that_of_later_jobs(
    start: Callable[..., Any], executor: ScriptedExecutor, tmp_path: Path
) -> None:
    with start(executor, prices=PRICES) as client:
        early = client.create(on(EcsSpec="ecs.a", EcsCount=1))
        client.until(early, "Running")
    with start(executor, prices=PriceList("EUR", {"ecs.a": 40.0, "free": 0})) as client:
        late, free = (client.create(on(EcsSpec=name, EcsCount=1)) for name in ("ecs.a", "free"))
        client.until(late, "Running")
        client.until(free, "Running")
        until(lambda: all("cost" in rows(client).get(job_id, {}) for job_id in (early, late, free)))
        found = rows(client)
        assert (round(found[early]["cost"]), found[early]["currency"]) == (10, "CNY")
        assert (round(found[late]["cost"]), found[late]["currency"], found[free]["cost"]) == (40, "EUR", 0)
    with start(executor) as client:  # without prices, what is recorded stays
        unpriced = client.create(on(EcsSpec="ecs.a", EcsCount=1))
        client.until(unpriced, "Running")
        until(lambda: rows(client).get(early, {}).get("cost", 0) >= 10 and unpriced in rows(client))
        assert "cost" not in rows(client)[unpriced]


def test_jobs_of_dlc_by_their_roles_and_spot_terms(start: Callable[..., Any], executor: ScriptedExecutor) -> None:
    worker = {"Type": "Worker", "PodCount": 2, "Image": "none", "EcsSpec": "ecs.a"}
    with start(executor, prices=PRICES) as client:
        dlc = DlcClient(client.info)
        terms = {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.5}
        job_id = dlc.create(dlc_body(JobSpecs=[{**worker, "SpotSpec": terms}]))
        dlc.until(job_id, "Running")
        until(lambda: rows(client).get(job_id, {}).get("cost", 0) >= 10)
        assert rows(client)[job_id]["cost"] < 11


# ---- prices -------------------------------------------------------------------------------------------------

LIMITED = {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}


@pytest.mark.parametrize(
    ("compute", "price"),
    [
        ({"EcsSpec": "ecs.a", "EcsCount": 3}, 30.0),
        ({"EcsSpec": "ecs.c", "EcsCount": 3}, None),
        ({"EcsSpec": "ecs.a", "EcsCount": 1, "UseSpotInstance": True}, 10.0),
        ({"EcsSpec": "ecs.a", "EcsCount": 1, "SpotSpec": LIMITED}, 4.0),
        ({"EcsSpec": "ecs.a", "EcsCount": 1, "SpotSpec": {"SpotStrategy": "SpotAsPriceGo"}}, 10.0),
        ({"EcsSpec": "ecs.a", "EcsCount": 1, "SpotSpec": {**LIMITED, "SpotDiscountLimit": 0}}, 10.0),
        ({"EcsSpec": "ecs.b", "EcsCount": 2, "SpotSpec": LIMITED}, 6.0),
        ({"ResourceId": "quota1", "InstanceCount": 2, "InstanceSpec": {"CPU": "8", "GPU": "1"}}, 18.0),
        ({"ResourceId": "quota1", "InstanceSpec": {"CPU": "2", "GPU": "2", "GPUType": "A10"}}, 17.0),
        ({"ResourceId": "quota1", "InstanceSpec": {"CPU": "4"}}, 2.0),
        ({"ResourceId": "quota1", "InstanceSpec": {"Memory": "4"}}, None),
        ({"ResourceId": "quota1"}, None),
        ({"ResourceId": "quota1", "InstanceSpec": {"CPU": "many"}}, None),
    ],
)
def test_the_price_of_a_job(compute: dict[str, Any], price: float | None) -> None:
    assert price_of(PRICES, TrainingJobRequest.model_validate(on(**compute))) == price


@pytest.mark.parametrize(
    ("prices", "spec", "price"),
    [
        (PriceList(gpus={"A10": 8.0}), {"CPU": "8", "GPU": "1", "GPUType": "A10"}, 8.0),
        (PriceList(gpus={"A10": 8.0}), {"GPU": "1", "GPUType": "H800"}, None),
        (PriceList(gpus={"A10": 8.0}), {"CPU": "8"}, None),
        (PriceList(cpu=0.5), {"CPU": "8", "GPU": "1"}, None),
    ],
)
def test_resources_that_the_list_has_no_price_of(
    prices: PriceList, spec: dict[str, Any], price: float | None
) -> None:
    assert price_of(prices, TrainingJobRequest.model_validate(on(ResourceId="quota1", InstanceSpec=spec))) == price


def test_each_role_has_its_own_price_and_spot_terms() -> None:
    roles: list[dict[str, Any]] = [
        {"Name": "PS", "Count": 2},
        {"Name": "Worker", "Count": 3, "EcsSpec": "ecs.b"},
        {"Name": "Evaluator", "InstanceSpec": {"CPU": "4"}},
    ]
    body = {**on(EcsSpec="ecs.a", EcsCount=6), "Roles": roles}
    request = TrainingJobRequest.model_validate(body)
    assert price_of(PRICES, request) == 2 * 10 + 3 * 20 + 2
    specs = [received(JobSpec, spec) for spec in ({"PodCount": 0}, {}, {"UseSpotInstance": True}, {})]
    assert price_of(PRICES, request, specs) == 2 * 10 + 3 * 3 + 2
    roles[1]["EcsSpec"] = "ecs.c"
    assert price_of(PRICES, TrainingJobRequest.model_validate(body)) is None


def test_the_time_in_which_no_instance_runs_is_free() -> None:
    def job(*changes: tuple[str, float, float | None], **times: float) -> Job:
        rows = [Transition(status=status, started_at=at, ended_at=end) for status, at, end in changes]
        return Job(id="train1", transitions=rows, **times)

    price = JobPrice(job_id="train1", per_hour=3600.0, currency="CNY")
    queue, retry = ("Submitted", 0, 50), ("Submitted", 150, 500)
    first = ("Running", 50, 150)
    waiting = job(queue, first, ("Submitted", 150, None), started_at=50)
    assert cost_of(waiting, price).at(9999) == 100
    running = job(queue, first, retry, ("Running", 500, None), started_at=490)
    assert [cost_of(running, price).at(now) for now in (400, 490, 500)] == [100, 100, 110]
    # Its outputs were uploaded from 600 to 900.
    finished = job(queue, first, retry, ("Running", 500, 900), ("Failed", 900, 900), started_at=490, ended_at=600)
    assert cost_of(finished, price).at(9999) == 210
    stopped = job(queue, first, ("Submitted", 150, 700), ("Terminated", 700, 700), started_at=50, ended_at=700)
    assert cost_of(stopped, price).at(9999) == 100
    assert cost_of(job(queue), price).at(9999) == 0


# ---- the file -----------------------------------------------------------------------------------------------


def test_a_price_list_is_parsed() -> None:
    content = {"currency": "¥", "instance_types": {"ecs.a": 10}, "gpu": {"A10": 8, "other": 5}, "cpu": 0.5}
    assert PriceList.parse(content, str) == PriceList("¥", {"ecs.a": 10}, {"A10": 8, "other": 5}, 0.5)
    assert PriceList.parse({"gpu": 5}, str) == PriceList(gpus={"other": 5})
    assert PriceList.parse({"cpu": 0}, str) == PriceList(cpu=0)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, [""]),
        ({}, [""]),
        ({"currency": "CNY", "gpu": {}}, [""]),
        ({"instance_types": [1]}, ["instance_types"]),
        (
            {
                "currency": "a\nb",
                "instance_types": {"ecs.a": -1, "ecs.b": "2", 7: 1, "": 1},
                "gpu": {"A10": float("nan"), "H800": True},
                "cpu": None,
                "memory": 1,
            },
            [
                *(
                    "memory",
                    "currency",
                    "instance_types['ecs.a']",
                    "instance_types['ecs.b']",
                    "instance_types['7']",
                ),
                *("instance_types['']", "gpu['A10']", "gpu['H800']", "cpu"),
            ],
        ),
        ({"gpu": float("inf")}, ["gpu"]),
    ],
)
def test_all_bad_entries_are_named(content: Any, wrong: list[str]) -> None:
    with pytest.raises(InvalidInputError) as error:
        PriceList.parse(content, str)
    assert [problem.where for problem in error.value.problems] == wrong


def test_a_service_does_not_start_with_a_bad_list(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("instance_types:\n  ecs.a: 1\n  ecs.b: free\ngpu: -1\n")
    data = tmp_path / "data"
    done = CliRunner().invoke(new_app(), ["serve", "--prices", str(file), "--data", str(data), "--port", "0"])
    assert isinstance(done.exception, InvalidInputError)
    wrong = [problem.where for problem in done.exception.problems]
    assert wrong == [f"{file}:3: instance_types['ecs.b']", f"{file}:4: gpu"]
    assert not data.exists()
    file.write_text("gpu: 1\ngpu: 2\n")
    with pytest.raises(InvalidInputError):
        read_price_list(file)
    file.write_text("{currency: CNY, gpu: 1.5}")
    assert read_price_list(file) == PriceList("CNY", gpus={"other": 1.5})
    assert read_price_list(None) is None
