"""Jobs of DLC are created and followed on a service that is unlike ours, over HTTP, in simulated time.

Whatever its habits are (`tests/support/odd_dlc_server.py`): never two jobs of one submission, each line of each
instance once, and the end of the job is reported.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import takewhile

from pai_sdk import Estimator, Session
from pai_sdk._client.display.base import Silent
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import SubmissionPolicy, submit
from pai_sdk._core import retry
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import LogLine
from pai_sdk.errors import JobFailed, PaiError
from tests.support.odd_dlc import START_S, FakePod
from tests.support.odd_dlc_server import OddRun, odd_dlc

__all__ = ["create", "follow", "main"]

_LATE_S = 3.0  # after the end of a job, all its lines are listed within this time


class _Shown(Silent):
    """What a display was told, by instance."""

    def __init__(self) -> None:
        self.lines: dict[str, list[LogLine]] = defaultdict(list)

    def line(self, line: LogLine) -> None:
        self.lines[line.instance].append(line)


def create(seed: int) -> list[str]:
    """Submits a plan, again after errors as a user does; returns what went wrong."""
    retry.random = random.Random(seed)  # type: ignore[assignment] # a seed is the same run again
    with odd_dlc(seed) as run, Session("cn-test", "1", oss_bucket_name="models", api="dlc") as session:
        plan = Estimator(
            "python:3.11", "true", instance_type="ecs.c6.large", session=session, base_job_name="train"
        ).plan()
        others = {run.dlc.add({"DisplayName": plan.request.training_job_name, "Envs": {"A": "b"}}) for _ in "123"}
        job_id, problems = None, []
        for _ in range(8):
            try:
                job_id = submit(plan, run.backend, policy=SubmissionPolicy(), progress=False)
                break
            except PaiError as error:
                if not (error.may_pass or error.maybe_arrived):
                    problems.append(f"not an error that passes: {error!r}")
                run.sleep(30)
        run.sleep(120)
        run.dlc.advance()
        created = {each for each, job in run.dlc.jobs.items() if job.get("Tag") != "other"} - others
        running = {each for each in created if run.dlc.jobs[each]["Status"] != "Stopped"}
        if running != {job_id}:
            problems.append(f"the job is {job_id}, but there are {running} of {created}")
        return problems


def follow(seed: int, max_lines: int = 2600) -> list[str]:
    """Waits for a job whose pods are replaced while its log is followed; returns what went wrong."""
    retry.random = random.Random(seed)  # type: ignore[assignment]
    with odd_dlc(seed) as run:
        job_id, written, ends_as = _scripted_job(run, random.Random(f"job {seed}"), max_lines)
        shown, failed = _Shown(), False
        policy = FollowPolicy(schedule=run.clock, retry=RetryPolicy(sleep=run.clock.sleep, clock=run.clock.now))
        try:
            TrainingJob(job_id, run.backend).wait(36_000, show_logs=True, display=shown, policy=policy)
        except JobFailed:
            failed = True
        problems = [] if failed == (ends_as == "Failed") else [f"{ends_as}, but the wait says failed={failed}"]
        late_s = run.dlc.now_s - run.dlc.end_of(job_id)
        if late_s > 180:
            problems.append(f"the end was reported {late_s:.0f} s late")
        if set(shown.lines) - set(written):
            problems.append(f"lines of instances that are not there: {set(shown.lines) - set(written)}")
        for name, texts in written.items():
            problems += _differences(name, texts, shown.lines[name])
        return problems


def _pod_of(text: str) -> str:
    return text.partition(" ")[0]


def _differences(name: str, wanted: list[str], lines: list[LogLine]) -> list[str]:
    # The last lines of a pod may be listed late, among those of the pod that replaced it.
    got = sorted((line.text for line in lines), key=_pod_of)
    problems = []
    if got != wanted:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(got, wanted, strict=False)))
        lost, doubled = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
        problems.append(
            f"{name}: {len(got)} of {len(wanted)} lines, wrong from line {same} on: {got[same : same + 2]}; "
            f"{lost.total()} lost, {doubled.total()} doubled"
        )
    if [line.number for line in lines] != [*range(len(got))]:
        problems.append(f"{name}: the lines' numbers are not their places")
    return problems


def _scripted_job(run: OddRun, chance: random.Random, max_lines: int) -> tuple[str, dict[str, list[str]], str]:
    """Adds a job with its pods and their lines; returns its id, its lines by instance, and its last status."""
    dlc = run.dlc
    count = chance.choice([1, 1, 2])
    specs = [{"Type": "Worker", "PodCount": count, "Image": "python:3.11", "EcsSpec": "ecs.c6.large"}]
    job_id = dlc.add({"DisplayName": "followed", "JobType": "PyTorchJob", "JobSpecs": specs})
    begin_s = START_S + chance.choice([0.0, 20.0, 200.0])
    names = [f"{job_id}-master-0", *(f"{job_id}-worker-{number}" for number in range(count - 1))]
    written = {name: _write_pods(run, chance, name, begin_s, max_lines) for name in names}
    end_s = max(pod.lines[-1][0] for name in names for pod in dlc.pods[name]) + 1
    for name in names:
        for pod in dlc.pods[name]:
            pod.lines = [(at, min(listed, end_s + _LATE_S), text) for at, listed, text in pod.lines]
    ends_as = chance.choice(["Succeeded", "Succeeded", "Failed"])
    early = [(START_S, "Creating"), (START_S + 5, "Queuing"), (begin_s, "EnvPreparing"), (begin_s + 5, "Running")]
    dlc.scripts[job_id] = [*early, (end_s, ends_as)]
    return job_id, written, ends_as


def _write_pods(run: OddRun, chance: random.Random, name: str, begin_s: float, max_lines: int) -> list[str]:
    """Writes the lines of an instance, whose pod may be replaced twice; returns them."""
    texts: list[str] = []
    now_s = begin_s + 5
    for number in range(chance.choice([1, 1, 2, 3])):
        pod = FakePod(f"{name}-uid-{number}", now_s - 2)
        lines = []
        for line in range(chance.choice([1, 30, max_lines // 3, max_lines])):
            quick = [0.0, 0.0, 0.0, 0.01, 0.2, 1.5]
            now_s += chance.choice(quick) if line % 700 else chance.uniform(0, 60)
            lines.append((now_s, f"{number} " + chance.choice(["tick", "", f"step {line}"])))
        lines.append((now_s, f"{number} has said all"))
        pod.write(lines, run.dlc.habits.lag_s, chance)
        run.add_pod(name, pod)
        texts += [text for _, text in lines]
        now_s += chance.uniform(5, 90)
    return texts


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials dlc", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs of each kind")
    parser.add_argument("--seed", type=int, help="only this one")
    given = parser.parse_args(arguments)
    seeds = range(given.seeds) if given.seed is None else [given.seed]
    begun, failed = time.monotonic(), 0
    for kind in (create, follow):
        for seed in seeds:
            if problems := kind(seed):
                failed += 1
                print(f"{kind.__name__}, seed {seed} FAILED; again: python -m tests.trials dlc --seed {seed}")
                print("  " + "\n".join(problems).replace("\n", "\n  "), flush=True)
    runs = 2 * len(seeds)
    print(
        f"{runs - failed} of {runs} runs were right: one job of each submission, each line once; "
        f"in {time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
