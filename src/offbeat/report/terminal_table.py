"""The table of a comparison for the terminal."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from offbeat.report.caption import caption
from offbeat.report.summary import SummaryRow
from offbeat.report.table import lines

_LABEL = 20  # characters of a label; a longer one is folded unless its column is wider


class TerminalTable:
    """The table for the terminal, in blocks of columns if it is too wide."""

    def __init__(self, rows: Sequence[SummaryRow]) -> None:
        self._labels = [row.label for row in rows]
        self._groups = lines(rows)
        self._caption = caption(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        number = len(self._labels)
        unlimited = options.update_width(10**6)
        tables: list[Table] = []
        for blocks in range(1, number + 1):
            cuts = [math.ceil(block * number / blocks) for block in range(blocks + 1)]
            tables = [self._table(slice(*ends)) for ends in pairwise(cuts)]
            if all(Measurement.get(console, unlimited, table).maximum <= options.max_width for table in tables):
                break
        else:  # not even one column fits: the names are folded, the values are not
            tables = [self._table(slice(column, column + 1), is_narrow=True) for column in range(number)]
        yield from tables
        yield Text(self._caption, style="table.caption")

    def _table(self, columns: slice, *, is_narrow: bool = False) -> Table:
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("", no_wrap=not is_narrow, overflow="fold")
        for column, label in list(enumerate(self._labels))[columns]:
            widest = max(cell_len(line.cells[column].marked) for group in self._groups for line in group)
            # Text, because rich reads square brackets in a string as markup.
            least = widest if is_narrow else None
            table.add_column(
                Text(label), justify="right", overflow="fold", min_width=least, max_width=max(widest, _LABEL)
            )
        for group in self._groups:
            for line in group:
                table.add_row(Text(line.name), *(cell.marked for cell in line.cells[columns]))
            table.add_section()
        return table
