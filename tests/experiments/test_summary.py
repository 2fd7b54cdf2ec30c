import io
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from offbeat.errors import OffbeatError
from offbeat.experiments import run_directory, units
from offbeat.experiments.summary import summarise
from offbeat.experiments.table import caption, measures, terminal_table


def a_run(folder: Path, label, seed=0, accuracies=(0.1, 0.5), visits=(), totals=None, real_seconds=2.0, **algorithm):
    """Evaluated each 100 s; ``visits`` are (staleness, outcome)."""
    number = len(accuracies)
    totals = totals or {}
    history = {
        "seconds": [100.0 * i for i in range(number)],
        "version": list(range(number)),
        "accuracy": list(accuracies),
        "loss": [1.0] * number,
    }
    for name in ("counted", "unused", "lost", "bytes_down", "bytes_up"):
        history[name] = [*range(number - 1), totals.get(name, number - 1)][:number]
    events = {
        "client": list(range(len(visits))),
        "visit": [0] * len(visits),
        "version": [0] * len(visits),
        "staleness": [stale for stale, _ in visits],
        "assigned_seconds": [0.0] * len(visits),
        "ended_seconds": [10.0] * len(visits),
        "bytes_down": [4] * len(visits),
        "bytes_up": [4] * len(visits),
        "outcome": [outcome for _, outcome in visits],
    }
    config = {"seeds": [seed], "evaluate": {"target_accuracy": 0.5}, "algorithms": {label: algorithm}}
    path = folder / label / str(seed)
    run_directory.write(
        path,
        config=config,
        history=history,
        events=events,
        model={"w": torch.zeros(1)},
        real_seconds=real_seconds,
    )
    return run_directory.read(path)


def cells(rows):
    return {measure.name: measure.cells for group in measures(rows) for measure in group}


def printed(rows, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(rows))
    return console.file.getvalue()


def test_one_seed(tmp_path):
    visits = [(0, "counted"), (3, "counted"), (6, "counted"), (50, "unused"), (None, "lost")]
    totals = {"counted": 3, "unused": 1, "lost": 1, "bytes_down": 1_240_000, "bytes_up": 999}
    run = a_run(tmp_path, "fedbuff", 0, (0.1, 0.52, 0.4), visits, totals)
    (row,) = summarise([run], 0.5)
    assert (row.label, row.seeds, row.reached, row.baseline) == ("fedbuff", 1, 1, "fedbuff")
    assert (row.final_accuracy.mean, row.best_accuracy.mean) == (0.4, 0.52)
    assert row.final_accuracy.deviation is None
    assert row.seconds_to_target.mean == 100.0
    assert row.speed_up == 1.0
    assert (row.mean_staleness.mean, row.max_staleness) == (3.0, 6)
    assert cells([row]) == {
        "Final accuracy": ("40.0 %",),
        "Best accuracy": ("52.0 %",),
        "Time to 50 %": ("1 min 40 s",),
        "Speed-up": ("×1.0",),
        "Real time": ("2.0 s",),
        "Updates counted": ("3",),
        "Updates unused": ("1",),
        "Updates lost": ("1",),
        "Mean staleness": ("3.0",),
        "Max staleness": ("6",),
        "Sent to clients": ("1.2 MB",),
        "Sent by clients": ("999 B",),
    }
    assert caption([row]) == "Time to 50 %: first evaluation at or above it. Speed-up: over fedbuff."


def test_seeds_are_averaged_with_their_sample_deviation(tmp_path):
    runs = [
        a_run(tmp_path, "a", 0, (0.5, 0.6), [(2, "counted")], {"counted": 10, "bytes_up": 1000}, 1.0),
        a_run(tmp_path, "a", 1, (0.1, 0.8), [(4, "counted"), (6, "counted")], {"counted": 20, "bytes_up": 3000}, 4.0),
    ]
    (row,) = summarise(runs, 0.5)
    # The sample deviation of two numbers is their distance over √2.
    assert row.final_accuracy.mean == pytest.approx(0.7)
    assert row.final_accuracy.deviation == pytest.approx(0.2 / math.sqrt(2))
    assert row.seconds_to_target.mean == 50.0  # 0 s and 100 s
    assert row.mean_staleness.mean == 3.5  # of 2 and 5: each seed weighs the same
    assert row.max_staleness == 6
    written = cells([row])
    assert written["Final accuracy"] == ("70.0 ± 14.1 %",)
    assert written["Updates counted"] == ("15.0 ± 7.1",)
    assert written["Sent by clients"] == ("2.0 ± 1.4 kB",)
    assert written["Real time"] == ("2.5 ± 2.1 s",)
    assert "sample standard deviation over 2 seeds" in caption([row])


def test_the_speed_up_is_over_fedavg(tmp_path):
    runs = [
        a_run(tmp_path, "quick", 0, (0.1, 0.5), algorithm="fedbuff"),
        a_run(tmp_path, "sync", 0, (0.1, 0.2, 0.3, 0.5), algorithm="fedavg"),
        a_run(tmp_path, "fedavg", 0, (0.1, 0.2, 0.5)),
        a_run(tmp_path, "slow", 0, (0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5), algorithm="fedbuff"),
    ]
    rows = summarise(runs, 0.5)
    assert [row.label for row in rows] == ["quick", "sync", "fedavg", "slow"]
    assert {row.baseline for row in rows} == {"fedavg"}  # the label names the algorithm
    assert {row.baseline for row in summarise([*runs[:2], runs[3]], 0.5)} == {"sync"}
    assert cells(summarise([*runs[:2], runs[3]], 0.5))["Speed-up"] == ("×3.0", "×1.0", "×0.50")
    assert {row.baseline for row in summarise([runs[3], runs[0]], 0.5)} == {"slow"}  # no FedAvg: the first


def test_a_target_that_not_every_seed_reaches_has_no_time(tmp_path):
    runs = [
        a_run(tmp_path, "some", 0, (0.1, 0.5)),
        a_run(tmp_path, "some", 1, (0.1, 0.2)),
        a_run(tmp_path, "none", 0, (0.1, 0.2)),
        a_run(tmp_path, "at once", 0, (0.5, 0.5)),
    ]
    rows = summarise(runs, 0.5)
    assert [row.reached for row in rows] == [1, 0, 1]
    assert cells(rows)["Time to 50 %"] == ("– (1 of 2 seeds)", "–", "0.0 s")
    assert cells(rows)["Speed-up"] == ("–", "–", "–")
    assert "over 1 to 2 seeds" in caption(rows)
    slow = a_run(tmp_path, "slow", 0, (0.1, 0.5))
    assert cells(summarise([slow, runs[3]], 0.5))["Speed-up"] == ("×1.0", "–")  # over no time at all


def test_without_a_target_its_lines_are_left_out(tmp_path):
    rows = summarise([a_run(tmp_path, "a")], None)
    assert not any(name.startswith(("Time to", "Speed-up")) for name in cells(rows))
    assert caption(rows) == ""


@pytest.mark.parametrize("visits", [(), [(None, "lost")], [(4, "unused")]])
def test_without_counted_updates_there_is_no_staleness(tmp_path, visits):
    rows = summarise([a_run(tmp_path, "a", visits=visits)], 0.5)
    assert rows[0].mean_staleness is None
    assert cells(rows)["Mean staleness"] == cells(rows)["Max staleness"] == ("–",)


def test_a_staleness_of_zero_is_a_number(tmp_path):
    rows = summarise([a_run(tmp_path, "a", visits=[(0, "counted")])], 0.5)
    assert cells(rows)["Mean staleness"] == ("0.0",)
    assert cells(rows)["Max staleness"] == ("0",)


def test_a_run_without_evaluation_is_one_clear_line(tmp_path):
    with pytest.raises(OffbeatError, match="holds no evaluation"):
        summarise([a_run(tmp_path, "a", accuracies=())], 0.5)


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_table_is_readable(tmp_path, width):
    runs = [a_run(tmp_path, label, seed, (0.1, 0.5 + seed / 10)) for label in ("fedavg", "[red]b") for seed in (0, 1)]
    text = printed(summarise(runs, 0.5), width)
    assert "[red]b" in text  # not taken for markup
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    (line,) = [line for line in text.splitlines() if "Final accuracy" in line]
    assert line.split("  ")[-1].strip() == "55.0 ± 7.1 %"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (2110, "35 min 10 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (4325, "1 h 12 min"),
        (86399, "1 d"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_durations(seconds, text):
    assert units.duration(seconds) == text


def test_a_duration_is_followed_by_its_deviation_in_one_unit():
    assert units.duration(4325, 192) == "72.1 ± 3.2 min"
    assert units.duration(2110, 25) == "35.2 ± 0.4 min"
    assert units.duration(2110, 0.0) == "35 min 10 s"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (960, "960 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (1.24e9, "1.2 GB"), (3e15, "3000.0 TB")],
)
def test_sizes(size, text):
    assert units.size(size) == text


def test_other_units():
    assert units.percent(0.8312) == "83.1 %"
    assert units.percent(0.8312, 0.0041) == "83.1 ± 0.4 %"
    assert units.percent(0.8312, 0.0004) == "83.1 ± 0.0 %"
    assert units.percent(0.8312, 0.0) == "83.1 %"
    assert (units.level(0.8), units.level(0.985)) == ("80 %", "98.5 %")
    assert (units.factor(3.42), units.factor(0.854)) == ("×3.4", "×0.85")
    assert (units.count(12345.0), units.count(12345.0, 61.0)) == ("12,345", "12,345 ± 61")
    assert [units.time_unit(t)[1] for t in (179, 180, 10_800, 345_600)] == ["seconds", "minutes", "hours", "days"]
