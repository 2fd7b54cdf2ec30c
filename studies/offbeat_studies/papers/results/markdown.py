"""Parts of Markdown pages."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and an empty one."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return [first, f"|{'---|' * len(header)}", *others, ""]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return lines that are shown after a click; none without lines."""
    return [f'<details markdown="1"><summary>{summary}</summary>', "", *lines, "</details>", ""] if lines else []
