"""Facts about runs as plain values, without I/O and without numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk.schemas.hyperparameters import mask_hyperparameters

if TYPE_CHECKING:
    from pai_sdk.run.events.series import TagSummary

__all__ = [
    "Change",
    "HparamDiff",
    "HparamsDiff",
    "ManagerState",
    "RunBrief",
    "RunPage",
    "RunRecord",
]


@dataclass(frozen=True)
class RunRecord:
    """Facts about a run from outside its event files, such as from the table of jobs of a service.

    Attributes:
        id: of the run, which is that of its job.
        status: of the job, as `JobStatus` names it; empty when it is not known.
        name: what a person calls it.
        labels: of the job.
        hparams: the hyperparameters it was started with. Those in its event files come first. Values whose names
            look secret are masked when the record is made.
        created_at: when it was created, in seconds since 1970.
        ended_at: when it ended, likewise; None while it has not.
        uri: the folder of its event files. Without one, the run is looked for below the prefixes of the manager.

    Example:
        >>> RunRecord("train-x7k2", status="Running", hparams={"lr": "0.1"}).hparams["lr"]
        '0.1'
    """

    id: str
    status: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    created_at: float | None = None
    ended_at: float | None = None
    uri: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hparams", mask_hyperparameters(self.hparams))


@dataclass(frozen=True)
class RunBrief:
    """The entry of a run in a list of runs; it is in memory for every run.

    Attributes:
        id: the path of its folder below the prefix, or the id of its job.
        uri: its folder of event files, or the folder around it.
        status: that of its job. A run without a record has the status with which its `ReportSession` has ended.
            Before that it is `Running` while its files grow, else `Unknown`; when it cannot be read, `Failed`.
        name: that of its job, or else the path of its folder below the prefix. Two runs may have the same one.
        created_at: when it began, in seconds since 1970.
        updated_at: when a file of it was changed last, likewise.
        ended_at: when its job or its `ReportSession` ended, likewise; None when that is not known.
        tags: each metric with its last, least and largest value, and what else is in the event files.
        hparams: its hyperparameters; those that a job has nested have dots between the names. Values whose names
            look secret are masked, so no list, table or page has them.
        labels: of its job.
        damaged: how many ranges of its files could not be read; they were passed over.
        is_loading: whether files of it were not read to their ends yet.
        error: why it could not be read the last time; empty when it could. What was known before stays.
        version: of the manager, when this was last changed.
    """

    id: str
    uri: str = ""
    status: str = "Unknown"
    name: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    ended_at: float | None = None
    tags: Mapping[str, TagSummary] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    damaged: int = 0
    is_loading: bool = False
    error: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hparams", mask_hyperparameters(self.hparams))

    def with_tags(self, tags: tuple[str, ...]) -> RunBrief:
        """The same with some of its tags only. It is kept: a list that is watched asks for the same ones again."""
        kept: tuple[tuple[str, ...], RunBrief] | None = self.__dict__.get("_narrowed")
        if kept is not None and kept[0] == tags:
            return kept[1]
        # A list has a thousand of them: `dataclasses.replace` takes five times as long.
        made = object.__new__(RunBrief)
        made.__dict__.update(self.__dict__)
        made.__dict__.pop("_narrowed", None)
        known = self.tags
        made.__dict__["tags"] = {tag: known[tag] for tag in tags if tag in known}
        self.__dict__["_narrowed"] = (tags, made)
        return made


@dataclass(frozen=True)
class RunPage:
    """Some of the runs that were asked for.

    Attributes:
        runs: in the order that was asked for.
        next: the cursor of the page behind this one; None at the end.
        total: how many runs there are on all pages.
        version: of the manager.
    """

    runs: tuple[RunBrief, ...]
    next: str | None
    total: int
    version: int

    def __len__(self) -> int:
        return len(self.runs)


@dataclass(frozen=True)
class ManagerState:
    """The progress of a manager.

    Attributes:
        status: `INIT` before the first scan, `LOADING` during a scan, then `DONE`, or `FAILED` when a prefix could
            not be listed or the records could not be had. The next scan tries again.
        error: why the last scan failed, in part or as a whole; empty when it did not.
        version: grows with every change of a run.
        loaded_at: when the last scan ended, in seconds since 1970.
        epoch: of this manager; versions of another epoch mean nothing here.
        runs: how many there are.
        points_bytes: the memory that points take.
        links: symbolic links below the prefixes, which are not followed: runs behind them are not listed.
    """

    status: Literal["INIT", "LOADING", "DONE", "FAILED"]
    error: str = ""
    version: int = 0
    loaded_at: float | None = None
    epoch: str = ""
    runs: int = 0
    points_bytes: int = 0
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """The runs that have changed since the last change that a subscriber got.

    Attributes:
        run_ids: the runs that are new or changed.
        version: of the manager; `subscribe(since=version)` goes on behind it.
        removed: the runs that are gone.
        resync: the subscriber has missed changes that are not known any more: `run_ids` has all runs there are,
            and every other one is gone.
    """

    run_ids: tuple[str, ...]
    version: int
    removed: tuple[str, ...] = ()
    resync: bool = False


@dataclass(frozen=True)
class HparamDiff:
    """A hyperparameter in which runs differ.

    Attributes:
        name: its name; nested ones have dots.
        kind: `number`, `bool`, `text`, or `mixed`.
        values: by the id of the run. A run that has no such hyperparameter is not among them; None is a value.
        correlation: the rank correlation with the metric, from -1 to 1; None without a metric, for what is no
            number, and where too few runs have both.
        explained: the part of the variance of the metric's ranks, from 0 to 1, that this hyperparameter explains:
            the square of the correlation, or for what is no number the correlation ratio.
    """

    name: str
    kind: Literal["number", "bool", "text", "mixed"]
    values: Mapping[str, Any]
    correlation: float | None = None
    explained: float | None = None


@dataclass(frozen=True)
class HparamsDiff:
    """In which hyperparameters runs differ.

    Attributes:
        run_ids: the runs, in the order that was asked for.
        differing: the hyperparameters that differ; first those that explain most of the metric, then by name.
        constant: those that are the same in all runs.
        metric: the metric's name, as it was asked for; empty without one.
        metric_values: its value by the id of the run, of those that have one.
    """

    run_ids: tuple[str, ...]
    differing: tuple[HparamDiff, ...]
    constant: Mapping[str, Any]
    metric: str = ""
    metric_values: Mapping[str, float] = field(default_factory=dict)
