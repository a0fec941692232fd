"""The rules about progress: `NoProgress`, `OddRank` and `ProcessStopped`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._data.rules.log_lines import LogProgress
from pai_sdk._data.rules.odd_rank import (
    all_wait,
    is_unchanged,
    odd_by_cpu,
    odd_by_stacks,
    odd_by_steps,
    position_of,
    stack_rows,
)
from pai_sdk._data.rules.pace import Pace
from pai_sdk._data.rules.rules import NoProgress, OddRank, ProcessStopped, Rule
from pai_sdk._data.rules.signals import BUSY_CORES, Condition, InstanceSample, Sample
from pai_sdk._data.stacks.processes import ProcessStack

_MAX_STACK_PAUSE_S = 300.0  # between two samples of the stacks of a job that works without output
_SLOW_VOTES = 3
_MEANS_PER_LIMIT = 5.0  # a mean of the CPU time has so many time constants in `min_s`


@dataclass
class _Instance:
    """What is kept of one instance."""

    log_bytes: int = 0
    cores: float = 1.0  # a moving mean, of at most one core; disk and uninterruptible I/O count as one
    stopped_s: float = 0.0
    step: int | None = None


@dataclass
class _StackSample:
    at_s: float
    stacks: Sequence[ProcessStack]


@dataclass
class StallRules:
    """Follows the progress of one job. Time is observed time: it stands still while nobody observes."""

    rules: Mapping[str, Rule]
    pace: Pace = field(default_factory=Pace)
    log: LogProgress = field(default_factory=LogProgress)
    now_s: float = 0.0
    reported: dict[str, Condition] = field(default_factory=dict)  # by code; until the job makes progress
    _instances: dict[str, _Instance] = field(default_factory=dict)
    _stacks: deque[_StackSample] = field(default_factory=lambda: deque(maxlen=4))
    _votes: deque[str | None] = field(default_factory=lambda: deque(maxlen=4))  # odd ranks of a slow job
    _is_in_debugger: bool = False  # at the last sample of the stacks
    _next_stacks_s: float = 0.0
    _stack_pause_s: float = 0.0

    # ---- signals ------------------------------------------------------------------------------------------

    def observe(self, sample: Sample, observed_s: float, *, has_metric: bool) -> None:
        """Adds a sample; `observed_s` is the time since the last one, without pauses of the observer."""
        self.now_s += observed_s
        lines = [line for instance in sample.instances.values() for line in instance.lines]
        has_growth = False
        for name, current in sample.instances.items():
            instance = self._instances.setdefault(name, _Instance())
            # A log that grows without a complete line is a progress bar, or one long line.
            has_growth = has_growth or (current.log_bytes > instance.log_bytes and not current.lines)
            instance.log_bytes = current.log_bytes
            self._update(instance, current, observed_s)
        for point in sample.points:
            if point.step is not None and point.instance in self._instances:
                self._instances[point.instance].step = point.step
        has_progress = self.log.has_progress(lines) or has_growth or bool(sample.points)
        self.pace.add_points(sample.points)
        # A debugger or a stop is a decision of the user: the job is not expected to continue meanwhile.
        is_paused = self._is_in_debugger or any(
            each.is_debugged or each.is_stopped for each in sample.instances.values()
        )
        self.pace.advance(0.0 if is_paused else observed_s, has_progress=has_progress, has_metric=has_metric)
        if has_progress:
            self._stack_pause_s, self._next_stacks_s, self._is_in_debugger = 0.0, 0.0, False
            self.reported.pop(NoProgress.code, None)
            if not self._is_slow:
                self.reported.clear()
                self._stacks.clear()
                self._votes.clear()
        if sample.stacks is not None:
            self._add_stacks(sample.stacks)

    def _update(self, instance: _Instance, current: InstanceSample, observed_s: float) -> None:
        if current.is_stopped and not current.is_debugged:
            instance.stopped_s += observed_s
        else:
            instance.stopped_s = 0.0
        used = 1.0 if current.is_busy and (current.cores or 0.0) < BUSY_CORES else min(current.cores or 0.0, 1.0)
        window_s = max(self._no_progress.min_s / _MEANS_PER_LIMIT, 1.0)
        instance.cores += (used - instance.cores) * -math.expm1(-observed_s / window_s)

    def _add_stacks(self, stacks: Sequence[ProcessStack]) -> None:
        apart_s = self._odd_rank.apart_s
        self._stacks.append(_StackSample(self.now_s, stacks))
        odd = odd_by_stacks(stacks)
        self._votes.append(None if odd is None else odd.instance)
        self._is_in_debugger = any(process.is_in_debugger for process in stacks)
        self._stack_pause_s = min(
            _MAX_STACK_PAUSE_S, max(apart_s, self._stack_pause_s * 2 if self._has_pair else 0)
        )
        self._next_stacks_s = self.now_s + self._stack_pause_s

    @property
    def needs_stacks(self) -> bool:
        """Returns whether the next sample should have the stacks of all ranks."""
        if not self.rules.keys() & {NoProgress.code, OddRank.code} or self.now_s < self._next_stacks_s:
            return False
        limit_s = self.pace.limit_s(self._no_progress)
        early_s = min(2 * self._odd_rank.apart_s, limit_s / 2)
        return self.pace.quiet_s >= limit_s - early_s or self._is_slow

    # ---- conditions ---------------------------------------------------------------------------------------

    def conditions(self, sample: Sample) -> Iterator[Condition]:
        """Yields what the rules observe now."""
        yield from self._stopped()
        active = {
            name: instance
            for name, instance in sample.instances.items()
            if not instance.is_placeholder and not instance.has_ended
        }
        if self._is_in_debugger or any(each.is_debugged or each.is_stopped for each in active.values()):
            return
        # Reported until the job makes progress: one busy moment, or a restart that loses the stacks,
        # is no end of a hang.
        for condition in self._stalled(active) if self._is_stalled(active) else self._slow():
            self.reported.setdefault(condition.code, condition)
        yield from self.reported.values()

    def _stopped(self) -> Iterator[Condition]:
        rule = self.rules.get(ProcessStopped.code)
        for name, instance in self._instances.items():
            if isinstance(rule, ProcessStopped) and instance.stopped_s >= rule.min_s:
                message = f"a process of {name} is stopped by a signal; `kill -CONT` continues it"
                yield Condition(rule.code, message, name, {"stopped_s": round(instance.stopped_s, 1)}, key=name)

    def _is_stalled(self, active: Mapping[str, InstanceSample]) -> bool:
        """Returns whether the job is quiet for too long, and none of its ranks works."""
        rule, quiet_s = self._no_progress, self.pace.quiet_s
        limit_s = self.pace.limit_s(rule)
        if not active or quiet_s < limit_s:
            return False
        odd = self._odd_of_pair
        is_measured = all(instance.is_measured for instance in active.values())
        if odd is not None and odd.instance in active:
            # CPU of a rank that waits in a collective says nothing: NCCL and MPI spin.
            by_stack = odd.is_in_collective or not is_measured
            is_idle = self._is_unchanged(odd) if by_stack else self._is_idle(odd.instance)
            return is_idle or quiet_s >= max(limit_s, rule.busy_s)
        if self._all_wait:
            return True
        if not is_measured:
            return quiet_s >= max(limit_s, rule.unmeasured_s)
        if all(map(self._is_idle, active)) or odd_by_cpu(self._cores(active)) is not None:
            return True
        return quiet_s >= max(limit_s, rule.busy_s)

    def _stalled(self, active: Mapping[str, InstanceSample]) -> Iterator[Condition]:
        quiet_s, limit_s = self.pace.quiet_s, self.pace.limit_s(self._no_progress)
        process = self._odd_of_pair
        odd = process.instance if process is not None and process.instance in active else None
        steps = {
            name: each.step for name, each in self._instances.items() if name in active and each.step is not None
        }
        evidence = {
            "quiet_s": round(quiet_s, 1),
            "limit_s": round(limit_s, 1),
            "steps": steps,
            **self._stack_evidence(),
        }
        suspect = odd or odd_by_cpu(self._cores(active)) or odd_by_steps(steps)
        if suspect is None and len(active) == 1:
            suspect = next(iter(active))
        if NoProgress.code in self.rules:
            message = f"no new line, metric or step for {_duration(quiet_s)}; the limit is {_duration(limit_s)}"
            if suspect is not None and len(active) > 1:
                message += f"; the others wait for {suspect}"
            message += self._position(process, active)
            yield Condition(NoProgress.code, message, suspect, evidence)
        if odd is not None and OddRank.code in self.rules:
            rank = "" if process is None else f"rank {process.rank}, "
            message = f"the stack of {rank}{odd} differs from those of all other ranks, which wait"
            message += position_of(process)
            yield Condition(OddRank.code, message, odd, evidence)

    def _slow(self) -> Iterator[Condition]:
        if not self._is_slow or OddRank.code not in self.rules:
            return
        counts = Counter(vote for vote in self._votes if vote is not None)
        odd_name, votes = next(iter(counts.most_common(1)), (None, 0))
        if odd_name is not None and votes >= _SLOW_VOTES:
            step_s = self.pace.step_s or 0.0
            slow = f"steps take {self.pace.slowdown:.1f} times as long as before"
            message = f"{slow}, and the other ranks wait for {odd_name}"
            evidence = {
                "slowdown": round(self.pace.slowdown, 2),
                "step_s": round(step_s, 4),
                **self._stack_evidence(),
            }
            yield Condition(OddRank.code, message, odd_name, evidence)

    def _position(self, odd: ProcessStack | None, active: Mapping[str, InstanceSample]) -> str:
        """Returns where the odd rank is, or the only process of a job."""
        if odd is None and len(active) == 1 and self._stacks:
            odd = next((process for process in self._stacks[-1].stacks if process.user_frame), None)
        return position_of(odd)

    # ---- helpers ------------------------------------------------------------------------------------------

    @property
    def _no_progress(self) -> NoProgress:
        rule = self.rules.get(NoProgress.code)
        return rule if isinstance(rule, NoProgress) else NoProgress()

    @property
    def _odd_rank(self) -> OddRank:
        rule = self.rules.get(OddRank.code)
        return rule if isinstance(rule, OddRank) else OddRank()

    @property
    def _is_slow(self) -> bool:
        return OddRank.code in self.rules and self.pace.slowdown >= self._odd_rank.slow_factor

    def _cores(self, active: Mapping[str, InstanceSample]) -> dict[str, float]:
        return {name: self._instances[name].cores for name in active if active[name].is_measured}

    def _is_idle(self, name: str) -> bool:
        return self._instances[name].cores < BUSY_CORES

    @property
    def _pair(self) -> tuple[_StackSample, _StackSample] | None:
        """Returns the last sample of the stacks, and the newest one that is far enough before it."""
        if not self._stacks:
            return None
        last = self._stacks[-1]
        apart_s = self._odd_rank.apart_s
        return next(((each, last) for each in reversed(self._stacks) if last.at_s - each.at_s >= apart_s), None)

    @property
    def _has_pair(self) -> bool:
        return self._pair is not None

    @property
    def _odd_of_pair(self) -> ProcessStack | None:
        """Returns the rank that is odd in two samples."""
        if (pair := self._pair) is None:
            return None
        before, odd = (odd_by_stacks(each.stacks) for each in pair)
        return odd if before is not None and odd is not None and odd.rank == before.rank else None

    def _is_unchanged(self, process: ProcessStack) -> bool:
        pair = self._pair
        return pair is not None and is_unchanged(process.rank, pair[0].stacks, pair[1].stacks)

    @property
    def _all_wait(self) -> bool:
        pair = self._pair
        return pair is not None and all_wait(pair[0].stacks, pair[1].stacks)

    def _stack_evidence(self) -> dict[str, Any]:
        if not self._stacks:
            return {}
        return {"stacks": stack_rows(self._stacks[-1].stacks)}

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON; stacks are taken again."""
        instances = {
            name: [each.log_bytes, each.cores, each.stopped_s, each.step] for name, each in self._instances.items()
        }
        return {"pace": self.pace.to_json(), "templates": self.log.templates, "instances": instances}

    @classmethod
    def from_json(cls, rules: Mapping[str, Rule], state: Mapping[str, Any]) -> StallRules:
        """Returns the state of `to_json`, with the current rules."""
        instances = {name: _Instance(*values) for name, values in state["instances"].items()}
        return cls(rules, Pace.from_json(state["pace"]), LogProgress(state["templates"]), _instances=instances)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
