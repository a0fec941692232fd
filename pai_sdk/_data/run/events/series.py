"""The points of one metric of one run, as columns.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pai_sdk._core.extras import import_pandas

if TYPE_CHECKING:
    import pandas as pd

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class Point(NamedTuple):
    """One value of a metric.

    Attributes:
        wall: when, in seconds since 1970.
        step: when, in the count of the training.
        value: the number; NaN and infinities are values too.
    """

    wall: float
    step: int
    value: float


@dataclass(frozen=True, eq=False)
class Series:
    """All points of one tag of one run, in the order of their steps.

    The columns have equal lengths. Several series can share them, so do not write to them.

    Attributes:
        tag: the name of the metric.
        wall: when, in seconds since 1970.
        step: when, in the count of the training.
        value: the numbers: float64 where the writer has stored float64, otherwise float32.

    Example:
        >>> loss = Series("loss", np.array([10.0, 11.0]), np.array([1, 2]), np.array([0.5, 0.25]))
        >>> len(loss), loss.last()
        (2, Point(wall=11.0, step=2, value=0.25))
        >>> loss.after(1).value.tolist()
        [0.25]
    """

    tag: str
    wall: Floats
    step: Integers
    value: Values

    @property
    def name(self) -> str:
        """The name of the metric, as in the points of `job.metrics()`: equal to `tag`."""
        return self.tag

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"Series({self.tag!r}, {len(self)} points, last={self.last()})"

    def __getitem__(self, which: slice | npt.NDArray[Any]) -> Series:
        """Returns the points of a slice, a mask, or indices."""
        return Series(self.tag, self.wall[which], self.step[which], self.value[which])

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes."""
        return self.wall.nbytes + self.step.nbytes + self.value.nbytes

    def finite(self) -> Series:
        """Returns the points without NaN and infinities."""
        is_finite = np.isfinite(self.value)
        return self if is_finite.all() else self[is_finite]

    def last(self) -> Point | None:
        """Returns the point with the largest step; None without points."""
        return self._point(-1) if len(self) else None

    def after(self, step: int) -> Series:
        """Returns the points with a larger step."""
        return self[int(np.searchsorted(self.step, step, side="right")) :]

    def between(
        self, start: float | None = None, end: float | None = None, *, x: Literal["step", "wall"] = "step"
    ) -> Series:
        """Returns the points from `start` to `end`, both included; None is no limit.

        Args:
            start: the minimum step, or time in seconds since 1970.
            end: the largest step or time.
            x: the unit of the limits.
        """
        position = self.step if x == "step" else self.wall
        mask = np.ones(len(position), bool)
        if start is not None:
            mask &= position >= start
        if end is not None:
            mask &= position <= end
        return self[mask]

    def downsample(self, points: int) -> Series:
        """Returns fewer points, among them the first, the last, the smallest and the largest.

        The series is split into parts with equally many points; the minimum and maximum of each part
        are returned, unchanged. A series that is short enough is returned unchanged.

        Args:
            points: the maximum number of points, at least 4.

        Raises:
            ValueError: `points` is less than 4.

        Example:
            >>> saw = Series("saw", np.zeros(1000), np.arange(1000), np.arange(1000) % 97.0)
            >>> short = saw.downsample(100)
            >>> len(short) <= 100, short.value.max(), short.step[0], short.step[-1]
            (True, np.float64(96.0), np.int64(0), np.int64(999))
        """
        if points < 4:
            raise ValueError(f"points: minimum 4 (first, last, minimum and maximum), got {points}")
        if len(self) <= points:
            return self
        width = -(-len(self) // ((points - 2) // 2))
        rows = -(-len(self) // width)
        grid = np.full((rows, width), np.nan)
        grid.reshape(-1)[: len(self)] = self.value
        starts = np.arange(rows) * width
        # Of a part with NaN only, the first point is returned.
        min_indices = starts + np.where(np.isnan(grid), np.inf, grid).argmin(axis=1)
        max_indices = starts + np.where(np.isnan(grid), -np.inf, grid).argmax(axis=1)
        return self[np.unique(np.concatenate([[0], min_indices, max_indices, [len(self) - 1]]))]

    def to_pandas(self) -> pd.DataFrame:
        """Returns a data frame with the columns `wall`, `step` and `value`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas()
        return pandas.DataFrame({"wall": self.wall, "step": self.step, "value": self.value})

    def summary(self) -> TagSummary:
        """Returns count, first step, last point and extremes."""
        finite = self.finite().value
        nan_count = int(np.isnan(self.value).sum())
        return TagSummary(
            self.tag,
            "scalar",
            count=len(self),
            first_step=int(self.step[0]) if len(self) else None,
            last=self.last(),
            min=float(finite.min()) if len(finite) else None,
            max=float(finite.max()) if len(finite) else None,
            nan_count=nan_count,
            inf_count=len(self) - len(finite) - nan_count,
        )

    def _point(self, at: int) -> Point:
        return Point(float(self.wall[at]), int(self.step[at]), float(self.value[at]))


def empty_series(tag: str) -> Series:
    """Returns a series without points."""
    return Series(tag, np.empty(0), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class TagSummary:
    """The summary of a tag of a run, which is available when the points are not in memory.

    Attributes:
        tag: its name.
        kind: `scalar`, `text`, `histogram`, `tensor`, `image`, `metadata` for content of a plugin without a value,
            or the name of another plugin of TensorBoard, whose values are tensors.
        count: of all points.
        first_step: the smallest step; None where there are no points.
        last: the point with the largest step; its value is NaN for values that are not numbers, such as text.
        min: the smallest finite value; None where there is none.
        max: the largest finite value.
        nan_count: how many values are NaN.
        inf_count: how many values are infinite.
        replaced: how many points of older files do not count, since newer files replace them.
    """

    tag: str
    kind: str
    count: int = 0
    first_step: int | None = None
    last: Point | None = None
    min: float | None = None
    max: float | None = None
    nan_count: int = 0
    inf_count: int = 0
    replaced: int = 0

    @property
    def name(self) -> str:
        """The name of the tag: equal to `tag`."""
        return self.tag

    @property
    def has_tensors(self) -> bool:
        """True when its values are tensors: of no plugin, or of an unknown one such as `pr_curves`."""
        return is_tensor_kind(self.kind)


def is_tensor_kind(kind: str) -> bool:
    """Returns True when the values of a kind are tensors, as those of unknown plugins such as `pr_curves`."""
    return kind not in ("scalar", "text", "histogram", "image", "audio", "graph", "hparams", "metadata")
