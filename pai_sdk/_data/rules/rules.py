"""The rules that a user can set: frozen values with their thresholds and their action."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal, TypeAlias

from pai_sdk.errors import InvalidInputError, Problem

Action: TypeAlias = Literal["observe", "notify", "snapshot", "stop", "restart"]
"""`observe`: an event. `notify`: also a notification. `snapshot`: also stacks and last lines, saved with the job.
`stop`: ends the job. `restart`: starts it again, so that it resumes from its newest checkpoint."""

ACTIONS: tuple[Action, ...] = ("observe", "notify", "snapshot", "stop", "restart")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What all rules have.

    Attributes:
        action: `observe`, `notify`, `snapshot`, `stop` or `restart`; each one includes those before it, except
            that `restart` replaces `stop`.
        enabled: False switches the rule off.
        max_restarts: with `restart`, the maximum number of restarts.

    Example:
        >>> NoProgress(min_s=600, action="stop").action
        'stop'
    """

    code: ClassVar[str] = ""
    action: Action = "notify"
    enabled: bool = True
    max_restarts: int = 3

    def __post_init__(self) -> None:
        problems = [problem for f in fields(self) if (problem := _problem(f.name, getattr(self, f.name)))]
        if problems:
            name = type(self).__name__
            raise InvalidInputError([Problem(f"{name}.{where}", text, hint) for where, text, hint in problems])


def _problem(name: str, value: object) -> tuple[str, str, str] | None:
    if name == "action":
        return None if value in ACTIONS else (name, f"{value!r} is no action", f"available: {', '.join(ACTIONS)}")
    if name == "enabled":
        return None if isinstance(value, bool) else (name, "expected a boolean", "True or False")
    if name == "metrics":
        is_valid = isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)
        return None if is_valid else (name, "expected a tuple of names", 'such as ("loss",)')
    if value is None and name in ("budget", "price_per_hour"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return name, f"expected a number of at least 0, got {value!r}", ""
    return None


@dataclass(frozen=True, kw_only=True)
class NoProgress(Rule):
    """No new line, metric or step for longer than the job's own pace explains.

    The limit is the largest of `min_s`, `factor` times the median gap and `max_gap_factor` times the longest gap
    between two signs of progress; until three gaps after the first metric are known, `min_s` counts twice.
    Carriage returns of progress bars are progress; repeated messages about retries are not.

    Attributes:
        min_s: the smallest limit, in seconds.
        factor: of the median gap.
        max_gap_factor: of the longest gap.
        first_step_s: the limit before the first metric: compiling, downloads, a job that reports no metrics.
        busy_s: the limit while CPU or disk are used, such as in an evaluation without output.
        unmeasured_s: the smallest limit where CPU and disk are not measured.

    Example:
        >>> NoProgress(min_s=600).min_s
        600
    """

    code: ClassVar[str] = "NoProgress"
    min_s: float = 300.0
    factor: float = 10.0
    max_gap_factor: float = 2.0
    first_step_s: float = 3600.0
    busy_s: float = 7200.0
    unmeasured_s: float = 1800.0


@dataclass(frozen=True, kw_only=True)
class OddRank(Rule):
    """One rank is where no other rank is: its stack differs, and the others wait for it.

    Evaluated when the job makes no progress, by the limits of `NoProgress`, or when its steps take `slow_factor`
    times as long as before. A rank that uses at least 5 % of a core works, and is not reported.

    Attributes:
        apart_s: two equal samples of all stacks must be this far apart, in seconds.
        slow_factor: of the median step time.

    Example:
        >>> OddRank(action="snapshot").apart_s
        10.0
    """

    code: ClassVar[str] = "OddRank"
    apart_s: float = 10.0
    slow_factor: float = 5.0


@dataclass(frozen=True, kw_only=True)
class ProcessStopped(Rule):
    """A process is stopped by a signal (SIGSTOP, Ctrl-Z). One that a debugger holds is not reported.

    Attributes:
        min_s: how long it must be stopped, in seconds.

    Example:
        >>> ProcessStopped(min_s=60).min_s
        60
    """

    code: ClassVar[str] = "ProcessStopped"
    min_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class NonFiniteMetric(Rule):
    """A metric is NaN or infinite.

    Attributes:
        metrics: only these; by default all but norms of gradients, scales and bests, which overflow in healthy
            jobs too.
        points: consecutive points that are not finite.

    Example:
        >>> NonFiniteMetric(metrics=("loss",), action="stop").points
        2
    """

    code: ClassVar[str] = "NonFiniteMetric"
    metrics: tuple[str, ...] = ()
    points: int = 2


@dataclass(frozen=True, kw_only=True)
class MetricJump(Rule):
    """A loss is suddenly far above its recent values, and stays there.

    Attributes:
        metrics: only these; by default those with `loss` in their name.
        factor: of the spread of the recent values, above their median.
        points: consecutive points beyond it.

    Example:
        >>> MetricJump(factor=20).points
        3
    """

    code: ClassVar[str] = "MetricJump"
    metrics: tuple[str, ...] = ()
    factor: float = 12.0
    points: int = 3


@dataclass(frozen=True, kw_only=True)
class IdleGpu(Rule):
    """All GPUs of a job are used less than `percent` for a long time.

    Only where their use is measured: by a service whose machine has `nvidia-smi`, and by `pai-sdk watch`.

    Attributes:
        minutes: how long.
        percent: the use below which a GPU is idle.

    Example:
        >>> IdleGpu(minutes=15).percent
        5.0
    """

    code: ClassVar[str] = "IdleGpu"
    minutes: float = 30.0
    percent: float = 5.0


@dataclass(frozen=True, kw_only=True)
class IdleCpu(Rule):
    """No instance of a job uses its CPU or disk for a long time. Instances that only sleep are left out.

    Attributes:
        minutes: how long.
        percent: of one core, below which an instance is idle.

    Example:
        >>> IdleCpu(minutes=60, action="stop").minutes
        60
    """

    code: ClassVar[str] = "IdleCpu"
    action: Action = "observe"
    minutes: float = 120.0
    percent: float = 5.0


@dataclass(frozen=True, kw_only=True)
class DiskNearlyFull(Rule):
    """The disk with the job's files has little space left.

    Attributes:
        percent: of the disk that is in use.
        free_gib: a disk with more free space is not nearly full.

    Example:
        >>> DiskNearlyFull(percent=90).free_gib
        20.0
    """

    code: ClassVar[str] = "DiskNearlyFull"
    percent: float = 95.0
    free_gib: float = 20.0


@dataclass(frozen=True, kw_only=True)
class LateEnd(Rule):
    """By its progress so far, the job will exceed `max_run_time`, or its budget.

    Attributes:
        factor: how far beyond the limit the expected end must be.
        budget: the maximum cost of the job; requires `price_per_hour`.
        price_per_hour: of all instances of the job together.

    Example:
        >>> LateEnd(budget=100, price_per_hour=12).factor
        1.1
    """

    code: ClassVar[str] = "LateEnd"
    factor: float = 1.1
    budget: float | None = None
    price_per_hour: float | None = None


RULES: tuple[type[Rule], ...] = (
    NoProgress,
    OddRank,
    ProcessStopped,
    NonFiniteMetric,
    MetricJump,
    IdleGpu,
    IdleCpu,
    DiskNearlyFull,
    LateEnd,
)

RULE_CODES = frozenset(rule.code for rule in RULES)
