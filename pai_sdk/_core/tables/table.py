"""A table as a value: columns, rows, a title and a caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MAX_CELL_WIDTH = 48  # of a table that is the `repr` of a value
_MAX_HPARAM_WIDTH = 40


def value_text(value: object) -> str:
    """Returns a value for a cell: a number with six digits, a dash for None."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def hparam_text(hparams: Mapping[str, object], name: str, *, missing: str = "-") -> str:
    """Returns a hyperparameter for a cell, shortened; `None` is a value."""
    text = missing if name not in hparams else "None" if hparams[name] is None else value_text(hparams[name])
    return text if len(text) <= _MAX_HPARAM_WIDTH else f"{text[: _MAX_HPARAM_WIDTH - 1]}…"


@dataclass(frozen=True)
class Column:
    """A column of a table. All but the first four fields are for terminals."""

    title: str
    key: str = ""  # in JSON; by default the title
    align: str = ""  # `left` or `right`; by default right for numbers
    format: Callable[[Any], str] = value_text  # of values that are no `Cell`
    max_width: int | None = None  # a longer cell ends with an ellipsis, in any window
    drop: int = 0  # in a narrow window the highest number is dropped first; 0 is never dropped
    wraps: bool = False  # in a narrow window, it moves to a line below its row before others are dropped
    overflow: Literal["", "fold", "ellipsis"] = (
        ""  # in a narrow window, `fold` continues a cell on more lines, `ellipsis` shortens it
    )


def text_columns(titles: Sequence[str], *, last_width: int = MAX_CELL_WIDTH) -> list[Column]:
    """Creates the columns of a table that is the `repr` of a value; long cells are shortened."""
    columns = [Column(title, max_width=MAX_CELL_WIDTH) for title in titles]
    return [*columns[:-1], replace(columns[-1], max_width=last_width)]


@dataclass(frozen=True)
class Cell:
    """A cell with a style, or with other content in HTML than in a terminal."""

    text: str
    html: str | None = None  # markup; by default the escaped text
    style: str = ""  # of Rich

    @classmethod
    def of_markup(cls, html: str) -> Cell:
        """Creates a cell of a table that only notebooks display."""
        return cls(html, html)


@dataclass(frozen=True)
class Table:
    """A table. Cells are values, `Cell` or, for terminals, `rich.text.Text`."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    title: str = ""
    caption: str | Cell = ""  # below the rows
    notes: Mapping[int, str] = field(default_factory=dict)  # in a terminal, a line above the row of this number
    row_styles: Sequence[str] = ()  # of Rich
    title_style: str = "bold"  # of the titles of the columns

    def ordered(self, indexes: Sequence[int]) -> Table:
        """Returns the table with the columns of these indexes, in this order."""
        rows = [[row[index] for index in indexes] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indexes], rows=rows)

    def objects(self) -> Iterator[dict[str, object]]:
        """Yields each row as a JSON object."""
        keys = [column.key or column.title for column in self.columns]
        for row in self.rows:
            values = (cell.text if isinstance(cell, Cell) else cell for cell in row)
            yield dict(zip(keys, values, strict=True))

    def shortened(self, max_rows: int, end_rows: int) -> Table:
        """Returns the table; of more than `max_rows` rows, only `end_rows` at both ends."""
        if len(self.rows) <= max_rows:
            return self
        rows = [*self.rows[:end_rows], *self.rows[-end_rows:]]
        return replace(self, rows=rows, notes={end_rows: f"… {len(self.rows) - len(rows):,} more …"})
