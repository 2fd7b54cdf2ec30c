"""Export of a comparison to CSV and Markdown."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from offbeat.client_metrics import column
from offbeat.report.caption import caption
from offbeat.report.summary import TAIL, SummaryRow
from offbeat.report.table import lines
from offbeat.runs.directory import Run, disk_errors
from offbeat.statistics.estimates import Estimate

OTHER_FOLDER = "free some space or choose another folder"
_SUMMARY = ("label", "measure", "mean", "sd", "ci_low", "ci_high", "seeds")


def write_csv(rows: Sequence[SummaryRow], runs: Sequence[Run], folder: Path) -> tuple[Path, Path]:
    """Write ``folder/summary.csv`` and ``folder/history.csv``.

    Both are in UTF-8, with a header and full precision.

    ``summary.csv`` has a line for each label and measure: ``label``, ``measure``, ``mean``, ``sd`` (the sample standard
    deviation), ``ci_low`` and ``ci_high`` (the 95 % confidence interval of the mean), ``seeds``. Times are in seconds,
    traffic is in bytes, shares are from 0 to 1. ``max_staleness`` is the maximum over all seeds. Unknown values, such
    as the deviation of one seed, are empty.

    ``history.csv`` has a line for each evaluation: ``label``, ``seed``, and the columns of ``history.parquet``.
    """
    summary, history = folder / "summary.csv", folder / "history.csv"
    write_file(summary, csv_bytes([_SUMMARY, *(line for row in rows for line in _estimates(row))]))
    # Experiments may have different metrics.
    columns = list(dict.fromkeys(column for run in runs for column in run.history))
    write_file(
        history, csv_bytes([("label", "seed", *columns), *(line for run in runs for line in _history(run, columns))])
    )
    return summary, history


def write_markdown(rows: Sequence[SummaryRow], path: Path) -> Path:
    """Write the terminal's table and its caption in GitHub's Markdown."""
    table = [
        _markdown_line(["", *(row.label for row in rows)]),
        "|:--|" + "--:|" * len(rows),
        *(
            _markdown_line([line.name, *(cell.marked for cell in line.cells)])
            for group in lines(rows)
            for line in group
        ),
    ]
    # Markdown joins lines without an empty line between them.
    text = "\n\n".join(["\n".join(table), *(_escape(line) for line in caption(rows).splitlines())])
    return write_file(path, f"{text}\n".encode())


def write_file(path: Path, content: bytes) -> Path:
    """Write a file atomically; make its folder if it does not exist."""
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(str(path), OTHER_FOLDER):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def csv_bytes(table: Iterable[Sequence[object]]) -> bytes:
    """Return the content of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue().encode()


def _estimates(row: SummaryRow) -> Iterator[tuple[object, ...]]:
    main = row.measure
    estimates = {
        **{f"final_{measure.name}": estimate for measure, estimate in row.final.items()},
        f"best_{main.name}": row.best,
        f"mean_of_last_{TAIL}_{main.name}": row.tail,
        **{f"final_{column(main.name, name)}": estimate for name, estimate in row.clients.items()},
        "reached_target": None if row.target is None else _alone(row, row.reached),
        "median_seconds_to_target": None if row.target is None else _alone(row, row.median_to_target),
        "seconds_to_target": row.seconds_to_target,
        "updates_to_target": row.updates_to_target,
        "bytes_to_target": row.bytes_to_target,
        "real_seconds": row.real_seconds,
        "versions": row.versions,
        "counted": row.counted,
        "unused": row.unused,
        "lost": row.lost,
        "mean_staleness": row.mean_staleness,
        "max_staleness": _alone(row, row.max_staleness),
        "waiting_share": row.waiting_share,
        "clients_never_counted": row.never_counted,
        "displacement_per_update": row.displacement,
        "bytes_down": row.bytes_down,
        "bytes_up": row.bytes_up,
    }
    for name, estimate in estimates.items():
        yield from _line(row, name, estimate)
    for name, paired in (("speed_up", row.speed_up), (f"difference_of_final_{main.name}", row.difference)):
        if paired is not None:
            ends = ("" if end is None else end for end in (paired.low, paired.high))
            yield row.label, name, paired.mean, "", *ends, paired.seeds


def _alone(row: SummaryRow, value: float | None) -> Estimate | None:
    """Return a number over all seeds, which has no interval."""
    return None if value is None else Estimate(value, None, None, row.seeds)


def _line(row: SummaryRow, name: str, estimate: Estimate | None) -> Iterator[tuple[object, ...]]:
    if estimate is not None:
        deviation = "" if estimate.deviation is None else estimate.deviation
        yield row.label, name, estimate.mean, deviation, *(estimate.interval or ("", "")), estimate.seeds


def _history(run: Run, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    number = len(run.history["seconds"])
    values = [run.history[name].tolist() if name in run.history else [""] * number for name in columns]
    for line in zip(*values, strict=True):
        yield run.label, run.seed, *line


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, in one line."""
    return re.sub(r"([\\`*_\[\]<>|#~$])", r"\\\1", " ".join(text.split()))
