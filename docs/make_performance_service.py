"""The server's tables of the performance pages, for ``make_performance.py``."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]

_WHAT = {
    "large": "updates of 40 MB",
    "blake3": "the same, BLAKE3",
    "small": "updates of 31 kB",
    "download": "models of 40 MB to clients",
    "nginx": "the same, by nginx",
    "idle": "waiting clients",
    "huge": "one update of 2 GB",
    "memory": "updates",
}


def table(head: str, lines: Iterable[Sequence[str]]) -> str:
    """Return a table, or an empty string if it has no lines."""
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    columns = head.count("|") - 1
    return "\n".join([head, "|" + " --- |" * columns, *body]) if body else ""


def span(spread: Sequence[float]) -> str:
    """Return the lowest and the highest value as text."""
    low, high = spread
    return f"{low:,} … {high:,}"


def rates(rows: Sequence[Row]) -> str:
    """Return the table of updates and downloads per second."""
    return table(
        "| load | clients | TLS | GB/s | per second | × bare server | lowest … highest | × hashing bare server "
        "| × without TLS | server cores | client cores |",
        (
            [
                *_who(row),
                str(row["gb_per_second"]),
                f"{row['updates_per_second']:,}",
                str(row["ratio_to_bare"]),
                span(row["spread"]),
                str(row.get("ratio_to_hashing", "")),
                str(row.get("of_plain", "")),
                str(row["server_cores"]),
                str(row["client_cores"]),
            ]
            for row in _of(rows, "large", "blake3", "small", "download", "nginx")
        ),
    )


def others(rows: Sequence[Row]) -> str:
    """Return the table of waiting clients and of the 2 GB update."""
    return table(
        "| load | clients | TLS | GB/s | × bare server | seconds | % of a core |",
        (
            [
                *_who(row),
                *(str(row.get(name, "")) for name in ("gb_per_second", "ratio_to_bare")),
                f"{1 / row['updates_per_second']:.1f}" if "updates_per_second" in row else "",
                str(row.get("core_percent", "")),
            ]
            for row in _of(rows, "idle", "huge")
        ),
    )


def memory(rows: Sequence[Row]) -> str:
    """Return the table of the server's memory."""
    names = ("server_rss_mib", "server_own_mib", "start_rss_mib", "own_at_start_mib")
    return table(
        "| load | clients | TLS | model | peak | peak, without mapped files | peak at start "
        "| at start, without mapped files |",
        (
            [*_who(row), f"{row['model_mib']:,}", *(f"{row[name]:,}" for name in names)]
            for row in _of(rows, *_WHAT)
            if "server_own_mib" in row
        ),
    )


def flower(rows: Sequence[Row]) -> str:
    """Return the table of Flower's SuperLink."""
    names = ("updates_per_second", "server_rss_mib", "ours_per_second", "times_as_fast")
    return table(
        "| version | state | kind of clients | clients | updates/s | MiB | Offbeat's updates/s | times as fast "
        "| lowest … highest |",
        (
            [
                row["peer"],
                row["state"],
                row["clients"],
                f"{row['connections']:,}",
                *(f"{row[name]:,}" for name in names),
                span(row["spread"]),
            ]
            for row in _of(rows, "flower")
        ),
    )


def aims(rows: Sequence[Row]) -> str:
    """Return the table of aims, and whether they were met."""
    lines: list[list[str]] = []

    def add(aim: str, found: Sequence[Row], value: Callable[[Row], float], met: Callable[[Row], bool]) -> None:
        """Add an aim with its worst row; larger values are better."""
        if found:
            worst = min(found, key=value)
            lines.append([aim, f"{abs(value(worst)):,.10g}", "yes" if met(worst) else "**no**"])

    plain = [row for row in rows if row.get("tls") is False]
    for connections in (8, 32):
        large = [row for row in _of(plain, "large") if row["connections"] == connections]
        aim = f"40 MB updates from {connections} clients: at least 0.5 of the bare server's rate"
        add(aim, large, lambda row: row["ratio_to_bare"], lambda row: row["ratio_to_bare"] >= 0.5)
    for row in _of(rows, "flower"):
        clients = f"{row['connections']} {row['clients']}"
        aim = f"at least 15 times the rate of Flower's SuperLink ({row['state']}, {clients})"
        add(aim, [row], lambda row: row["times_as_fast"], lambda row: row["times_as_fast"] >= 15)
    small = [row for row in _of(plain, "small") if row["connections"] == 64]
    aim = "at least 1,000 updates of 31 kB a second from 64 clients"
    add(aim, small, lambda row: row["updates_per_second"], lambda row: row["updates_per_second"] >= 1000)
    waiting = _of(plain, "idle")
    aim = "less than 5 % of a core for 1,000 waiting clients"
    add(aim, waiting, lambda row: -row["core_percent"], lambda row: row["core_percent"] < 5)
    down = _of(plain, "download")
    aim = "40 MB models to 32 clients: at least 0.8 of the bare server's rate"
    add(aim, down, lambda row: row["ratio_to_bare"], lambda row: row["ratio_to_bare"] >= 0.8)
    many = [row for row in _of(rows, "large", "small", "download", "idle") if "server_rss_mib" in row]
    aim = "at most 450 MB and three models of memory, without mapped files: MiB above that"
    add(aim, many, lambda row: -max(0, _above(row)), lambda row: _above(row) <= 0)
    aim = "a 2 GB update adds less than 100 MiB, without mapped files: MiB added"
    add(aim, _of(rows, "huge"), lambda row: -_growth(row), lambda row: _growth(row) < 100)
    return table("| aim | measured | met |", lines)


BLOCKS: dict[str, Callable[[Sequence[Row]], str]] = {
    "service": rates,
    "service, other": others,
    "service memory": memory,
    "flower": flower,
    "service aims": aims,
}


def _above(row: Row) -> int:
    return round(row["server_own_mib"] - 450e6 / 2**20 - 3 * row["model_mib"])


def _growth(row: Row) -> int:
    return row["server_own_mib"] - row["own_at_start_mib"]


def _who(row: Row) -> list[str]:
    return [_WHAT[row["case"]], f"{row['connections']:,}", "TLS" if row["tls"] else ""]


def _of(rows: Sequence[Row], *cases: str) -> list[Row]:
    return [row for row in rows if row.get("case") in cases]
