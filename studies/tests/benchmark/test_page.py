"""The page ``docs/results/what_to_use.md`` is that of the benchmark's data."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from offbeat_studies.benchmark import page
from offbeat_studies.benchmark.chart import chart
from offbeat_studies.benchmark.raw_data import SCHEMA, WorldData, published
from offbeat_studies.benchmark.world import read_world, world_names

ROOT = Path(__file__).parents[3]
SEEDS = range(1, 11)
NOISE = np.random.default_rng(3).normal(0, 0.01, (3, 10))


def data(**levels):
    """Return data in which each algorithm stays at an accuracy, with noise, after 4 s."""
    rows = []
    for place, (label, level) in enumerate(levels.items()):
        for seed in SEEDS:
            values = [0.1, *[level + NOISE[place, seed - 1]] * 40]
            for step, accuracy in enumerate(values):
                costs = 4.0 * step, 40.0 * step, 4_000_000 * step
                rows.append(("silo", label, seed, *costs, step, 0, 0, step, accuracy, 1.0))
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    settings = (
        {"cohort": 4, "over_selection": 1.3, "local.lr": 0.1},
        {"concurrency": 8, "local.lr": 0.02},
        {"local.lr": 0.1},
    )
    space = {"cohort": "4,8", "concurrency": "4,8", "local.lr": "0.01:0.5:log"}
    facts = {
        label: {
            "settings": chosen,
            "space": space,
            "trials": [(0.5, {**chosen, "local.lr": lr}) for lr in (0.02, 0.1, 0.4)],
            "processor_seconds": 1.25,
        }
        for label, chosen in zip(levels, settings, strict=False)
    }
    return WorldData(table, facts)


def page_of(worlds):
    return page.page(worlds, page.compare_all(worlds))


def test_page_and_numbers_are_those_of_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "chart", lambda comparison: comparison)  # another test draws one
    monkeypatch.setattr(page, "png", lambda comparison, dpi: b"")
    (tmp_path / "results").mkdir()
    (tmp_path / "images").mkdir()
    page.write(tmp_path)
    for path in (page.PAGE, page.NUMBERS):
        made = (tmp_path / path.relative_to(ROOT / "docs")).read_bytes()
        assert made == path.read_bytes(), "run `make benchmark-docs`"
    charts = {path.name for path in (ROOT / "docs" / "images").glob("benchmark-*.png")}
    assert charts == {path.name for path in (tmp_path / "images").iterdir()}


def test_worlds_without_tuning_were_run_with_the_settings_that_are_published():
    taken_over = [world for world in map(read_world, world_names()) if world.settings_of is not None]
    assert [world.name for world in taken_over] == ["cifar10-diurnal", "cifar10-longtail", "sst2-longtail"]
    for world in taken_over:
        found = {label: fact["settings"] for label, fact in published(world.name).facts.items()}
        assert found == {label: world.settings[label] for label in found}, f"run {world.name} again"
        assert len(found) == 6


def test_the_page_names_what_is_clear():
    world = read_world("silo")
    text = page_of({"silo": (world, data(fedavg=0.7, fedbuff=0.9, ace=0.901)), "calm": (world, None)})
    row = next(line for line in text.splitlines() if line.startswith("| virtual time"))
    best, near, over, target = (cell.strip() for cell in row.strip("|").split("|")[1:])
    assert best.startswith("ace, 90.")
    assert near == "fedbuff"
    assert over.startswith("+2")
    assert over.endswith(" points")
    assert target.startswith("≤ × 0.0")  # at 4 s instead of beyond 120 s
    assert re.search(
        r"\| \[silo\]\(#silo\) \| \*\*ace\*\*, \+2\d\.\d \[[^|]*points; 1 other \|",
        text,
    )
    assert re.search(
        r"^- \[silo\]\(#silo\) \(eight .*\), use \*\*ace\*\*; 1 other may be as good\.$", text, re.MULTILINE
    )
    assert "FedAvg makes 40 rounds of up to 4 clients in the median run, and reaches 80 % in 0 of 10 runs.\n" in text
    # All eight clients at work are the most that there are.
    assert "so other values may be better: fedavg (cohort 4), fedbuff (local.lr 0.02).\n" in text
    assert re.search(r"## Clients at work\n.*?\n\| fedavg \| 6 \|\n\| fedbuff \| 8 \|", text, re.DOTALL)
    assert "Not run in this world yet: fedsgd, fedprox, " in text
    assert "- **calm**: " in text
    assert "`offbeat benchmark --world calm` runs them." in text
    assert "| ace | 1.2 |" in text


def test_the_page_names_who_is_worse_than_fedavg():
    text = page_of({"silo": (read_world("silo"), data(fedavg=0.9, fedbuff=0.5, ace=0.95))})
    assert re.search(r"^Clearly less accurate than FedAvg at equal virtual time: fedbuff \(-4\d", text, re.MULTILINE)


def test_a_difference_that_the_runs_do_not_tell_is_not_named():
    text = page_of({"silo": (read_world("silo"), data(fedavg=0.9, fedbuff=0.902))})
    rows = [line for line in text.splitlines() if line.startswith(("| virtual time", "| client time", "| bytes"))]
    assert len(rows) == 3
    (choice,) = (line for line in text.splitlines() if line.startswith("| [silo](#silo)"))
    assert choice.endswith("| none | none | none |")
    assert re.search(r"^- \[silo\]\(#silo\) .*, stay with \*\*FedAvg\*\*", text, re.MULTILINE)
    for row in rows:
        assert "points" not in row
        assert "×" not in row
    assert "No algorithm reaches 80 % in clearly less virtual time than FedAvg." in text


def test_effects_stand_beside_those_of_the_world_that_the_settings_are_from():
    tuned, other = data(fedavg=0.7, fedbuff=0.9, ace=0.7), data(fedavg=0.7, fedbuff=0.3, ace=0.7)
    worlds = {"cifar10-longtail": (read_world("cifar10-longtail"), other), "longtail": (read_world("longtail"), tuned)}
    text = page_of(worlds)
    assert "here and where the settings were chosen, in `longtail`; bold if clear:\n" in text
    cells = r"\*\*-4\d\.\d \[.*\] points\*\* \| \*\*\+2\d\.\d \[.*\] points\*\*"
    assert re.search(rf"^\| fedbuff \| {cells} \|$", text, re.MULTILINE)
    assert re.search(r"^\| ace \| [+-]0\.\d \[.*\] points \| [+-]0\.\d \[.*\] points \|$", text, re.MULTILINE)
    del worlds["longtail"]
    assert "where the settings were chosen" not in page_of(worlds)


def test_the_same_data_give_the_same_chart():
    from offbeat.report.plot_style import png
    from offbeat_studies.benchmark.effects import compare

    world = dataclasses.replace(read_world("silo"))
    comparison = compare(world, data(fedavg=0.7, fedbuff=0.9).curves)
    assert png(chart(comparison)) == png(chart(comparison))
