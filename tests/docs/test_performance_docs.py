"""docs/performance.md and docs/performance-tables.md are written from what the benchmarks print."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/performance.md", ROOT / "docs/performance-tables.md"]
PAGE = "".join(page.read_text(encoding="utf-8") for page in PAGES)

SPEED = {"updates_per_second": 1234.5, "ratio_to_loop": 6.0, "spread": [5.5, 6.5], "peak_rss_mib": 1500}
W1 = {"workload": "W1", "algorithm": "fedavg", "durations": "uniform"}
ROWS = [
    {**W1, "trainer": "offbeat-vmap", **SPEED},
    {**W1, "durations": "-", "trainer": "pfl 0.6.0", **SPEED, "ratio_to_loop": 0.75}
    | {"ours_to_loop": 6.5, "times_as_fast": 8.5, "times_spread": [8.0, 9.0]},
    {**W1, "durations": "-", "trainer": "flgo 0.4", **SPEED, "ratio_to_loop": 0.5}
    | {"ours_to_loop": 6.0, "times_as_fast": 12.0, "times_spread": [11.5, 12.5]},
    {"outcome": "appfl 1.2", "algorithm": "fedbuff", "settings": "K = 5", "distance": 1.26e-07, "lost": 0.345},
    {"workload": "events", "trainer": "null", "clients": 10**6, "in_flight": 100, "updates_per_second": 30000}
    | {"spread": [29000, 31000], "start_seconds": 0.9, "peak_rss_mib": 400},
    {"workload": "model size", "trainer": "loop", "parameters": 10**7, "seconds_a_version": 0.5}
    | {"ratio_to_least": 1.25, "model_mib": 38.1, "peak_rss_mib": 1700, "spread": [0.4, 0.6]},
]
GPU_ROW = {"card": "H100", "workload": "W1", "trainer": "vmap", "updates_per_second": 90000.5, "ratio_to_loop": 61.0}
GPU_ROW |= {"spread": [60.0, 62.5], "memory_mib": 130.5, "vectors_mib": 122.7}
MEMORY = {"server_rss_mib": 1500, "server_own_mib": 1400, "start_rss_mib": 1300, "own_at_start_mib": 1350}
LARGE = {"case": "large", "connections": 8, "tls": False, "gb_per_second": 0.5, "updates_per_second": 12.5}
LARGE |= {"ratio_to_bare": 0.45, "spread": [0.4, 0.5], "model_mib": 38.15, **MEMORY}
LARGE |= {"server_cores": 1.0, "client_cores": 0.1, "ratio_to_hashing": 0.7}
SERVICE_ROWS = [
    LARGE,
    {**LARGE, "tls": True, "ratio_to_bare": 0.75, "of_plain": 0.8},
    {"case": "idle", "connections": 1000, "tls": False, "core_percent": 0.4, "model_mib": 0.03, **MEMORY},
    {"case": "huge", "connections": 1, "tls": False, "gb_per_second": 0.4, "updates_per_second": 0.2}
    | {"ratio_to_bare": 0.6, "model_mib": 1907.0, **MEMORY},
    {"case": "flower", "connections": 8, "tls": False, "peer": "flwr 1.2", "state": "SQLite", "clients": "SuperNodes"}
    | {"updates_per_second": 0.5, "server_rss_mib": 1100, "ours_per_second": 10.0, "times_as_fast": 20.0}
    | {"spread": [18.0, 22.0]},
]


@pytest.fixture(scope="module")
def make_performance():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")  # as for a script that is run
        spec = importlib.util.spec_from_file_location("make_performance", ROOT / "docs/make_performance.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("W1", ["| fedavg | uniform | offbeat-vmap | 1,234.5 | 6.0 | 5.5 … 6.5 | 1,500 |"]),
        ("W2", []),
        (
            "peers",
            [
                "| W1 | fedavg | - | pfl 0.6.0 | 1,234.5 | 0.75 | 5.5 … 6.5 | 1,500 | 6.5 | 8.5 | 8.0 … 9.0 |",
                "| W1 | fedavg | - | flgo 0.4 | 1,234.5 | 0.5 | 5.5 … 6.5 | 1,500 | 6.0 | 12.0 | 11.5 … 12.5 |",
            ],
        ),
        ("against peers", ["| W1 | fedavg | 6.5 | pfl 0.6.0 | 0.75 | 8.5 |"]),
        ("outcomes", ["| appfl 1.2 | fedbuff | K = 5 | 1e-07 | 34 % |"]),
        ("events", ["| 1,000,000 | 100 | 30,000 | 29,000 … 31,000 | 0.9 | 400 |"]),
        ("sizes", ["| 10,000,000 | loop | 500.00 | 1.25 | 38.1 | 1,700 |"]),
    ],
)
def test_each_table_has_its_rows(make_performance, block, expected):
    assert make_performance.BLOCKS[block](ROWS).splitlines()[2:] == expected


def test_rows_of_a_gpu_are_in_their_own_table_only(make_performance):
    assert make_performance.BLOCKS["gpu"]([GPU_ROW]).splitlines()[2:] == [
        "| H100 | W1 | vmap | 90,000.5 | 61.0 | 60.0 … 62.5 | 130.5 | 122.7 |"
    ]
    others = [row for name, block in make_performance.BLOCKS.items() if name != "gpu" for row in block([GPU_ROW])]
    assert not others
    assert make_performance.BLOCKS["gpu"](ROWS) == ""


@pytest.mark.parametrize(
    ("block", "first"),
    [
        ("service", "| updates of 40 MB | 8 |  | 0.5 | 12.5 | 0.45 | 0.4 … 0.5 | 0.7 |  | 1.0 | 0.1 |"),
        ("service, other", "| waiting clients | 1,000 |  |  |  |  | 0.4 |"),
        ("service memory", "| updates of 40 MB | 8 |  | 38.15 | 1,500 | 1,400 | 1,300 | 1,350 |"),
        ("flower", "| flwr 1.2 | SQLite | SuperNodes | 8 | 0.5 | 1,100 | 10.0 | 20.0 | 18.0 … 22.0 |"),
        ("service aims", "| 40 MB updates from 8 clients: at least 0.5 of the bare server's rate | 0.45 | **no** |"),
    ],
)
def test_each_table_of_the_server_has_its_rows(make_performance, block, first):
    assert make_performance.BLOCKS[block](SERVICE_ROWS).splitlines()[2] == first
    assert make_performance.BLOCKS[block](ROWS) == ""


def test_every_aim_of_the_server_is_judged(make_performance):
    rows = make_performance.BLOCKS["service aims"](SERVICE_ROWS).splitlines()[2:]
    assert [row.split(" | ")[1:] for row in rows] == [
        ["0.45", "**no** |"], ["20", "yes |"], ["0.4", "yes |"], ["971", "**no** |"], ["50", "yes |"],
    ]  # fmt: skip


def test_the_machine_is_named_where_it_was_measured(make_performance):
    assert make_performance.BLOCKS["machine"](SERVICE_ROWS) == ""
    assert make_performance.BLOCKS["service machine"](ROWS) == ""
    assert make_performance.BLOCKS["service machine"](SERVICE_ROWS) == make_performance.machine()


def test_only_what_was_measured_is_written_anew(make_performance):
    output = "\n".join(["python benchmarks", *map(json.dumps, ROWS), "| a | table |"])
    fresh = make_performance.page(PAGE, make_performance.rows_of(output))
    assert "| 1,000,000 | 100 | 30,000 |" in fresh
    assert make_performance.page(fresh, ROWS) == fresh
    w2 = re.compile(r"<!-- W2: .*?to here -->", re.DOTALL)
    assert w2.search(fresh)[0] == w2.search(PAGE)[0]


def test_the_page_has_a_place_for_every_table_and_none_is_empty(make_performance):
    for block in make_performance.BLOCKS:
        found = re.search(rf"<!-- {block}: written by (make [a-z-]+) -->\n(.*?)<!-- to here -->", PAGE, re.DOTALL)
        assert found, block
        assert found[2].strip(), f"{block}: run `{found[1]}`"


def test_the_front_pages_have_the_speed_beside_each_simulator(make_performance):
    line = f"{make_performance.SPEEDS} | 1 | [2.0](p) | 3.0 | [4,000.0](p) | 5.0 |\n"
    appfl = {**ROWS[1], "trainer": "appfl 1.12.0", "times_as_fast": 33.5}
    assert make_performance.front_page(f"a\n{line}b", [*ROWS, appfl]) == (
        f"a\n{make_performance.SPEEDS} | 1 | [2.0](p) | 3.0 | [33.5](p) | 8.5 |\nb"
    )
    for page in make_performance.FRONT_PAGES:
        text = page.read_text(encoding="utf-8")
        assert make_performance.front_page(text, [appfl]) != text
