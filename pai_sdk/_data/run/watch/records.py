"""Properties of runs as plain values, without I/O and without numpy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pai_sdk._wire.pai.hyperparameters import mask_hyperparameters
from pai_sdk._wire.pai.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import TagSummary


@dataclass(frozen=True)
class RunAnnotations:
    """What users have recorded about a run on a service; empty elsewhere."""

    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False
    starred_by: tuple[str, ...] = ()  # users; the key of the service is the empty string


NOT_ANNOTATED = RunAnnotations()
"""The annotations of most runs: one object, since a manager may have ten thousand runs."""


@dataclass(frozen=True)
class RunOfJob:
    """A run with the properties that only its job has; `RunRecord` and `RunBrief` describe them."""

    id: str
    _: KW_ONLY
    owner: str = ""
    started_at: float | None = None
    instance_type: str = ""
    instance_count: int | None = None
    cause: str = ""
    sub_status: str = ""
    annotations: RunAnnotations = NOT_ANNOTATED
    cost: float | None = None
    currency: str = ""


@dataclass(frozen=True)
class RunRecord(RunOfJob):
    """Properties of a run from outside its event files, such as from the table of jobs of a service.

    Attributes:
        id: of the run, which is that of its job.
        status: of the job, as `JobStatus` names it; empty when it is not known.
        name: for display.
        labels: of the job.
        hparams: the hyperparameters it was started with. Those in its event files have priority. Values whose
            names look secret are masked when the record is created.
        created_at: when it was created, in seconds since 1970.
        ended_at: when it finished, in seconds since 1970; None before.
        uri: the folder of its event files. Without one, the run is searched below the prefixes of the manager.
        owner: the user whose job it is; empty for that of a service's own key.
        started_at: when its last attempt began, in seconds since 1970.
        instance_type: what each of its instances runs on.
        instance_count: the number of its instances.
        cause: of a failure, in one line.
        sub_status: the code of the reason of a status that is not the last one, such as a wait.
        annotations: its tags, note and stars on a service.
        cost: of its instances so far; None where no price is known.
        currency: of the cost.

    Example:
        >>> RunRecord("train-x7k2", status="Running", hparams={"lr": "0.1"}).hparams["lr"]
        '0.1'
    """

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
class RunBrief(RunOfJob):
    """The entry of a run in a list of runs; it is in memory for every run.

    Attributes:
        id: the path of its folder below the prefix, or the id of its job.
        uri: its folder of event files, or the parent of that folder; empty where only a service can read them.
        status: of its job. A run without a record has the final status of its `ReportSession`.
            Before that it is `Running` while its files grow, else `Unknown`; when it cannot be read, `Failed`.
        name: of its job, or else the path of its folder below the prefix. Two runs may have equal names.
        created_at: when it started, in seconds since 1970.
        updated_at: when one of its files was changed last, in seconds since 1970.
        ended_at: when its job or its `ReportSession` finished, in seconds since 1970; None if unknown.
        tags: each metric with its last, minimum and maximum value, and the other kinds of data in the event files.
        hparams: its hyperparameters; nested ones have dots between the names. Values whose names
            look secret are masked, so no list, table or page has them.
        labels: of its job.
        damaged: the number of ranges of its files that could not be read and were skipped.
        is_loading: whether some of its files were not read to their ends yet.
        error: of the last read; empty after a success. Data of earlier reads stays.
        version: of the manager, when the brief was last changed.
        owner: the user whose job it is; empty for that of a service's own key.
        started_at: when its last attempt began, in seconds since 1970; None before, and where unknown.
        instance_type: what each of its instances runs on.
        instance_count: the number of its instances.
        cause: of a failure, in one line.
        sub_status: the code of the reason of a status that is not the last one, such as a wait.
        annotations: its tags, note and stars on a service.
        cost: of its instances so far; None where no price is known.
        currency: of the cost.
    """

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

    @property
    def duration_s(self) -> float | None:
        """The seconds since its start, or until its end; None before it."""
        if self.started_at is None:
            return None
        has_ended = JobStatus(self.status).is_terminal or self.status == "Unknown"
        end = self.ended_at or (self.updated_at if has_ended else None) or time.time()
        return max(0.0, end - self.started_at)

    def with_tags(self, tags: tuple[str, ...]) -> RunBrief:
        """Returns the brief with some of the tags only."""
        # Cached: a list that is watched requests the same tags again and again.
        cached: tuple[tuple[str, ...], RunBrief] | None = self.__dict__.get("_narrowed")
        if cached is not None and cached[0] == tags:
            return cached[1]
        # A list has a thousand of them: `dataclasses.replace` takes five times as long.
        brief = object.__new__(RunBrief)
        brief.__dict__.update(self.__dict__)
        brief.__dict__.pop("_narrowed", None)
        all_tags = self.tags
        brief.__dict__["tags"] = {tag: all_tags[tag] for tag in tags if tag in all_tags}
        self.__dict__["_narrowed"] = (tags, brief)
        return brief


class RunReference(Protocol):
    """An object with the id of a run: a `TrainingJob`, a brief."""

    @property
    def id(self) -> str: ...


def run_ids(runs: Iterable[str | RunReference]) -> list[str]:
    """Returns the ids of runs, each once; of jobs and briefs, their ids."""
    return [*dict.fromkeys(run if isinstance(run, str) else getattr(run, "id", repr(run)) for run in runs)]


@dataclass(frozen=True)
class RunPage:
    """Some of the requested runs, in the requested order."""

    runs: tuple[RunBrief, ...]
    next: str | None  # the cursor of the next page; None at the end
    total: int  # on all pages
    version: int  # of the manager
    statuses: Mapping[str, int] = field(default_factory=dict)  # counts, without the filter's conditions on it
    all: int = 0  # the number of runs without the filter and without archived ones

    def __len__(self) -> int:
        return len(self.runs)


@dataclass(frozen=True)
class ManagerState:
    """The progress of a manager.

        INIT ──> LOADING ──> DONE or FAILED ──(next scan)──> LOADING …

    `FAILED` when a prefix could not be listed or the records could not be read; the next scan tries again.
    """

    status: Literal["INIT", "LOADING", "DONE", "FAILED"]
    error: str = ""  # of the last scan, also after a partial failure; empty without one
    version: int = 0  # grows with every change of a run
    loaded_at: float | None = None  # when the last scan finished, in seconds since 1970
    epoch: str = ""  # of this manager; versions of another epoch cannot be compared
    runs: int = 0
    points_bytes: int = 0  # the memory of the points
    # Symbolic links below the prefixes. They are not followed: runs behind them are not listed.
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """The runs that have changed since the last change that a subscriber received.

    Attributes:
        run_ids: the runs that are new or changed.
        version: of the manager; `subscribe(since=version)` continues after it.
        removed: the runs that are gone.
        resync: the subscriber has missed changes that are no longer stored: `run_ids` has all existing runs,
            and every other run is gone.
    """

    run_ids: tuple[str, ...]
    version: int
    removed: tuple[str, ...] = ()
    resync: bool = False


@dataclass(frozen=True)
class HparamDiff:
    """A hyperparameter in which runs differ."""

    name: str  # nested ones have dots
    kind: Literal["number", "bool", "text", "mixed"]
    values: Mapping[str, Any]  # by run id; a run without the hyperparameter has no entry, and None is a value
    # The rank correlation with the metric, from -1 to 1; None without a metric, for values that are not numbers,
    # and where too few runs have both.
    correlation: float | None = None
    # The part of the variance of the metric's ranks that this hyperparameter explains, from 0 to 1: the square of
    # the correlation, or the correlation ratio for values that are not numbers.
    explained: float | None = None


@dataclass(frozen=True)
class HparamsDiff:
    """The hyperparameters in which runs differ."""

    run_ids: tuple[str, ...]  # in the requested order
    differing: tuple[HparamDiff, ...]  # first those that explain most of the metric, then by name
    constant: Mapping[str, Any]  # equal in all runs
    metric: str = ""  # as requested; empty without one
    metric_values: Mapping[str, float] = field(default_factory=dict)  # by run id, for runs that have the metric
