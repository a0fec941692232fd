"""Renders a table as lines for a terminal. Widths are counted in terminal cells: a wide character has two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pai_sdk._core.tables.table import Cell, Column, Table
from pai_sdk._core.terminal_text import visible_text

if TYPE_CHECKING:
    from rich.text import Text

_GAP = 2


def table_text(table: Table, max_width: int | None = None) -> str:
    """Renders a table as text without colours."""
    return "\n".join(line.plain for line in FittedTable(table, max_width).lines())


class FittedTable:
    """A table in a window of some width; None is any width."""

    # `rich.table.Table` needs 0.7 s for 1,000 rows of 8 columns, these lines of `rich.text.Text` 0.1 s. It has no
    # columns to drop and no lines below a row, and a row that is too wide loses its last columns without a mark.

    def __init__(self, table: Table, max_width: int | None = None) -> None:
        self._table, self._columns, self._max_width = table, table.columns, max_width
        self._titles = [_text(Column(""), column.title) for column in table.columns]
        self._rows = [[*map(_text, table.columns, row)] for row in table.rows]
        self._widths = [max(map(_width, cells)) for cells in zip(self._titles, *self._rows, strict=True)]
        self._visible, self._below = self._fitted()
        self._shrink()

    @property
    def dropped(self) -> list[Column]:
        """Returns the columns that have no room in the window."""
        printed = {*self._visible, *self._below}
        return [self._columns[index] for index in self._non_empty if index not in printed]

    def lines(self) -> Iterator[Text]:
        """Yields the title, the titles of the columns, the rows and the caption."""
        table = self._table
        yield from self._wrapped(table.title, "italic")
        yield from self._row_lines(self._titles, table.title_style)
        styles = table.row_styles or [""] * len(self._rows)
        for number, (row, style) in enumerate(zip(self._rows, styles, strict=True)):
            yield from self._wrapped(table.notes.get(number, ""), "dim")
            yield from self._row_lines(row, style)
            for index in self._below:
                if row[index].plain:
                    below = row[index].copy()
                    below.pad_left(2)
                    yield below
        yield from self._wrapped(table.notes.get(len(self._rows), ""), "dim")
        yield from self._wrapped(
            table.caption.text if isinstance(table.caption, Cell) else table.caption, "dim italic"
        )

    @cached_property
    def _non_empty(self) -> list[int]:
        return [index for index, width in enumerate(self._widths) if width]

    def _fitted(self) -> tuple[list[int], list[int]]:
        """Returns the indexes of the columns that fit side by side, and of those on lines of their own."""
        columns, indexes = self._columns, self._non_empty
        # In the order of loss: one droppable column, then lines of their own, then more columns.
        droppable = sorted((index for index in indexes if columns[index].drop), key=lambda at: -columns[at].drop)
        below = [index for index in indexes if columns[index].wraps]
        for moved in ([], below):
            for count in range(len(droppable) + 1):
                if below and not moved and count > 1:
                    break
                chosen = [index for index in indexes if index not in moved and index not in droppable[:count]]
                if self._excess(chosen) <= 0:
                    return chosen, moved
        return [index for index in indexes if index not in below and index not in droppable], below

    def _shrink(self) -> None:
        """Reduces the widest columns with an `overflow` until the visible ones fit side by side."""
        if self._max_width is None:
            return
        shrinkable = [index for index in self._visible if self._columns[index].overflow]
        for index in shrinkable:
            self._widths[index] = min(self._widths[index], self._max_width)  # a cell can have a million characters
        excess = self._excess(self._visible)
        while shrinkable and excess > 0:
            widest = max(shrinkable, key=lambda index: self._widths[index])
            if self._widths[widest] == 1:
                return
            self._widths[widest] -= 1
            excess -= 1

    def _excess(self, indexes: Sequence[int]) -> int:
        """Returns the number of terminal cells by which these columns are too wide."""
        if self._max_width is None:
            return 0
        return sum(self._widths[index] for index in indexes) + _GAP * (len(indexes) - 1) - self._max_width

    def _row_lines(self, row: Sequence[Text], style: str) -> Iterator[Text]:
        """Yields the lines of a row: several if a cell has several lines."""
        from rich.text import Text

        cells = [self._cell_lines(index, row[index]) for index in self._visible]
        for number in range(max(map(len, cells), default=1)):
            line = Text(style=style)
            for index, lines in zip(self._visible, cells, strict=True):
                cell = lines[number] if number < len(lines) else Text()
                padding = " " * (self._widths[index] - cell.cell_len)
                is_right = self._is_right[index]
                line.append(padding if is_right else "").append_text(cell).append("" if is_right else padding)
                line.append(" " * _GAP)
            line.rstrip()
            yield line

    def _cell_lines(self, index: int, cell: Text) -> Sequence[Text]:
        overflow, width = self._columns[index].overflow, self._widths[index]
        if not overflow or ("\n" not in cell.plain and cell.cell_len <= width):
            return [cell]
        return _wrapped(cell, width, overflow)

    def _wrapped(self, text: str, style: str) -> Sequence[Text]:
        from rich.text import Text

        if not text:
            return []
        line = Text(text, style=style)
        return [line] if self._max_width is None else _wrapped(line, self._max_width)

    @cached_property
    def _is_right(self) -> list[bool]:
        rows = self._table.rows
        return [
            column.align == "right" if column.align else _is_numeric([row[index] for row in rows])
            for index, column in enumerate(self._columns)
        ]


def _text(column: Column, cell: object) -> Text:
    """Returns the text of a cell, without control sequences."""
    from rich.text import Text

    if isinstance(cell, Text):
        return cell
    plain = visible_text(cell.text if isinstance(cell, Cell) else column.format(cell))
    style = cell.style if isinstance(cell, Cell) else ""
    text = Text(plain if column.overflow else plain.replace("\n", " "), style=style)
    if column.max_width is not None:
        text.truncate(column.max_width, overflow="ellipsis")
    return text


def _wrapped(text: Text, width: int, overflow: Literal["fold", "ellipsis"] = "fold") -> Sequence[Text]:
    from rich.console import Console

    return [*text.wrap(Console(), width, overflow=overflow, no_wrap=overflow == "ellipsis")]


def _width(text: Text) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.plain.split("\n")))


def _is_numeric(values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) for value in present)
