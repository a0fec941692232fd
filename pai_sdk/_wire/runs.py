"""Runs of a service: lists, metrics, comparisons, logs, files, traces. PAI's API has none; names are snake_case.

Rows, curves and points are built without these models, which only describe them: a page requests thousands.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

# NaN and infinity are the strings "nan", "inf" and "-inf", unless the body has `nonfinite`.
_Number: TypeAlias = float | str | None
_Numbers: TypeAlias = list[float | None]
RunPart: TypeAlias = Literal["log", "files", "trace"]


class ExtensionBody(BaseModel):
    """A response beyond PAI's API. The id of the request is in the header only."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=(), defer_build=True)


class RunTag(ExtensionBody):
    """A tag of the event files of a run; numbers are those of metrics."""

    tag: str
    kind: str
    count: int
    first_step: int | None = None
    last: dict[str, Any] | None = None
    min: _Number = None
    max: _Number = None
    nan_count: int | None = None
    inf_count: int | None = None
    replaced: int | None = None


class RunTagList(ExtensionBody):
    """The tags of a run."""

    tags: list[RunTag]


class RunRow(ExtensionBody):
    """A run in a list, without empty fields. The lists of numbers have one entry for each tag of the response.

    `v` is the version of the row, and `nonfinite` has the indices of NaN and infinity, by list.
    """

    id: str
    v: str
    uri: str | None = None
    status: str | None = None
    name: str | None = None
    created_at: float | None = None
    started_at: float | None = None
    updated_at: float | None = None
    ended_at: float | None = None
    labels: dict[str, Any] | None = None
    hparams: dict[str, Any] | None = None
    damaged: int | None = None
    is_loading: bool | None = None
    error: str | None = None
    owner: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    cause: str | None = None
    sub_status: str | None = None
    cost: float | None = None
    currency: str | None = None
    queue_place: int | None = None
    waits_for: str | None = None
    media: list[str] | None = None
    last: _Numbers | None = None
    min: _Numbers | None = None
    max: _Numbers | None = None
    step: _Numbers | None = None
    count: _Numbers | None = None
    nan: _Numbers | None = None
    nonfinite: dict[str, dict[str, list[int]]] | None = None


class RunListRow(RunRow):
    """A run in a list, with the annotations of its job; a long note is truncated."""

    star: bool | None = None
    tags: list[str] | None = None
    note: str | None = None
    archived: bool | None = None


class RunList(ExtensionBody):
    """A page of runs; `next` is the cursor of the next page.

    `all` is the number of runs without the filter and without archived jobs. `statuses` has the number of runs by
    status; for these, the conditions of the filter on the status are ignored.
    """

    runs: list[RunListRow]
    tags: list[str]
    next: str | None
    total: int
    all: int
    statuses: dict[str, int]
    version: str
    loading: bool
    error: str


class RunDetails(RunRow):
    """A run with its tags, and which other parts of it have content."""

    tags: list[RunTag]
    parts: list[RunPart]


class RunEvent(ExtensionBody):
    """A mark on the x axis of the curves of a run."""

    kind: str
    text: str
    time: float | None = None
    step: int | None = None


class RunEventList(ExtensionBody):
    """The marks of a run."""

    events: list[RunEvent]


class Curve(ExtensionBody):
    """A curve: points with `xs`, or one entry for each bucket."""

    name: str
    runs: list[str]
    label: Any = None
    xs: _Numbers | None = None
    values: _Numbers | None = None
    low: _Numbers | None = None
    high: _Numbers | None = None
    counts: list[int] | None = None
    nonfinite: dict[str, list[int]] | None = None
    nonfinite_buckets: list[list[int]] | None = None


class TagComparison(ExtensionBody):
    """The curves of one tag; `exact` is true if they have all points."""

    tag: str
    x: str
    points: int
    shown: int
    exact: bool
    left_out: int | None = None  # points whose step has no value of the metric on the x axis
    edges: _Numbers
    curves: list[Curve]


class ComparisonBody(ExtensionBody):
    """Curves of many runs, by tag."""

    comparisons: list[TagComparison]


class RunScalars(ExtensionBody):
    """The points of a metric; or their buckets as `comparisons`, if the request has `buckets`."""

    run: str
    tag: str
    first: int
    reset: bool
    cursor: str
    x: str | None = None
    points: int | None = None
    shown: int | None = None
    exact: bool | None = None
    steps: list[int] | None = None
    walls: _Numbers | None = None
    values: _Numbers | None = None
    xs: _Numbers | None = None
    nonfinite: dict[str, list[int]] | None = None
    comparisons: list[TagComparison] | None = None


class DifferingHparam(ExtensionBody):
    """A hyperparameter in which runs differ."""

    name: str
    kind: str
    values: dict[str, Any]
    correlation: _Number = None
    explained: _Number = None


class HparamsComparison(ExtensionBody):
    """The hyperparameters of runs."""

    differing: list[DifferingHparam]
    runs: list[str]
    constant: dict[str, Any]
    metric: str
    metric_values: dict[str, Any]


class MediaTag(ExtensionBody):
    """A tag of images, histograms, texts or audio."""

    tag: str
    kind: str
    count: int


class MediaItem(ExtensionBody):
    """An image, a text or a histogram of one step."""

    index: int
    step: int
    wall: _Number
    size_bytes: int | None = None
    text: str | None = None
    bins: list[list[Any]] | None = None


class MediaList(ExtensionBody):
    """The tags of media of a run, and the items of one of them."""

    items: list[MediaItem]
    tags: list[MediaTag]


class LogLineOfRun(ExtensionBody):
    """A line of a log: its number, its byte offset in the log of its instance, and its time."""

    number: int
    offset: int
    instance: str
    time: float | None
    text: str


class LogOfRun(ExtensionBody):
    """Lines of a log; `complete` is true if no line will follow."""

    lines: list[LogLineOfRun]
    total: int
    complete: bool
    instances: list[str]


class FilteredLogLine(LogLineOfRun):
    """A line of a filtered log; `is_match` is false for a line before or after one that matches."""

    is_match: bool


class FilteredLogOfRun(ExtensionBody):
    """The lines of a log that match a filter.

    `first` is the number of the first line among them, and `total` their number. `complete` is true if no line
    will follow; `trouble` says why lines are missing: `time` if a repeated request continues the search.
    """

    lines: list[FilteredLogLine]
    first: int
    total: int
    complete: bool
    instances: list[str]
    trouble: str


class FileEntry(ExtensionBody):
    """A file, or a folder with the size of its files; `is_partial` if some of them were not counted."""

    name: str
    is_folder: bool
    size_bytes: int | None
    modified_at: float | None
    is_partial: bool | None = None


class FileList(ExtensionBody):
    """A folder of the files of a run; `uri` is where it is published in OSS."""

    path: str
    uri: str | None = None
    entries: list[FileEntry]
    truncated: bool


class NewDownload(BaseModel):
    """Body of a request for a download: a file, a folder as a ZIP archive, or the log.

    `path` is that of the file or folder. Of the log, `instance` selects one instance, and `gzip` compresses it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["file", "folder", "log"] = "file"
    path: str = Field(default="", max_length=4096)
    instance: str | None = Field(default=None, max_length=256)
    gzip: bool = False


class Download(ExtensionBody):
    """The one-time address of a download."""

    url: str


class TraceColumn(ExtensionBody):
    """A column of a trace; `type` is that of SQL."""

    name: str
    type: str


class TraceRows(ExtensionBody):
    """Rows of a trace; long values are truncated."""

    tables: list[str]
    table: str
    columns: list[TraceColumn]
    rows: list[list[Any]]
    total: int
