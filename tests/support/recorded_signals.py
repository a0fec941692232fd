"""Recorded signals of jobs, healthy and faulty, generated from seeds: what a watcher would have sampled."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.rules import Rule
from pai_sdk._data.rules.signals import Finding, InstanceSample, Point, Sample
from pai_sdk._data.stacks.frames import Frame
from pai_sdk._data.stacks.processes import ProcessStack, ThreadStack

INTERVAL_S = 10.0
Stack = tuple[Frame, ...]

_TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
_TRAIN = Frame("train", "/ml/usercode/train.py", 40)


def stack_of(function: str, file: str = "/ml/usercode/train.py", line: int = 7) -> Stack:
    """Returns the stack of a rank that is in a function."""
    return (Frame("<module>", "/ml/usercode/train.py", 90), _TRAIN, Frame(function, file, line))


ALL_REDUCE = stack_of("all_reduce", _TORCH, 2500)
BARRIER = stack_of("barrier", _TORCH, 3600)
STEP = stack_of("forward", "/ml/usercode/model.py")
LOAD = stack_of("load_data", "/ml/usercode/data.py")
EVALUATE = stack_of("evaluate")
SLEEP = stack_of("sleep")


@dataclass(frozen=True)
class State:
    """What one instance does in a stretch of time."""

    cores: float = 1.0
    io_bytes_per_s: float = 0.0
    stack: Stack = STEP
    is_stopped: bool = False
    is_debugged: bool = False
    is_blocked: bool = False
    is_placeholder: bool = False


WAITS = State(0.0, stack=ALL_REDUCE)
SPINS = State(1.0, stack=ALL_REDUCE)


@dataclass
class Recording:
    """The signals of one job over time."""

    rng: random.Random
    names: Sequence[str]
    is_measured: bool = True
    has_stacks: bool = True
    now_s: float = 0.0
    fault_at_s: float = math.inf  # when the job stops making progress
    step: int = 0
    stretches: list[tuple[float, Mapping[str, State]]] = field(default_factory=list)  # end, states
    lines: list[tuple[float, str, str, int]] = field(default_factory=list)  # time, instance, text, bytes
    points: list[tuple[float, Point]] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)  # of the watcher: from, to
    disk_free: int | None = 1 << 40

    def spend(self, seconds: float, state: State | None = None, **other: State) -> None:
        """Lets time pass; `other` are the states of single instances, by rank: `r2=WAITS`."""
        states = {name: state or State() for name in self.names}
        states |= {self.names[int(rank[1:])]: each for rank, each in other.items()}
        self.now_s += seconds
        self.stretches.append((self.now_s, states))

    def print(self, text: str, rank: int = 0, *, ends_line: bool = True) -> None:
        """Prints a line, or a state of a progress bar."""
        self.lines.append((self.now_s, self.names[rank], text if ends_line else "", len(text) + 1))

    def metric(self, value: float, name: str = "loss", rank: int = 0) -> None:
        """Reports a point of the current step."""
        self.points.append((self.now_s, Point(name, value, self.names[rank], rank, self.step, self.now_s)))

    def train(
        self,
        steps: int,
        step_s: float,
        *,
        print_every: int = 10,
        metric_every: int = 1,
        state: State | None = None,
    ) -> None:
        """Trains; the loss falls with noise."""
        for _ in range(steps):
            self.spend(step_s * self.rng.uniform(0.8, 1.25), state)
            self.step += 1
            loss = 4 / (1 + self.step / 300) * self.rng.uniform(0.9, 1.1)
            if metric_every and self.step % metric_every == 0:
                self.metric(loss)
            if print_every and self.step % print_every == 0:
                self.print(f"step {self.step} loss={loss:.4f}")

    def hang(self, seconds: float, state: State | None = None, **other: State) -> None:
        """Makes no progress from now on."""
        self.fault_at_s = min(self.fault_at_s, self.now_s)
        self.spend(seconds, state, **other)

    def replay(
        self, rules: Iterable[Rule], *, interval_s: float = INTERVAL_S, restarts: Sequence[float] = ()
    ) -> list[tuple[float, Finding]]:
        """Evaluates rules as a watcher does; it is replaced by a new process at the times of `restarts`."""
        rules, remaining = [*rules], [*restarts]
        evaluator, findings = RuleEvaluator(rules, interval_s=interval_s), list[tuple[float, Finding]]()

        def needs_stacks() -> bool:
            return evaluator.needs_stacks

        for sample in self._samples(needs_stacks, interval_s):
            if remaining and sample.at_s >= remaining[0]:
                remaining.pop(0)
                state = evaluator.to_json()
                evaluator = RuleEvaluator(rules, interval_s=interval_s)
                evaluator.resume(state)
            findings += [(sample.at_s, finding) for finding in evaluator.observe(sample)]
        return findings

    def _samples(self, needs_stacks: Callable[[], bool], interval_s: float) -> Iterator[Sample]:
        sizes = dict.fromkeys(self.names, 0)
        line_at = point_at = stretch_at = 0
        at_s = 0.0
        while at_s <= self.now_s:
            paused = next((to for start, to in self.pauses if start <= at_s < to), None)
            if paused is not None:
                at_s = paused
                continue
            new_lines: dict[str, list[str]] = {name: [] for name in self.names}
            while line_at < len(self.lines) and self.lines[line_at][0] <= at_s:
                _, name, text, size = self.lines[line_at]
                sizes[name] += size
                if text:
                    new_lines[name].append(text)
                line_at += 1
            first = point_at
            while point_at < len(self.points) and self.points[point_at][0] <= at_s:
                point_at += 1
            while stretch_at < len(self.stretches) - 1 and self.stretches[stretch_at][0] < at_s:
                stretch_at += 1
            states = self.stretches[stretch_at][1]
            stacks = self._stacks(states) if self.has_stacks else None
            yield Sample(
                at_s,
                {name: self._instance(states[name], sizes[name], new_lines[name]) for name in self.names},
                [point for _, point in self.points[first:point_at]],
                stacks if needs_stacks() else None,
                elapsed_s=at_s,
                disk_free=self.disk_free,
                disk_total=1 << 41,
            )
            at_s += interval_s

    def _stacks(self, states: Mapping[str, State]) -> list[ProcessStack]:
        return [
            ProcessStack(
                100 + rank,
                rank=rank,
                instance=name,
                kind="rank",
                state="T" if states[name].is_stopped else "S",
                threads=(ThreadStack(1, "main", states[name].stack),),
            )
            for rank, name in enumerate(self.names)
        ]

    def _instance(self, state: State, size: int, lines: Sequence[str]) -> InstanceSample:
        cores = max(0.0, state.cores * self.rng.uniform(0.8, 1.0) + self.rng.uniform(0, 0.01))
        return InstanceSample(
            size,
            lines[-50:],
            cores if self.is_measured else None,
            state.io_bytes_per_s if self.is_measured else None,
            is_stopped=state.is_stopped,
            is_debugged=state.is_debugged,
            is_blocked=state.is_blocked,
            is_placeholder=state.is_placeholder,
        )


def recording(seed: int, ranks: int = 4, **options: bool) -> Recording:
    """Returns an empty recording."""
    return Recording(random.Random(seed), [f"worker-{rank}" for rank in range(ranks)], **options)
