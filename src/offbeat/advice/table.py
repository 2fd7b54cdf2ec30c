"""Table of the algorithms' schedules, for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.advice.schedule_facts import MOST_VISITS, ScheduleFacts
from offbeat.report.table import NOTHING

_COLUMNS = ("time", "versions", "staleness", "largest", "wait", "bytes", "lost", "never count")


def facts_table(facts: Sequence[ScheduleFacts], own: frozenset[str]) -> Table:
    """Return a row for each algorithm that can run; ``own`` are the file's labels."""
    cut = any(not one.is_whole for one in facts)
    note = f" ≈: from the first {MOST_VISITS:,} visits." if cut else ""
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        caption=Text(
            "Without training. Staleness: mean of counted updates. Wait: share of the time in which clients are "
            "available or work. Never count: clients without a counted update. *: not in the file, at settings to "
            f"start from.{note}"
        ),
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for one in facts:
        if not one.problem:
            # Text, because rich reads square brackets in a string as markup.
            table.add_row(Text(one.label if one.label in own else f"{one.label} *"), *_cells(one))
    return table


def _cells(one: ScheduleFacts) -> list[str]:
    about = "" if one.is_whole else "≈ "
    return [
        units.duration(one.seconds * one.scale),
        f"{about}{one.at_end(one.versions):,}",
        NOTHING if one.mean_staleness is None else units.decimal(one.mean_staleness),
        NOTHING if one.max_staleness is None else f"{one.max_staleness:,}",
        NOTHING if one.waiting_share is None else units.percent(one.waiting_share),
        f"{about}{units.size(one.at_end(one.bytes_moved))}",
        f"{about}{one.at_end(one.lost):,}",
        f"{'' if one.is_whole else '≤ '}{one.never_counted:,} of {one.clients:,}",
    ]
