"""One run that is being watched: its metrics, and the other data in its event files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk._core.extras import import_pandas
from pai_sdk._core.names.hints import name_hint
from pai_sdk._data.run.events.reader import Entry, ImageEntry
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.curve_view import CurveView, XAxis
from pai_sdk._data.run.plots.figures import Plot
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._data.run.watch.run_data import RunData
from pai_sdk.errors import RunNotFoundError

if TYPE_CHECKING:
    import pandas as pd

    from pai_sdk._data.run.events.series import Point, TagSummary


class WatchedRun:
    """One run of a `RunManager`, returned by `run(id)`. Each call returns the current data.

    Points that are in memory are returned at once; for other points, the call waits until they are read again.
    """

    def __init__(self, data: RunData, run_id: str) -> None:
        self._data = data
        self.id = run_id

    def __repr__(self) -> str:
        brief = self.brief
        return f"<WatchedRun {self.id} {brief.status}, {len(brief.tags)} tags>"

    @property
    def brief(self) -> RunBrief:
        """The entry of the run in the list of runs.

        Raises:
            RunNotFoundError: the run is gone.
        """
        return self._data.get_brief(self.id)

    def tags(self) -> Mapping[str, TagSummary]:
        """Returns the metrics, texts and histograms of its event files, each with its count and its last value."""
        return self.brief.tags

    def hparams(self) -> Mapping[str, Any]:
        """Returns the hyperparameters of the run."""
        return self.brief.hparams

    def scalars(self, tag: str) -> Series:
        """Returns all points of a metric.

        Raises:
            RunNotFoundError: the run has no such metric, or is gone.
            StorageError: reading the files again failed.
        """
        self._must_have(tag)
        return self._data.series(self.id, tag)

    def read_last(self, tag: str | None = None) -> Point | dict[str, Point] | None:
        """Returns the last point of a metric, without reading a file; without a tag, that of each metric.

        Raises:
            RunNotFoundError: the run has no such metric, or is gone.
        """
        if tag is not None:
            return self._must_have(tag).last
        scalars = {name: summary for name, summary in self.tags().items() if summary.kind == "scalar"}
        return {name: summary.last for name, summary in scalars.items() if summary.last is not None}

    def text(self, tag: str) -> list[Entry]:
        """Returns the texts of a tag, by step; each has `wall`, `step` and `value`. Raises as `scalars`."""
        return self._entries(tag, "text", "texts")

    def images(self, tag: str, wanted: int | None = None) -> list[ImageEntry]:
        """Returns the images of a tag, by step, without their contents, which are read from the files.

        Args:
            tag: of the images.
            wanted: the number of an image: only this one is returned, with its content.

        Raises:
            RunNotFoundError: the run has no such images, or is gone.
            StorageError: its files cannot be read again.
        """
        self._must_have(tag, "image")
        return self._data.images(self.id, tag, wanted)

    def histograms(self, tag: str) -> list[Entry]:
        """Returns the histograms of a tag, by step.

        The value of each is an array with a row for each bucket: left edge, right edge, count. Raises as
        `scalars`.
        """
        return self._entries(tag, "histogram", "histograms")

    def tensors(self, tag: str) -> list[Entry]:
        """Returns the tensors of a tag, by step; the value of each is an array in its shape.

        The values of plugins without support here, such as TensorBoard's `pr_curves`, are tensors as well; the
        name of the plugin is their kind in `tags()`. Raises as `scalars`.
        """
        return self._entries(tag, "tensor", "tensors")

    def to_pandas(self, tags: list[str] | None = None) -> pd.DataFrame:
        """Returns a data frame with the columns `tag`, `wall`, `step` and `value`, of some metrics or of all.

        Raises:
            MissingExtraError: pandas is not installed.
            RunNotFoundError: the run has no such metric, or is gone.
        """
        pandas = import_pandas()
        selected = (
            tags if tags is not None else [t for t, summary in self.tags().items() if summary.kind == "scalar"]
        )
        frames = [self.scalars(tag).to_pandas().assign(tag=tag) for tag in selected]
        columns = ["tag", "wall", "step", "value"]
        return pandas.concat(frames, ignore_index=True)[columns] if frames else pandas.DataFrame(columns=columns)

    def plot(
        self, *tags: str, x: XAxis = "step", buckets: int = 350, smooth: float = 0.0, log_y: bool = False
    ) -> Plot:
        """Returns a plot of metrics, which notebooks display; `save` writes it to a file.

        Args:
            tags: the metrics, a curve each; all of them by default.
            x: the quantity of the x axis: `step`, `relative_step`, `relative_time` or `wall`.
            buckets: the maximum number of buckets; a shorter curve has all its points.
            smooth: the weight of TensorBoard's smoothing, from 0 to less than 1.
            log_y: the y axis is logarithmic.

        Raises:
            InvalidInputError: an argument is invalid.
            RunNotFoundError: the run has no such metric, or is gone.
            StorageError: reading the files again failed.
        """
        selected = tags or tuple(tag for tag, summary in self.tags().items() if summary.kind == "scalar")
        names = [self.id] if len(selected) == 1 else selected
        series = [self.scalars(tag) for tag in selected]
        curves = compared(series, CurveView(x, buckets=buckets, smooth=smooth), names=names)
        return curves.plot(selected[0] if len(selected) == 1 else self.id, log_y=log_y)

    @property
    def trace_uri(self) -> str:
        """The folder of the run's trace, if it has written one: `read_trace(run.trace_uri).to_pandas()`."""
        return RunLayout(RunLayout(self.brief.uri).folder.removesuffix("/tensorboard")).trace

    def _entries(self, tag: str, kind: str, source: Literal["texts", "histograms", "tensors"]) -> list[Entry]:
        self._must_have(tag, kind)
        return self._data.read_entries(self.id, source, tag)

    def _must_have(self, tag: str, kind: str = "scalar") -> TagSummary:
        tags = {
            name: summary
            for name, summary in self.tags().items()
            if summary.kind == kind or (kind == "tensor" and summary.has_tensors)
        }
        if tag not in tags:
            hint = name_hint(tag, tags) or "it has none yet"
            noun = "metric" if kind == "scalar" else kind
            raise RunNotFoundError(f"run {self.id} has no {noun} {tag!r}; {hint}", run_id=self.id)
        return tags[tag]
