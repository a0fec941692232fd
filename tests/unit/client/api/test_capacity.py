"""Instance types, spot prices and queues of quotas, as they go over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pai_sdk._client.api.capacity import InstanceTypes, Quotas
from pai_sdk._client.api.dlc_jobs import VERSION
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.backend.queueing import WaitingReason, read_reason, reason_at_service, reason_in_quota
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import Settings
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.dlc.times import seconds_of
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged


@pytest.fixture
def types(server: ScriptedServer, transport: Transport, retry: RetryPolicy) -> Iterator[InstanceTypes]:
    key = static_credentials("LTAI-example", "a-secret")
    to_dlc = Transport(server.endpoint, key, version=VERSION, retry=retry, timeout_s=(20.0, 60.0))
    yield InstanceTypes(transport, to_dlc)
    to_dlc.close()


def test_instance_types_are_those_of_dlc(server: ScriptedServer, types: InstanceTypes) -> None:
    server.answer = paged("EcsSpecs", [{"InstanceType": "a", "Cpu": 8, "Memory": "32", "Gpu": 1}])
    [each] = types.list(names=["a", "b"], accelerator="GPU", resource_type="ECS")
    assert (each.instance_type, each.cpu, each.memory, each.gpu) == ("a", 8, 32, 1)
    asked = server.asked[0]
    assert (asked.path, asked.headers["x-acs-version"]) == ("/api/v1/ecsspecs", VERSION)
    expected = {"InstanceTypes": "a,b", "AcceleratorType": "GPU", "ResourceType": "ECS"}
    assert asked.query.items() >= expected.items()


def price(part: float | None, hour: int, zone: str = "a") -> dict[str, Any]:
    return {"InstanceType": "t", "ZoneId": zone, "Timestamp": f"2026-11-28T{hour:02}:00:00Z", "SpotDiscount": part}


def test_the_price_of_a_spot_instance_is_the_highest_of_its_history(
    server: ScriptedServer, types: InstanceTypes
) -> None:
    def history(asked: Asked) -> Reply:  # without pages: all, each time
        names = {"t": [price(0.3, 9), price(0.2, 7, "b"), price(None, 8)]}
        items = names.get(asked.path.split("/")[-2], [])
        return Reply({"SpotPriceHistory": items, "TotalCount": len(items)})

    server.answer = history
    assert [each.spot_discount for each in types.spot_history("t", hours=1, protected=True)] == [0.2, 0.3]
    asked = server.asked[0]
    assert asked.path == "/api/v1/spots/t/pricehistory"
    assert (asked.query["SpotDuration"], seconds_of(asked.query["StartTime"]) is None) == ("1", False)
    prices = {"t": 10.0, "none": 1.0, "typed": 2.0, "typed spot": 0.5}
    assert types.spot_prices(prices) == {**prices, "t spot": 3.0}
    assert "/api/v1/spots/typed/pricehistory" not in {each.path for each in server.asked}


@pytest.mark.parametrize("hours", [0, -1, 169, True, float("nan"), "1"])
def test_a_history_that_the_service_does_not_have_is_refused(types: InstanceTypes, hours: Any) -> None:
    with pytest.raises(InvalidInputError) as error:
        types.spot_history("t", hours=hours)
    assert error.value.problems[0].where == "hours"


def workload(number: int, **fields: Any) -> dict[str, Any]:
    return {"WorkloadId": f"dlc{number}", "Position": number, "GmtEnqueuedTime": "2026-11-28T09:00:00Z", **fields}


def test_workloads_are_all_of_the_queue(server: ScriptedServer, transport: Transport) -> None:
    server.answer = paged("Workloads", [workload(number) for number in range(250)])
    ids = [each.workload_id for each in Quotas(transport).workloads("quota1", ahead_of="dlc9", is_direct=True)]
    assert ids == [f"dlc{number}" for number in range(250)]
    assert server.asked[0].path == "/api/v1/quotas/quota1/workloads"
    assert server.asked[0].query.items() >= {"BeforeWorkloadId": "dlc9", "ShowOwn": "true"}.items()


def test_why_a_job_waits_in_a_quota(server: ScriptedServer, transport: Transport) -> None:
    # A service that ignores the filter.
    others = [workload(1), workload(2, Reason="2 GPUs are missing", Code="QuotaLimit")]
    server.answer = paged("Workloads", [*others, workload(3, GmtDequeuedTime="2026-11-28T10:00:00Z")])
    quotas = Quotas(transport)
    reason = reason_in_quota(quotas, "quota1", ["dlc2", "train2"])
    assert reason == WaitingReason("2 GPUs are missing", 2, "2026-11-28T09:00:00Z", "QuotaLimit")
    assert server.asked[0].query["WorkloadIds"] == "dlc2,train2"
    assert reason_in_quota(quotas, "quota1", ["dlc3"]) is None


def test_why_a_job_waits_at_a_service(server: ScriptedServer, transport: Transport) -> None:
    job = {"message": "", "queue_place": 3, "created_at": 1662372218.9, "events": [{"text": "a"}, {"text": "b"}]}
    server.script = [Reply(job), Reply({"Code": "NotFound"}, 404)]
    assert reason_at_service(transport, "t/1") == WaitingReason("b", 3, "2022-09-05T10:03:38Z")
    record = JobRecord.model_validate({"TrainingJobId": "t-1", "ComputeResource": {"ResourceId": "quota1"}})
    assert read_reason(transport, None, record) is None
    assert read_reason(transport, Quotas(transport), record) is None
    assert [each.path for each in server.asked[1:]] == ["/api/v1/runs/t-1/job", "/api/v1/quotas/quota1/workloads"]


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(region_id="cn-x"), "https://pai-dlc.cn-x.aliyuncs.com"),
        (Settings(region_id="cn-x", network="VPC"), "https://pai-dlc-vpc.cn-x.aliyuncs.com"),
        (Settings(region_id="cn-x", endpoint="pai.cn-x.aliyuncs.com"), "https://pai-dlc.cn-x.aliyuncs.com"),
        (Settings(region_id="cn-x", endpoint="http://127.0.0.1:1"), "http://127.0.0.1:1"),
    ],
)
def test_where_dlc_is(settings: Settings, url: str) -> None:
    assert settings.dlc_url == url
