"""The log of a DLC job by line numbers: every line once, whatever the service is like."""

from __future__ import annotations

import random
from typing import cast

import pytest

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.dlc.line_spool import LineSpool
from pai_sdk._client.backend.dlc.logs import DlcLogs
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk.errors import NotFoundError, PaiError
from tests.support.odd_dlc import START_S, FakeDlc, FakePod, Habits


def logs_of(dlc: FakeDlc) -> DlcLogs:
    def detail(job_id: str, max_age_s: float) -> JobDetail:
        return dlc.get(job_id)

    return DlcLogs(cast(DlcJobs, dlc), detail, dlc.clock)


def follow(dlc: FakeDlc, logs: DlcLogs, job_id: str, pod_id: str, until_s: float) -> list[str]:
    """Reads as a follower does: from the line behind the last one, with pauses, and again after errors."""
    lines: list[str] = []
    while dlc.now_s < until_s:
        try:
            page = logs.read(job_id, pod_id, start=len(lines), limit=10_000)
        except PaiError as error:
            if not (error.may_pass or isinstance(error, NotFoundError)):
                raise
            dlc.sleep(1.0)
            continue
        lines += page.lines
        if not page.lines:
            dlc.sleep(dlc.chance.uniform(1.0, 20.0))
    return lines


def scripted_lines(chance: random.Random, start_s: float, count: int) -> list[tuple[float, str]]:
    """Lines in bursts and with pauses; many are alike."""
    now_s, lines = start_s, []
    for number in range(count):
        now_s += chance.choice([0.0, 0.0, 0.0, 0.0, 0.01, 0.2, 1.5]) if number % 700 else chance.uniform(0, 90)
        lines.append((now_s, chance.choice(["tick", "tick", "", f"step {number}"])))
    return lines


@pytest.mark.parametrize("seed", range(30))
def test_every_line_once(seed: int) -> None:
    chance = random.Random(seed)
    dlc = FakeDlc(Habits.of(seed), seed)
    job_id = dlc.add({"JobType": "PyTorchJob"})
    pod_id = f"{job_id}-master-0"
    written = scripted_lines(chance, START_S + 20, chance.choice([30, 900, 6000]))
    first = FakePod("uid-1", START_S + 15)
    first.write(written, dlc.habits.lag_s, chance)
    dlc.pods[pod_id] = [first]
    if seed % 3 == 0:  # the pod is replaced
        again_s = written[-1][0] + 30
        second = FakePod("uid-2", again_s)
        more = scripted_lines(chance, again_s + 5, 500)
        second.write(more, dlc.habits.lag_s, chance)
        dlc.pods[pod_id].append(second)
        written += more
    logs = logs_of(dlc)
    lines = follow(dlc, logs, job_id, pod_id, written[-1][0] + 400)
    assert lines == [text for _, text in written]
    # What was read keeps its numbers, also after the service has removed it.
    dlc.pods[pod_id] = []
    assert list(logs.read(job_id, pod_id, start=len(lines) // 2, limit=7).lines) == lines[len(lines) // 2 :][:7]
    logs.close()


@pytest.mark.parametrize("keeps_first", [True, False])
@pytest.mark.parametrize("includes", [True, False])
def test_a_long_log_that_exists_already(keeps_first: bool, includes: bool) -> None:
    dlc = FakeDlc(Habits(keeps_first=keeps_first, includes_start=includes, includes_end=includes))
    job_id = dlc.add({})
    pod_id = f"{job_id}-master-0"
    pod = FakePod("uid", START_S)
    chance = random.Random(1)
    pod.write(scripted_lines(chance, START_S + 5, 30_000), 0.0, chance)
    dlc.pods[pod_id] = [pod]
    dlc.now_s = pod.lines[-1][0] + 7200
    logs = logs_of(dlc)
    lines = follow(dlc, logs, job_id, pod_id, dlc.now_s + 1000)
    assert lines == [text for _, _, text in pod.lines]
    assert dlc.calls.count("GetPodLogs") < 400
    # Another process continues in the middle.
    other = logs_of(dlc)
    assert list(other.read(job_id, pod_id, start=29_990, limit=100).lines) == lines[29_990:]
    logs.close()
    other.close()


@pytest.mark.parametrize(("count", "most"), [(5000, 100_000), (50_000, 100_000), (5000, 20_000)])
def test_more_lines_in_a_second_than_a_response_has_by_default(count: int, most: int) -> None:
    dlc = FakeDlc(Habits(max_lines=100_000, accepted_lines=most))
    job_id = dlc.add({})
    pod_id = f"{job_id}-master-0"
    pod = FakePod("uid", START_S)
    burst = [(START_S + 30.5, f"line {number}") for number in range(count)]
    pod.write([(START_S + 10, "first"), *burst, (START_S + 90, "last")], 0.0, dlc.chance)
    dlc.pods[pod_id] = [pod]
    logs = logs_of(dlc)
    lines = follow(dlc, logs, job_id, pod_id, START_S + 400)
    assert lines == ["first", *(text for _, text in burst), "last"]
    logs.close()


def test_more_lines_in_a_second_than_the_service_accepts(caplog: pytest.LogCaptureFixture) -> None:
    dlc = FakeDlc(Habits(max_lines=100_000, accepted_lines=20_000))
    job_id = dlc.add({})
    pod_id = f"{job_id}-master-0"
    pod = FakePod("uid", START_S)
    pod.write([(START_S + 30.5, f"line {number}") for number in range(30_000)], 0.0, dlc.chance)
    dlc.pods[pod_id] = [pod]
    logs = logs_of(dlc)
    lines = follow(dlc, logs, job_id, pod_id, START_S + 400)
    assert lines == [f"line {number}" for number in range(14_000, 30_000)]
    assert "some of them are missing" in caplog.text
    logs.close()


def test_last_lines_of_a_pod_that_was_replaced_twice() -> None:
    dlc = FakeDlc()
    job_id = dlc.add({})
    pod_id = f"{job_id}-master-0"
    first = FakePod("uid-1", START_S)
    first.lines = [(START_S + 1, START_S + 1, "first"), (START_S + 2, START_S + 70, "late")]
    others = [FakePod(f"uid-{number}", START_S + 10 * number) for number in (2, 3)]
    for pod in others:
        pod.lines = [(pod.created_s + 1, pod.created_s + 1, pod.uid)]
    dlc.pods[pod_id] = [first, *others]
    dlc.sleep(45)
    logs = logs_of(dlc)
    lines = follow(dlc, logs, job_id, pod_id, START_S + 120)
    assert lines == ["first", "uid-2", "uid-3", "late"]
    # Later the pods that were replaced are not read any more.
    dlc.sleep(600)
    assert logs.read(job_id, pod_id, start=4, limit=10).lines == ()
    dlc.calls.clear()
    assert logs.read(job_id, pod_id, start=4, limit=10).lines == ()
    assert dlc.calls.count("GetPodLogs") == 2
    logs.close()


def test_no_log_yet() -> None:
    dlc = FakeDlc()
    job_id = dlc.add({})
    logs = logs_of(dlc)
    assert logs.read(job_id, f"{job_id}-master-0", start=0, limit=10).lines == ()
    assert "GetPodLogs" not in dlc.calls
    logs.close()


def test_the_log_of_a_pod_that_is_no_longer_listed() -> None:
    dlc = FakeDlc()
    job_id = dlc.add({}, Status="Failed")
    logs = logs_of(dlc)
    with pytest.raises(NotFoundError):
        logs.read(job_id, f"{job_id}-master-0", start=0, limit=10)
    logs.close()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.backend.dlc.logs._MAX_LOGS", 3)
    dlc = FakeDlc()
    job_id = dlc.add({})
    for number in range(5):
        pod = FakePod(f"uid-{number}", START_S)
        pod.write([(START_S, f"of {number}")], 0.0, dlc.chance)
        dlc.pods[f"{job_id}-worker-{number}"] = [pod]
    dlc.sleep(100)
    logs = logs_of(dlc)
    for number in [*range(5), 0]:
        assert logs.read(job_id, f"{job_id}-worker-{number}", start=0, limit=10).lines == (f"of {number}",)
    assert len(logs._logs) == 3
    logs.close()


def test_lines_with_any_characters() -> None:
    spool = LineSpool()
    lines = [f"{number} \udc80 a\nb" * (number % 3) for number in range(1000)]
    spool.append(lines[:300])
    assert spool.lines(256, 3) == tuple(lines[256:259])
    spool.append(lines[300:])
    assert spool.lines(0, 5000) == tuple(lines)
    assert (spool.lines(1000, 1), spool.lines(-1, 5)) == ((), ())
    spool.close()
