"""The tables of performance, from the benchmarks' output.

They are in ``docs/performance.md`` and ``docs/performance-tables.md``; a row of ``README.md`` and
``docs/comparison.md`` is written, too.

``make performance-docs``, or ``python docs/make_performance.py FILE …`` with the output of ``make bench-simulation``,
``make bench-peers``, ``make bench-gpu`` or ``make bench-service``. Tables that the output has no rows for stay as they
are.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from make_performance_service import BLOCKS as SERVICE_BLOCKS
from make_performance_service import span, table

PAGES = [Path(__file__).with_name(name) for name in ("performance.md", "performance-tables.md")]

FRONT_PAGES = [
    Path(__file__).parents[1] / "README.md",
    Path(__file__).with_name("comparison.md"),
]
SPEEDS = "| time to train"
PEERS_IN_FRONT = ("flwr", "nvflare", "appfl", "pfl")

Row = dict[str, Any]


def rows_of(text: str) -> list[Row]:
    """Return the rows in the benchmarks' output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def machine() -> str:
    """Return a line that describes this machine."""
    path = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", path.read_text(), re.MULTILINE) if path.exists() else []
    return (
        f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}."
    )


def trainers(rows: Sequence[Row], workload: str) -> str:
    """Return a workload's table: Offbeat's trainers and what bounds them."""
    own = [row for row in rows if row.get("workload") == workload and "durations" in row and not _is_peer(row)]
    return table(
        "| algorithm | durations | trainer | updates/s | × loop | lowest … highest | MiB |",
        ([row["algorithm"], row["durations"], row["trainer"], *_speed(row)] for row in own),
    )


def peers(rows: Sequence[Row]) -> str:
    """Return the table of the other simulators."""
    return table(
        "| workload | algorithm | durations | trainer | updates/s | × loop | lowest … highest | MiB "
        "| Offbeat, × loop | times as fast | lowest … highest |",
        (
            [
                *(row[name] for name in ("workload", "algorithm", "durations", "trainer")),
                *_speed(row),
                str(row["ours_to_loop"]),
                str(row["times_as_fast"]),
                span(row["times_spread"]),
            ]
            for row in rows
            if _is_peer(row)
        ),
    )


def against_peers(rows: Sequence[Row]) -> str:
    """Return Offbeat beside the fastest other simulator of each algorithm."""
    lines: list[list[str]] = []
    for workload in ("W1", "W2"):
        for algorithm in ("fedavg", "fedbuff", "fedasync"):
            of_it = [row for row in rows if (row.get("workload"), row.get("algorithm")) == (workload, algorithm)]
            others = [row for row in of_it if _is_peer(row)]
            if others:
                best = min(others, key=lambda row: row["times_as_fast"])
                ours, theirs = (str(best[name]) for name in ("ours_to_loop", "ratio_to_loop"))
                lines.append([workload, algorithm, ours, best["trainer"], theirs, str(best["times_as_fast"])])
    return table("| workload | algorithm | Offbeat, × loop | best other simulator | × loop | times as fast |", lines)


def outcomes(rows: Sequence[Row]) -> str:
    """Return the table of other programs' models beside Offbeat's."""
    return table(
        "| version | algorithm | settings | distance | updates lost |",
        (
            [row["outcome"], row["algorithm"], row["settings"], f"{row['distance']:.1g}", f"{100 * row['lost']:.0f} %"]
            for row in rows
            if "outcome" in row
        ),
    )


def on_gpu(rows: Sequence[Row]) -> str:
    """Return the table of trainers on a GPU, each relative to a plain loop on it."""
    return table(
        "| card | workload | trainer | updates/s | × loop | lowest … highest | MiB on the GPU | vectors, MiB |",
        (
            [row["card"], row["workload"], row["trainer"], f"{row['updates_per_second']:,}"]
            + [str(row["ratio_to_loop"]), span(row["spread"])]
            + [f"{row[name]:,}" if name in row else "" for name in ("memory_mib", "vectors_mib")]
            for row in rows
            if "card" in row
        ),
    )


def events(rows: Sequence[Row]) -> str:
    """Return the table of the event loop."""
    names = ("clients", "in_flight", "updates_per_second")
    return table(
        "| clients | working | visits/s | lowest … highest | start, s | MiB |",
        (
            [*(f"{row[name]:,}" for name in names), span(row["spread"]), str(row["start_seconds"]), _whole(row)]
            for row in rows
            if "in_flight" in row
        ),
    )


def sizes(rows: Sequence[Row]) -> str:
    """Return the table of model sizes."""
    return table(
        "| parameters | trainer | ms per version | × minimum | model, MiB | memory, MiB |",
        (
            [
                f"{row['parameters']:,}",
                row["trainer"],
                f"{1000 * row['seconds_a_version']:.2f}",
                str(row["ratio_to_least"]),
                str(row["model_mib"]),
                _whole(row),
            ]
            for row in rows
            if "parameters" in row
        ),
    )


BLOCKS: dict[str, Callable[[Sequence[Row]], str]] = {
    "machine": lambda rows: machine() if any("workload" in row and "card" not in row for row in rows) else "",
    "W1": lambda rows: trainers(rows, "W1"),
    "W2": lambda rows: trainers(rows, "W2"),
    "peers": peers,
    "against peers": against_peers,
    "outcomes": outcomes,
    "gpu": on_gpu,
    "events": events,
    "sizes": sizes,
    "service machine": lambda rows: machine() if any("case" in row for row in rows) else "",
    **SERVICE_BLOCKS,
}


def page(text: str, rows: Sequence[Row]) -> str:
    """Return the page with new tables; a table without measurements stays as it is."""
    for name, make in BLOCKS.items():
        block = make(rows)
        if block:
            place = re.compile(rf"(<!-- {name}: written by make [a-z-]+ -->\n).*?(<!-- to here -->)", re.DOTALL)
            text = place.sub(lambda found, block=block: f"{found[1]}\n{block}\n\n{found[2]}", text)
    return text


def front_page(text: str, rows: Sequence[Row]) -> str:
    """Return the page with new numbers in the row of speeds."""
    times = {
        row["trainer"].split()[0]: row["times_as_fast"]
        for row in rows
        if _is_peer(row) and (row["workload"], row["algorithm"]) == ("W1", "fedavg")
    }
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith(SPEEDS):
            cells = line.split(" | ")
            for column, name in enumerate(PEERS_IN_FRONT, start=2):
                if name in times:
                    cells[column] = re.sub(r"\d[\d.,]*", str(times[name]), cells[column], count=1)
            lines[number] = " | ".join(cells)
    return "".join(lines)


def _is_peer(row: Row) -> bool:
    return row.get("workload") in ("W1", "W2") and " " in row["trainer"]


def _speed(row: Row) -> list[str]:
    return [f"{row['updates_per_second']:,}", str(row["ratio_to_loop"]), span(row["spread"]), _whole(row)]


def _whole(row: Row) -> str:
    return f"{row['peak_rss_mib']:,}"


def main() -> None:
    """Write all pages."""
    rows = rows_of("\n".join(Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]))
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8"), rows), encoding="utf-8")
    for path in FRONT_PAGES:
        path.write_text(front_page(path.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
