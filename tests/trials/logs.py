"""A job of three instances is waited for through a proxy that breaks what passes, while its service restarts.

Every line must be shown exactly once, in order per instance, the last one of each among them, and the wait must
end well. Seeds whose number is odd follow a service that knows nothing but PAI's API: no answer is held back,
pages are of 100 lines, and nothing tells when a log is complete.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pai_sdk import Session, TrainingJob
from pai_sdk._client.display.base import Silent
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import LogLine
from tests.faults.proxy import EVERY_KIND, Answer, FaultProxy, Faults
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service

__all__ = ["main", "run"]

_RETRY = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.1, max_attempts=4)
_LONGEST_S = 300.0


@dataclass
class _Shown(Silent):
    """What a display was told, by instance."""

    lines: dict[str, list[LogLine]] = field(default_factory=lambda: defaultdict(list))
    notices: list[str] = field(default_factory=list)

    def line(self, line: LogLine) -> None:
        self.lines[line.instance].append(line)

    def notice(self, text: str) -> None:
        self.notices.append(text)


class _PlainProxy(FaultProxy):
    """Takes away what our service knows beyond PAI's API, and cuts pages."""

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        asked = parse_qs(urlsplit(path).query)
        if int(asked.get("PageSize", ["20"])[0]) > 100:
            refusal = b'{"Code":"InvalidParameter","Message":"PageSize is at most 100"}'
            return Answer(400, [("Content-Type", "application/json")], refusal)
        assert "prefer" not in {name.lower() for name in headers}, "nothing has offered to know it"
        answer = super().forward(method, path, headers, body)
        kept = [(name, value) for name, value in answer.headers if not name.lower().startswith("x-pai-")]
        return Answer(answer.status, kept, answer.body, answer.announced)


class _RestartingService:
    """A service that can be ended and started again on its folder and port; its jobs live on."""

    def __init__(self, folder: Path) -> None:
        self.executor = ScriptedExecutor()
        self._folder = folder
        self._stack = ExitStack()
        self.restarts = 0

    def start(self) -> Client:
        self.client = self._stack.enter_context(running_service(self._folder, self.executor))
        return self.client

    def stop(self) -> None:
        self._stack.close()

    def restart(self) -> None:
        self.stop()
        self.start()
        self.restarts += 1


def run(folder: Path, seed: int, *, lines: int = 10_000) -> list[str]:
    """One run; what went wrong, as sentences."""
    dice = random.Random(seed)
    is_plain = bool(seed % 2)
    kinds = tuple(kind for kind in EVERY_KIND if not (is_plain and kind == "repeated"))
    faults = Faults(rate=dice.choice([0.1, 0.2, 0.3]), kinds=kinds, burst=dice.randint(1, 4), pause_s=0.02)
    service = _RestartingService(folder)
    client = service.start()
    try:
        job_id = client.create(job_body(ComputeResource={"EcsSpec": "x", "EcsCount": 3}))
        client.until(job_id, "Running")
        root = client.info.data_dir / "jobs" / job_id
        texts = {
            name: [f"{name} line {number} {'x' * dice.randrange(80)}" for number in range(lines // 3 + extra)]
            for name, extra in zip(
                (f"{job_id}-master-0", f"{job_id}-worker-0", f"{job_id}-worker-1"), (lines % 3, 0, 0), strict=True
            )
        }
        kind = _PlainProxy if is_plain else FaultProxy
        with (
            kind(lambda: service.client.info.endpoint, seed=seed, faults=faults) as proxy,
            _session(client, proxy.url) as session,
        ):
            writer = threading.Thread(target=_write, args=(service, root, texts, dice))
            writer.start()
            shown = _Shown()
            policy = FollowPolicy(hold_s=2, pause_s=0.1, quiet_s=1.0, failed_quiet_s=1.0, retry=_RETRY)
            try:
                TrainingJob(job_id, session.backend_for("ecs.c6.large")).wait(
                    _LONGEST_S, display=shown, policy=policy
                )
                problems = []
            except Exception:
                problems = [traceback.format_exc(limit=-3)]
            writer.join()
        return [*problems, *shown.notices, *_differences(texts, shown.lines)]
    finally:
        service.stop()


@contextmanager
def _session(client: Client, url: str) -> Iterator[Session]:
    info = client.info
    session = Session(
        info.region_id,
        info.workspace_id,
        oss_bucket_name=info.bucket,
        oss_endpoint=info.oss_endpoint,
        endpoint=url,
        credentials=static_credentials(info.access_key_id, info.access_key_secret),
        retry=_RETRY,
    )
    yield session
    session.backend_for("ecs.c6.large").close()  # type: ignore[attr-defined]


def _write(service: _RestartingService, root: Path, texts: dict[str, list[str]], dice: random.Random) -> None:
    """What the job does: instances print, in pieces that need not be lines; now and then the service restarts."""
    left = {name: "\n".join(lines) + dice.choice(["\n", ""]) for name, lines in texts.items()}
    total = sum(map(len, left.values()))
    restart_at = sorted(dice.random() for _ in range(dice.randint(0, 2)))
    while left:
        name = dice.choice([*left])
        size = int(2 ** dice.uniform(0, 15))
        service.executor.print(root, name, left[name][:size])
        left[name] = left[name][size:]
        if not left[name]:
            del left[name]
        if restart_at and 1 - sum(map(len, left.values())) / total > restart_at[0]:
            restart_at.pop(0)
            service.restart()
        time.sleep(dice.uniform(0, 0.004))
    service.executor.succeed(root)


def _differences(wanted: dict[str, list[str]], shown: dict[str, list[LogLine]]) -> Iterator[str]:
    for name, texts in wanted.items():
        got = [line.text for line in shown[name]]
        if got != texts:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(got, texts, strict=False)))
            yield f"{name}: {len(got)} of {len(texts)} lines, wrong from line {same} on: {got[same : same + 1]}"
        if [line.number for line in shown[name]] != [*range(len(got))]:
            yield f"{name}: the lines' numbers are not their places"
    if unknown := set(shown) - set(wanted):
        yield f"lines of instances that are not there: {unknown}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials logs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--lines", type=int, default=10_000)
    options = parser.parse_args(arguments)
    seeds = range(options.seeds) if options.seed is None else [options.seed]
    begun, failed = time.monotonic(), 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="trial-") as folder:
            problems = run(Path(folder) / "data", seed, lines=options.lines)
        if problems:
            failed += 1
            print(f"seed {seed} FAILED; again: python -m tests.trials logs --seed {seed} --lines {options.lines}")
            print("  " + "\n".join(problems).replace("\n", "\n  "), flush=True)
        elif sys.stderr.isatty():
            print(f"\rseed {seed} ok", end="", file=sys.stderr, flush=True)
    print(
        f"{len(seeds) - failed} of {len(seeds)} runs showed every line of {options.lines} exactly once, "
        f"in {time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0
