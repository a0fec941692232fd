"""Guards of a submission: cost, capacity, one job for a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.submission.capacity import is_capacity_code
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import ApiError, InvalidInputError, JobFailed
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

SPOT = {"spot_strategy": "SpotWithPriceLimit", "spot_discount_limit": 0.5}
# All instances are listed, and logs are complete: else a wait for a failed job takes 15 s more, for late lines.
_COMPLETE = {"x-pai-offers": "all-instances", "x-pai-log-complete": "true"}
PRICES = {"ecs.a": 10, "ecs.b": 40.0, "ecs.b spot": 4}


class Market:
    """PAI's API, where some instance types are sold out, or their jobs fail before they begin."""

    def __init__(self) -> None:
        self.server = ScriptedServer()
        self.server.answer = self._answer
        self.sold_out: set[str] = set()
        self.fail: set[str] = set()
        self.began: set[str] = set()
        self.bodies: list[dict[str, Any]] = []
        self.created: list[dict[str, Any]] = []

    def session(self) -> Session:
        where, retry = self.server.endpoint, RetryPolicy(max_attempts=2, sleep=lambda _: None)
        key = {"access_key_id": "i", "access_key_secret": "s"}
        return Session(
            "cn-x", "7", oss_bucket_name="models", endpoint=where, oss_endpoint=where, retry=retry, **key
        )

    def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/api/v1/trainingjobs" and asked.method == "POST":
            body = json.loads(asked.body)
            self.bodies.append(body)
            if kind(body) in self.sold_out:
                return Reply({"Code": "OperationDenied.NoStock", "Message": "sold out"}, 403)
            self.created.append(body)
            return Reply({"TrainingJobId": f"train{len(self.created)}"})
        if asked.path == "/api/v1/trainingjobs":
            wanted = json.loads(asked.query.get("Labels", "{}")).items()
            jobs = [self._job(number) for number in range(1, len(self.created) + 1)]
            jobs = [
                job for job in jobs if wanted <= {each["Key"]: each["Value"] for each in job["Labels"]}.items()
            ]
            return Reply({"TrainingJobs": jobs[::-1], "TotalCount": len(jobs)})
        found = asked.path.split("/")[4:]
        if len(found) == 1 and asked.method == "GET":
            return Reply(self._job(int(found[0].removeprefix("train"))), headers=_COMPLETE)
        return Reply({}, headers=_COMPLETE)

    def _job(self, number: int) -> dict[str, Any]:
        body = self.created[number - 1]
        passed = [{"Status": "Running"}] if kind(body) in self.began else []
        job = {"TrainingJobId": f"train{number}", "Status": "Succeed", "Labels": body["Labels"]}
        if kind(body) in self.fail | self.began:
            job |= {"Status": "Failed", "ReasonCode": "ResourceNotEnough", "StatusTransitions": passed}
        return job


def kind(body: dict[str, Any]) -> str:
    compute = body["ComputeResource"]
    return str(compute["EcsSpec"]) + (" spot" if "SpotSpec" in compute else "")


@pytest.fixture
def market() -> Iterator[Market]:
    made = Market()
    yield made
    made.server.close()


def estimator(market: Market, **more: Any) -> Estimator:
    given = {"instance_type": "ecs.a", "session": market.session(), **more}
    return Estimator("image", "true", **given)


# ---- cost


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"max_cost": 9, "max_run_time": 3600}, "max_cost"),
        ({"max_cost": 19, "max_run_time": 3600, "instance_count": 2}, "max_cost"),
        ({"max_cost": 100}, "max_cost"),
        ({"max_cost": 100, "max_run_time": 60, "instance_type": "ecs.c"}, "max_cost"),
        ({"max_cost": 10, "max_run_time": 3600, "fallback": ["ecs.b"]}, "max_cost"),
        ({"max_cost": 4.9, "max_run_time": 3600, "spot_spec": SPOT}, "max_cost"),
        (
            {"max_cost": 1, "max_run_time": 3600, "spot_spec": {**SPOT, "spot_discount_limit": 50}},
            "max_cost",
        ),
        ({"max_cost": 0}, "max_cost"),
        ({"max_cost": 1, "max_run_time": 1, "prices": {"ecs.a": "x"}}, "prices['ecs.a']"),
    ],
)
def test_a_job_that_may_cost_too_much_is_refused_before_it_is_sent(
    market: Market, more: dict[str, Any], where: str
) -> None:
    with refused(InvalidInputError, where) as caught:
        estimator(market, **{"prices": PRICES, **more}).fit(show_logs=False)
    assert len(caught.value.problems) == 1
    assert market.bodies == []


@pytest.mark.parametrize("where", ["spot_spec", "fallback"])
@pytest.mark.parametrize("limit", [float("nan"), "nan", -1.0, "-1", float("inf"), "1_0", True])
def test_a_spot_limit_that_is_no_amount_does_not_pass_max_cost(market: Market, where: str, limit: object) -> None:
    spot = {**SPOT, "spot_discount_limit": limit}
    more: dict[str, Any] = {"spot_spec": spot} if where == "spot_spec" else {"fallback": [{"spot_spec": spot}]}
    with pytest.raises(InvalidInputError) as caught:
        estimator(market, max_cost=1000, max_run_time=3600, prices=PRICES, **more).plan()
    assert any("spot_discount_limit" in problem.where for problem in caught.value.problems)


@pytest.mark.parametrize(
    "more",
    [
        {"max_cost": 10, "max_run_time": 3600},
        {"max_cost": 4, "max_run_time": 3600, "instance_type": "ecs.b", "spot_spec": SPOT},
        {"max_cost": 0.01, "instance_type": "local"},
        {"max_cost": 1, "instance_type": None, "instance_spec": {"CPU": "1"}, "resource_id": "quota"},
    ],
)
def test_a_job_within_its_cost_is_planned(market: Market, more: dict[str, Any]) -> None:
    assert estimator(market, prices=PRICES, **more).plan()


def test_prices_of_the_config_file(market: Market, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"prices": {"ecs.a": 100}}))
    monkeypatch.setenv("PAI_CONFIG_PATH", str(config))
    with refused(InvalidInputError, "max_cost"):
        estimator(market, max_cost=10, max_run_time=3600).plan()
    assert estimator(market, max_cost=10, max_run_time=3600, prices={"ecs.a": 1}).plan()


# ---- capacity


def test_without_capacity_the_next_resources_are_asked_for(
    market: Market, caplog: pytest.LogCaptureFixture
) -> None:
    market.sold_out = {"ecs.a spot", "ecs.b spot"}
    made = estimator(market, spot_spec=SPOT, fallback=["ecs.b", "on-demand", "ecs.never"])
    assert "without capacity: ecs.b spot, then ecs.a, then ecs.never spot" in str(made.plan())
    job = made.fit(wait=False, show_logs=False)
    assert job.id == "train1"
    assert [kind(body) for body in market.bodies] == ["ecs.a spot", "ecs.b spot", "ecs.a"]
    assert len(market.created) == 1
    same = [{**body, "ComputeResource": None} for body in market.bodies]
    assert same[0] == same[1] == same[2], "the same plan, under the same submission"
    assert "no capacity (OperationDenied.NoStock); trying ecs.b spot" in caplog.text
    assert "trying ecs.a" in caplog.text


def test_other_refusals_and_the_last_one_are_raised(market: Market) -> None:
    market.sold_out = {"ecs.a", "ecs.b"}
    with refused(ApiError, code="OperationDenied.NoStock"):
        estimator(market, fallback=["ecs.b"]).fit(wait=False, show_logs=False)
    assert [kind(body) for body in market.bodies] == ["ecs.a", "ecs.b"]
    answer = market.server.answer
    market.server.answer = lambda asked: Reply({"Code": "Forbidden.RAM", "Message": "no"}, 403)
    with refused(ApiError, code="Forbidden.RAM"):
        estimator(market, fallback=["ecs.b"]).fit(wait=False, show_logs=False)
    market.server.answer = answer
    assert market.created == []


def test_a_job_that_found_no_capacity_is_sent_again_by_who_waits(
    market: Market, caplog: pytest.LogCaptureFixture
) -> None:
    market.fail = {"ecs.a", "ecs.b"}
    made = estimator(market, fallback=["ecs.b", "ecs.c"])
    job = made.fit(show_logs=False)
    assert (job.id, job.status) == ("train3", "Succeed")
    assert [one.id for one in made.jobs] == ["train1", "train2", "train3"]
    submissions = {label["Value"] for body in market.created for label in body["Labels"]}
    assert len(submissions) == 3, "each is a submission of its own"
    assert "no capacity (ResourceNotEnough); trying ecs.c" in caplog.text


def test_a_job_that_began_is_not_sent_again(market: Market) -> None:
    market.began = {"ecs.a"}
    with pytest.raises(JobFailed):
        estimator(market, fallback=["ecs.b"]).fit(show_logs=False)
    assert len(market.created) == 1


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"fallback": [7]}, ("fallback[0]",)),
        ({"fallback": [{"instance_typ": "x"}]}, ("fallback[0]",)),
        ({"fallback": ["local"]}, ("fallback[0]",)),
        ({"fallback": "ecs.b"}, ("fallback",)),
        ({"fallback": [{"spot_spec": {"nothing": 1}}]}, ("fallback[0].SpotStrategy", "fallback[0].nothing")),
        ({"fallback": ["ecs.b"], "instance_type": "local"}, ("fallback",)),
    ],
)
def test_wrong_alternatives(market: Market, more: dict[str, Any], where: tuple[str, ...]) -> None:
    with refused(InvalidInputError, *where):
        estimator(market, **more).plan()


@pytest.mark.parametrize(
    "code",
    ["OperationDenied.NoStock", "Zone.NotOnSale", "InsufficientResource", "OutOfStock", "RESOURCE_NOT_ENOUGH"],
)
def test_codes_of_no_capacity(code: str) -> None:
    assert is_capacity_code(code)


@pytest.mark.parametrize("code", ["QuotaExceeded", "NonZeroExit", "OutOfMemory", "InsufficientBalance", "", None])
def test_other_codes(code: str | None) -> None:
    assert not is_capacity_code(code)


# ---- one job for a key


def test_a_second_submission_with_the_same_key_gives_the_first_job(
    market: Market, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    first = estimator(market, idempotency_key="nightly-2026-11-22").fit(wait=False, show_logs=False)
    again = estimator(market, idempotency_key="nightly-2026-11-22")
    plan = again.plan()
    assert again.submit(plan, show_logs=False).id == again.submit(plan, show_logs=False).id == first.id
    loaded = Plan.load(plan.save(tmp_path / "plan.json"))
    assert market.session().submit(loaded).id == first.id
    assert len(market.bodies) == 1
    assert "job train1 has the same idempotency key" in caplog.text
    other = estimator(market, idempotency_key="nightly-2026-11-23").fit(wait=False, show_logs=False)
    assert other.id == "train2"
    assert first.labels["pai-sdk-idempotency-key"] == "nightly-2026-11-22"


def test_of_two_jobs_created_at_once_the_first_is_kept(market: Market) -> None:
    session = market.session()
    plans = [estimator(market, idempotency_key="k", session=session).plan() for _ in range(2)]
    answer = market.server.answer

    def another_comes_between(asked: Asked) -> Reply:
        if asked.method == "POST" and not market.created:
            market.created.append(plans[0].request.to_wire())
        return answer(asked)

    market.server.answer = another_comes_between
    assert session.submit(plans[1]).id == "train1"
    assert [asked.path for asked in market.server.asked if asked.path.endswith("train2/stop")]


def test_a_wrong_key(market: Market) -> None:
    with refused(InvalidInputError, "idempotency_key"):
        estimator(market, idempotency_key="a key").plan()


# ---- notifications of a job that `fallback` replaces


def test_only_the_last_end_is_announced(market: Market) -> None:
    sent = []

    class Kept:
        def send(self, facts: Any) -> None:
            sent.append((facts["job_id"], facts["status"]))

    market.fail = {"ecs.a"}
    estimator(market, fallback=["ecs.b"], notify=[Kept()]).fit(show_logs=False)
    assert sent == [("train2", "Succeed")]
    market.fail |= {"ecs.b"}
    made = estimator(market, fallback=["ecs.b"], notify=[Kept()])
    with pytest.raises(JobFailed):
        made.fit(show_logs=False)
    assert sent[1:] == [("train4", "Failed")]
    market.fail = set()
    made.fit(wait=False, show_logs=False).wait(show_logs=False)
    assert sent[2:] == [("train5", "Succeed")]
