"""docs/performance.md is written from what the benchmarks print."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/performance.md").read_text(encoding="utf-8")

SPEED = {"updates_per_second": 1234.5, "ratio_to_loop": 6.0, "spread": [5.5, 6.5], "peak_rss_mib": 1500}
W1 = {"workload": "W1", "algorithm": "fedavg", "durations": "uniform"}
ROWS = [
    {**W1, "trainer": "offbeat-vmap", **SPEED},
    {**W1, "durations": "-", "trainer": "pfl 0.6.0", **SPEED, "ratio_to_loop": 0.75},
    {**W1, "durations": "-", "trainer": "flgo 0.4", **SPEED, "ratio_to_loop": 0.5},
    {"workload": "events", "trainer": "null", "clients": 10**6, "in_flight": 100, "updates_per_second": 30000}
    | {"spread": [29000, 31000], "start_seconds": 0.9, "peak_rss_mib": 400},
    {"workload": "model size", "trainer": "loop", "parameters": 10**7, "seconds_a_version": 0.5}
    | {"ratio_to_least": 1.25, "model_mib": 38.1, "peak_rss_mib": 1700, "spread": [0.4, 0.6]},
]


@pytest.fixture(scope="module")
def make_performance():
    spec = importlib.util.spec_from_file_location("make_performance", ROOT / "docs/make_performance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_found_among_whatever_else_was_printed(make_performance):
    output = "\n".join(["python benchmarks", *map(json.dumps, ROWS), "| a | table |"])
    assert make_performance.rows_of(output) == ROWS


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("W1", ["| fedavg | uniform | offbeat-vmap | 1,234.5 | 6.0 | 5.5 … 6.5 | 1,500 |"]),
        ("W2", []),
        (
            "peers",
            [
                "| W1 | fedavg | - | pfl 0.6.0 | 1,234.5 | 0.75 | 5.5 … 6.5 | 1,500 |",
                "| W1 | fedavg | - | flgo 0.4 | 1,234.5 | 0.5 | 5.5 … 6.5 | 1,500 |",
            ],
        ),
        ("against peers", ["| W1 | fedavg | 6.0 | pfl 0.6.0 | 0.75 | 8.0 |"]),
        ("events", ["| 1,000,000 | 100 | 30,000 | 29,000 … 31,000 | 0.9 | 400 |"]),
        ("sizes", ["| 10,000,000 | loop | 500.00 | 1.25 | 38.1 | 1,700 |"]),
    ],
)
def test_each_table_has_its_rows(make_performance, block, expected):
    assert make_performance.BLOCKS[block](ROWS).splitlines()[2:] == expected


def test_only_what_was_measured_is_written_anew(make_performance):
    fresh = make_performance.page(PAGE, ROWS)
    assert "| 1,000,000 | 100 | 30,000 |" in fresh
    assert make_performance.page(fresh, ROWS) == fresh
    w2 = re.compile(r"<!-- W2: .*?to here -->", re.DOTALL)
    assert w2.search(fresh)[0] == w2.search(PAGE)[0]


def test_the_page_has_a_place_for_every_table_and_none_is_empty(make_performance):
    for block in make_performance.BLOCKS:
        found = re.search(
            rf"<!-- {block}: written by make performance-docs -->\n(.*?)<!-- to here -->", PAGE, re.DOTALL
        )
        assert found, block
        assert found[1].strip(), f"{block}: run `make performance-docs`"
