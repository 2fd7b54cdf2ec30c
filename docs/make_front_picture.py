"""Make the picture of the front page from the runs of ``experiments/nights.toml``, and print its numbers.

``make front-picture`` runs the experiment first. There is a picture for light pages and one for dark ones.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from offbeat.config import experiment_file
from offbeat.data.catalogue import load_dataset
from offbeat.report.collect import collect
from offbeat.report.finding import finding
from offbeat.report.plot_style import STYLE, line_styles
from offbeat.report.scales import EndScale, TimeScale
from offbeat.report.summary import SummaryRow, summarise
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from offbeat.statistics.all_pairs import all_pairs
from offbeat.statistics.estimates import estimate
from offbeat.worlds.population import build_population

ROOT = Path(__file__).parents[1]
EXPERIMENT = experiment_file.load(ROOT / "experiments/nights.toml")
HOUR = 3600.0
HOURS = 48
TARGET = 90  # percent, as in the experiment
NAMES = {"fedavg": "FedAvg", "fedasync": "FedAsync", "fedbuff": "FedBuff"}


@dataclass(frozen=True)
class Paper:
    """The colours of a page."""

    ink: str
    quiet: str
    rule: str
    is_dark: bool = False


PAPERS = {"nights": Paper("#1d2126", "#5b636d", "#d9dde2"), "nights-dark": Paper("#e8eaed", "#a3abb5", "#3a4048", True)}


def print_numbers(rows: Sequence[SummaryRow]) -> None:
    """Print the finding, all pairs with their simultaneous intervals, and the costs."""
    print(finding(rows, None).partition(" Not tuned:")[0])  # they are, see the experiment's file
    for scale in (TimeScale(), EndScale()):
        for pair in all_pairs({row.label: scale.values(row) for row in rows}):
            pair = pair if pair.mean is None or pair.mean < 0 else pair.reversed()  # the better one first
            amount, interval = scale.amount(pair, rows[0]), scale.interval(pair, rows[0])
            print(f"{pair.first} {amount} {pair.second} ({interval}){'' if pair.is_separated else ': not separated'}")
    for row in rows:
        assert row.seconds_to_target is not None
        assert row.bytes_to_target is not None
        hours, megabytes = row.seconds_to_target.mean / HOUR, row.bytes_to_target.mean / 1e6
        print(f"{row.label}: {hours:.1f} h and {megabytes:.1f} MB to the target")


def available(seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return quarters of hours, and the mean share of clients that are available in each."""
    hours = np.arange(0, HOURS + 0.25, 0.25)
    data = load_dataset(EXPERIMENT.data.name)
    clients = range(EXPERIMENT.population.clients)
    shares = np.zeros(len(hours))
    for seed in seeds:
        availability = build_population(EXPERIMENT.population, data, seed).devices.availability
        for place, hour in enumerate(hours):
            now = hour * HOUR
            shares[place] += np.mean([availability.next_available(client, now) <= now for client in clients])
    return hours, shares / len(seeds)


def draw_accuracy(axes: Axes, runs: Sequence[Run], rows: Sequence[SummaryRow], paper: Paper) -> None:
    """Draw the means over the seeds, with their 95 % confidence intervals, and name the times to the target."""
    styles, groups = line_styles(runs), by_label(runs)
    seconds = {row.label: row.seconds_to_target.mean for row in rows if row.seconds_to_target}
    for place, label in enumerate(sorted(seconds, key=lambda label: seconds[label])):
        colour = styles[label].dark_colour if paper.is_dark else styles[label].colour
        curves = np.array([run.history["accuracy"] for run in groups[label]])
        estimates = [estimate(100 * column) for column in curves.T]
        mean = np.array([one.mean for one in estimates])
        half = np.array([one.half_width for one in estimates])
        hours = np.asarray(groups[label][0].history["seconds"]) / HOUR
        axes.fill_between(hours, mean - half, np.minimum(mean + half, 100), color=colour, alpha=0.2, lw=0)
        axes.plot(hours, mean, color=colour, lw=1.8)
        text = f"{NAMES[label]}: {TARGET:.0f} % after {seconds[label] / HOUR:.1f} h"
        axes.text(HOURS - 0.5, 70 - 7 * place, text, color=colour, ha="right", fontsize=10, fontweight="bold")
    axes.axhline(TARGET, color=paper.quiet, lw=0.8, ls=(0, (2, 3)))
    axes.set_ylim(50, 100)
    axes.set_yticks(range(50, 101, 10), [f"{value} %" for value in range(50, 101, 10)])
    axes.set_ylabel("test accuracy")


def draw(runs: Sequence[Run], rows: Sequence[SummaryRow], paper: Paper) -> Figure:
    """Return the figure: accuracies, and below them the share of the clients that are available."""
    figure = Figure(figsize=(6.2, 3.9), layout="constrained", facecolor="none")
    above, below = figure.subplots(2, sharex=True, height_ratios=(5, 1))
    draw_accuracy(above, runs, rows, paper)
    hours, shares = available(EXPERIMENT.seeds)
    below.fill_between(hours, 0, 100 * shares, color=paper.quiet, lw=0)
    below.set_ylim(0, 100)
    below.set_yticks((100,), ("100 %",))
    below.set_ylabel("available\nphones")
    below.set_xlim(0, HOURS)
    below.set_xticks(range(0, HOURS + 1, 12), ["midnight", "noon"] * (HOURS // 24) + ["midnight"])
    for axes in (above, below):
        axes.fill_between(hours, 0, 1, where=shares == 0, transform=axes.get_xaxis_transform(), color=paper.rule, lw=0)
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(paper.rule)
        axes.tick_params(length=0, labelcolor=paper.ink)
        axes.yaxis.label.set_color(paper.ink)
    return figure


def main() -> None:
    """Draw both pictures into ``docs/images``, or into the folder that is given."""
    runs = collect([ROOT / "runs/nights"])
    rows = summarise(runs)
    print_numbers(rows)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images"
    for name, paper in PAPERS.items():
        with rc_context({**STYLE, "svg.hashsalt": name}):
            draw(runs, rows, paper).savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
