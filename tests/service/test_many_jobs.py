"""Many jobs of a real service: one request for all of them, and the handles' way to use it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.api.transport import Transport
from pai_sdk._client.job.gather import as_completed, gather, gather_async
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submit.processor import Processor
from pai_sdk._client.submit.run_all import run_all
from pai_sdk._service.services.jobs.changes import Subscription
from pai_sdk._service.settings import ForeignCloud
from pai_sdk.errors import InvalidInputError, JobsFailed
from tests.service.fakes import ScriptedExecutor
from tests.service.services import HELD_S, Client, job_body, session_on
from tests.support.waiting import until


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """Each request of the client: when, and its action."""
    found: list[tuple[float, str]] = []
    call = Transport.call

    def noted(self: Transport, action: str, *args: Any, **more: Any) -> Any:
        found.append((time.monotonic(), action))
        return call(self, action, *args, **more)

    monkeypatch.setattr(Transport, "call", noted)
    return found


def changes(client: Client, known: dict[str, str], wait_s: float = 0.0) -> dict[str, Any]:
    headers = {"Prefer": f"wait={wait_s:g}"}
    answer = client.call("POST", "/trainingjobs/changes", body={"Known": known}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_only_what_differs_from_what_is_known_is_given(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=2) as client:
        ids = [client.create(job_body()) for _ in range(3)]
        for job_id in ids[:2]:
            client.until(job_id, "Running")
        first = changes(client, dict.fromkeys([*ids, "trainnone"], ""))
        assert [job["TrainingJobId"] for job in first["TrainingJobs"]] == ids
        assert first["Missing"] == ["trainnone"]
        whole = client.get(f"/trainingjobs/{ids[0]}")
        del whole["RequestId"]
        shown = first["TrainingJobs"][0]
        assert {**shown, "Duration": 0} == {**whole, "Duration": 0}, "as GetTrainingJob shows it"
        assert client.call("GET", f"/trainingjobs/{ids[0]}").headers["ETag"] == first["ETags"][ids[0]]

        again = changes(client, first["ETags"])
        assert (again["TrainingJobs"], again["ETags"], again["Missing"]) == ([], {}, [])
        client.call("POST", f"/trainingjobs/{ids[2]}/labels", body={"Labels": [{"Key": "a", "Value": "b"}]})
        assert [*changes(client, first["ETags"])["ETags"]] == [ids[2]]


def test_an_answer_without_news_waits_for_some(start: Callable[..., Any], held: set[Subscription]) -> None:
    with start(ScriptedExecutor(), max_hold_s=HELD_S) as client:
        ids = [client.create(job_body()) for _ in range(3)]
        for job_id in ids:
            client.until(job_id, "Running")
        known = changes(client, dict.fromkeys(ids, ""))["ETags"]
        before = len(held)
        found: list[dict[str, Any]] = []
        other = Client(client.info)
        thread = threading.Thread(target=lambda: found.append(changes(other, known, HELD_S)))
        thread.start()
        until(lambda: len(held) > before)
        client.call("PUT", f"/trainingjobs/{ids[1]}/stop")
        thread.join()
        other.session.close()
        assert [*found[0]["ETags"]] == [ids[1]]


@pytest.mark.parametrize(
    "body", [{}, {"Known": []}, {"Known": {}}, {"Known": {"a": 1}}, {"Known": {"a": ""}, "More": 1}]
)
def test_nonsense_is_refused(service: Client, body: dict[str, Any]) -> None:
    answer = service.call("POST", "/trainingjobs/changes", body=body)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_a_service_that_is_not_ours_has_no_such_action(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), foreign=ForeignCloud()) as client:
        job_id = client.create(job_body())
        answer = client.call("POST", "/trainingjobs/changes", body={"Known": {job_id: ""}})
        assert answer.status_code == 404
        for path in ("/trainingjobs", f"/trainingjobs/{job_id}"):
            assert "changes" not in client.call("GET", path).headers.get("x-pai-offers", "")


@pytest.mark.parametrize("is_ours", [True, False])
def test_waiting_for_12_jobs_costs_few_requests(
    start: Callable[..., Any], tmp_path: Path, asked: list[tuple[float, str]], is_ours: bool
) -> None:
    executor = ScriptedExecutor()
    foreign = None if is_ours else ForeignCloud()
    with start(executor, slots=12, foreign=foreign) as client, session_on(client.info) as session:
        ids = [client.create(job_body()) for _ in range(12)]
        until(lambda: len(executor.running) == 12)
        jobs = [session.get_job(job_id) for job_id in ids]
        asked.clear()
        found: list[str] = []
        ends = {root.name: root for root in executor._states}

        def wait() -> None:
            found.extend(job.id for job in as_completed(jobs))

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: asked)
        executor.succeed(ends[ids[7]])
        until(lambda: found == [ids[7]])
        for job_id in ids:
            if job_id != ids[7]:
                executor.succeed(ends[job_id])
        thread.join()
        assert sorted(found) == sorted(ids)
        assert all(job.status.is_success for job in jobs)
        actions = Counter(action for _, action in asked)
        took_s = asked[-1][0] - asked[0][0]
        if is_ours:
            assert actions["ListTrainingJobs"] <= 1, "it announces a better way"
            assert actions["GetTrainingJob"] <= 2, "the last one"
            assert actions["ListTrainingJobChanges"] < 20 + 4 * took_s
        else:
            assert actions["ListTrainingJobChanges"] == 0
            assert actions["GetTrainingJob"] < 12 + 8
            assert actions["ListTrainingJobs"] < 5 + 1.5 * took_s


def test_gather_reports_all_failures_of_real_jobs(service: Client) -> None:
    with session_on(service.info) as session:
        commands = ["true", "echo begun; python3 -c 'raise KeyError(7)'", "exit 3", "true", "true"]
        ids = [service.create(job_body(command)) for command in commands]
        jobs = [session.get_job(job_id) for job_id in ids]
        with pytest.raises(JobsFailed) as caught:
            gather(jobs, show=False)
        assert [*caught.value.failures] == [ids[1], ids[2]]
        assert "KeyError: 7" in str(caught.value).splitlines()[1]
        assert "exit code 3" in str(caught.value.failures[ids[2]])
        assert [record.training_job_id for record in gather([jobs[0], jobs[4]], show=False)] == [ids[0], ids[4]]
        assert isinstance(jobs[0], TrainingJob)


def test_run_all_keeps_to_the_bound_and_finds_all_mistakes_first(service: Client, tmp_path: Path) -> None:
    with session_on(service.info) as session:
        begun = tmp_path / "begun"
        begun.mkdir()
        # Each notes how many run beside it.
        command = f"touch {begun}/$PAI_HPS_NUMBER; ls {begun} | wc -l; sleep 0.2; rm {begun}/$PAI_HPS_NUMBER"
        processors = [
            Processor("none", command, parameters={"number": n}, instance_type="local-process", session=session)
            for n in range(5)
        ]
        with pytest.raises(InvalidInputError, match=r"submitters\[5\].*command") as caught:
            run_all([*processors, Processor("none", "", instance_type="x", session=session), 7])  # type: ignore[list-item]
        assert {problem.where.partition(".")[0] for problem in caught.value.problems} == {
            "submitters[5]",
            "submitters[6]",
        }
        assert all(processor.jobs == [] for processor in processors)

        plan = processors[0].plan()
        jobs = run_all([plan, *processors[1:]], max_parallel=2, show=False, session=session)
        assert [job.record.hyperparameters[0].value for job in jobs] == ["0", "1", "2", "3", "4"]
        assert max(int(next(iter(job.logs())).text) for job in jobs) <= 2


def test_run_all_submits_none_after_a_failure_that_ends_it(service: Client) -> None:
    with session_on(service.info) as session:
        commands = ["exit 3", "true", "true", "true"]
        processors = [Processor("none", one, instance_type="x", session=session) for one in commands]
        with pytest.raises(JobsFailed, match="3 were not submitted") as caught:
            run_all(processors, max_parallel=1, fail_fast=True, show=False)
        assert [len(one.jobs) for one in processors] == [1, 0, 0, 0]
        assert caught.value.not_submitted == 3

        with pytest.raises(JobsFailed, match="1 of 4 jobs"):
            run_all(processors, max_parallel=1, show=False)
        assert [len(one.jobs) for one in processors] == [2, 1, 1, 1]

        plan = processors[1].plan()
        session.submit(plan)
        with pytest.raises(JobsFailed, match="was submitted already") as caught:
            run_all([plan, processors[2]], show=False, session=session)
        assert caught.value.not_submitted == 1


def test_jobs_of_a_real_service_for_asyncio(service: Client) -> None:
    with session_on(service.info) as session:
        ids = [service.create(job_body(f"echo {number}")) for number in range(3)]

        async def texts(job: TrainingJob) -> list[str]:
            return [line.text async for line in job.logs_async(follow=True)]

        async def read() -> list[list[str]]:
            jobs = [session.get_job(job_id) for job_id in ids]
            await gather_async(jobs)
            return await asyncio.gather(*map(texts, jobs))

        assert asyncio.run(read()) == [["0"], ["1"], ["2"]]
