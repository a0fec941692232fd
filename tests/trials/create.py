"""Jobs are submitted through a proxy that breaks what passes: one job each, or a clear error and at most one.

Two services are tried. The embedded one takes a second create of one submission for the first; Alibaba Cloud's
need not, so it is counted, too, how many creates of one submission were carried out. The foreign one is its test
mode (`ForeignCloud`): it makes a job of every create, answers creates late, delivers some twice, and its lists
lag. There a second job must be stopped, with a warning that names it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from urllib.parse import urlsplit

from pai_sdk import Processor, Session
from pai_sdk._client.backend.service import ServiceBackend
from pai_sdk._client.submission import SubmissionPolicy, submit
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import load_settings
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.settings import ForeignCloud, ServiceInfo
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk.errors import ConnectionFailedError, PaiError
from tests.faults.proxy import Answer, FaultProxy, Faults
from tests.service.services import running_service

__all__ = ["Report", "main", "run"]

KINDS = ("lost", "reset", "truncated", "html", "empty", "500", "503", "429", "slow")
_JOBS = "/api/v1/trainingjobs"
_THREADS = 8
_SILENCE_S = 0.5  # the client gives up on an answer after so long
_SEARCH_S = 10.0  # and looks for the job so long, which is several times what the foreign cloud needs to show it
_POLICY = SubmissionPolicy(search_s=_SEARCH_S, max_pause_s=0.5, repeat_s=3 * _SEARCH_S)
_FOREIGN = ForeignCloud(list_lag_s=1.0, create_late_s=0.8, response_delay_s=0.8, late=0.5, doubled=0.2)


@dataclass
class Report:
    """What was seen. `problems` is empty when all is well."""

    trials: int = 0
    jobs: int = 0
    lost: int = 0
    stopped: int = 0
    stalled: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        errors = ", ".join(f"{count} {name}" for name, count in self.errors.most_common()) or "no error"
        return "\n".join(
            [
                *(f"PROBLEM: {problem}" for problem in self.problems),
                f"{self.trials} submissions in {self.took_s:.0f} s: {self.jobs} jobs, {errors}",
                f"{self.stopped} second jobs were stopped; {self.stalled} submissions were left out, too slow",
                f"{self.faults.total()} faults ({kinds}); the answer of a create that was carried out was lost "
                f"in {self.lost} submissions",
                "never two jobs of one submission" if not self.problems else f"{len(self.problems)} problems",
            ]
        )


class _CountingProxy(FaultProxy):
    """Counts the creates that the service carried out and that the client could have known of.

    A busy machine may need longer for a create than the client waits. What it looks for then may not be there
    yet, so it may send it again: it could not have known of a create that was done only after it had given up.
    """

    could_be_known = 0
    slowest_s = 0.0

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        begun = time.monotonic()
        answer = super().forward(method, path, headers, body)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        return answer

    def answered(self, method: str, path: str, answer: Answer, *, is_awaited: bool) -> None:
        is_create = (method, urlsplit(path).path) == ("POST", _JOBS)
        if is_create and answer.status == 200:
            self.could_be_known += is_awaited


class _Warnings(logging.Handler):
    """All that the library warns of while it submits."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class _Trials:
    def __init__(self, info: ServiceInfo, session: Session, *, foreign: bool) -> None:
        self._lock = threading.Lock()
        self._foreign = foreign
        self._warnings = _Warnings()
        self.info = info
        self.session = session
        self.report = Report()

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("pai_sdk._client.submission.creation")
        logger.addHandler(self._warnings)
        try:
            yield
        finally:
            logger.removeHandler(self._warnings)

    def one(self, seed: int) -> None:
        dice = random.Random(seed)
        faults = Faults(
            rate=dice.uniform(0.2, 0.9),
            kinds=KINDS,
            burst=dice.randint(1, 3),
            # Half of the slow answers come after the client has given up.
            pause_s=dice.choice([0.1, 2 * _SILENCE_S]),
        )
        retry = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.1, max_attempts=dice.choice([2, 5, 10]))
        plan = Processor("none", "true", instance_type="ecs.c6.large", session=self.session).plan()
        error: PaiError | None = None
        job_id = None
        with _CountingProxy(self.info.endpoint, seed=seed, faults=faults) as proxy:
            client = self._client(proxy.url, retry)
            try:
                job_id = submit(plan, client, policy=_POLICY)
            except PaiError as raised:
                error = raised
            finally:
                client.close()
        (label,) = (label.value for label in plan.request.labels if label.key == SUBMISSION_LABEL)
        if self._foreign:
            time.sleep(_FOREIGN.list_lag_s)  # what was created is listed
        found = [job.id for job in self.session.list_jobs(labels={SUBMISSION_LABEL: label})]
        with self._lock:
            self._note(seed, proxy, found, job_id, error, label)

    def _note(
        self,
        seed: int,
        proxy: _CountingProxy,
        found: list[str],
        job_id: str | None,
        error: PaiError | None,
        label: str,
    ) -> None:
        report = self.report
        report.trials += 1
        report.jobs += len(found)
        report.faults.update(each.partition(":")[0] for each in proxy.happened)
        creates = proxy.seen[f"POST {_JOBS}"]
        report.lost += len(found) > 0 and (creates > 1 or proxy.seen[f"GET {_JOBS}"] > 0 or error is not None)
        if self._foreign and proxy.slowest_s > _SEARCH_S / 2:
            report.stalled += 1
            return
        problems = []
        if self._foreign:
            told = [job for job in found if any(f" {job} was stopped" in text for text in self._warnings.texts)]
            report.stopped += len(told)
            found = [job for job in found if job not in told]
        elif proxy.could_be_known > 1:
            problems.append(f"{proxy.could_be_known} creates were carried out")
        if error is None and found != [job_id]:
            problems.append(f"the job is {job_id}, but there are {found}")
        if error is not None:
            report.errors[type(error).__name__] += 1
            if len(found) > 1:
                problems.append(f"an error, and the jobs {found}")
            if found and not _names_the_label(error, label):
                problems.append(f"there is a job, but the error does not say so: {error}")
            if len(str(error)) > 500 or "\n" in str(error):
                problems.append(f"not a clear sentence: {error}")
        again = f"python -m tests.trials create --seed {seed}{' --foreign' if self._foreign else ''}"
        report.problems += [f"seed {seed}: {problem}; again: {again}" for problem in problems]

    def _client(self, url: str, retry: RetryPolicy) -> ServiceBackend:
        info = self.info
        settings = load_settings(
            {
                "region_id": info.region_id,
                "workspace_id": info.workspace_id,
                "oss_bucket_name": info.bucket,
                "oss_endpoint": info.oss_endpoint,
                "endpoint": url,
            },
            environ={},
        )
        key = static_credentials(info.access_key_id, info.access_key_secret)
        timeout_s = (5.0, _SILENCE_S)
        return ServiceBackend(settings, key, retry=retry, timeout_s=timeout_s, create_timeout_s=_SILENCE_S)

    def guarded(self, seed: int) -> None:
        try:
            self.one(seed)
        except Exception:
            with self._lock:
                self.report.problems.append(f"seed {seed}: {traceback.format_exc(limit=-4)}")

    def wait_for_jobs(self) -> None:
        for job in self.session.list_jobs():
            if not job.status.is_terminal:
                job.wait(300, show_logs=False)
        listed = sum(1 for _ in self.session.list_jobs())
        if listed != self.report.jobs:
            self.report.problems.append(f"{listed} jobs are listed, {self.report.jobs} were found by their labels")


def run(folder: Path, seeds: Sequence[int], *, foreign: bool = False) -> Report:
    """Submit one job for each seed; what was seen."""
    with _foreign_service(folder) if foreign else _embedded_service(folder) as (info, session):
        trials, begun = _Trials(info, session, foreign=foreign), time.monotonic()
        try:
            with trials.listening(), ThreadPoolExecutor(_THREADS) as pool:
                for _ in pool.map(trials.guarded, seeds):
                    pass
        finally:
            trials.report.took_s = time.monotonic() - begun
            trials.wait_for_jobs()
    return trials.report


@contextmanager
def _embedded_service(folder: Path) -> Iterator[tuple[ServiceInfo, Session]]:
    """The embedded service; it goes when no job is left that it would have to look after."""
    info = ensure_running(folder)
    try:
        yield info, Session.embedded(folder)
    finally:
        pid = ensure_running(folder).pid
        os.kill(pid, SIGTERM)
        deadline = time.monotonic() + 60
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.02)


@contextmanager
def _foreign_service(folder: Path) -> Iterator[tuple[ServiceInfo, Session]]:
    with running_service(folder, foreign=_FOREIGN) as client:
        info = client.info
        session = Session(
            info.region_id,
            info.workspace_id,
            oss_bucket_name=info.bucket,
            oss_endpoint=info.oss_endpoint,
            endpoint=info.endpoint,
            credentials=static_credentials(info.access_key_id, info.access_key_secret),
        )
        with session:
            yield info, session


def _names_the_label(error: PaiError, label: str) -> bool:
    return isinstance(error, ConnectionFailedError) and error.maybe_arrived and label in str(error)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials create", description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="how many submissions")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--foreign", action="store_true", help="only the service that has no dedupe of its own")
    given = parser.parse_args(arguments)
    seeds = range(given.trials) if given.seed is None else [given.seed]
    reports = []
    for foreign in [True] if given.foreign else [False, True]:
        with tempfile.TemporaryDirectory(prefix="create-") as folder:
            reports.append(run(Path(folder) / "data", seeds, foreign=foreign))
        sys.stdout.write(f"{'foreign' if foreign else 'embedded'} service:\n{reports[-1]}\n")
    return 1 if any(report.problems for report in reports) else 0
