"""Command ``sweep``."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbeat.cli.options import ALGORITHM, FILE, FRESH, JOBS, PATH, SET
from offbeat.cli.tracking import TRACK, tracked
from offbeat.trackers.tracker import TrackerName

if TYPE_CHECKING:
    from offbeat.sweeps.record import Searched, Trials


@click.command(
    epilog="\b\nExample:\n  offbeat sweep experiments/quickstart.toml --over algorithms.fedbuff.server_lr=0.1:3:log "
    "--trials 20 --jobs 2"
)
@FILE
@click.option(
    "--over",
    "overs",
    metavar="KEY=VALUES",
    multiple=True,
    required=True,
    help="What to try: LOW:HIGH, LOW:HIGH:log or A,B,C for algorithms.LABEL.KEY, or for local.KEY or privacy.KEY of "
    "each algorithm. Repeatable.",
)
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Trials of each algorithm; fewer only if there are fewer combinations.",
)
@SET
@ALGORITHM
@click.option("--output", metavar="FOLDER", type=PATH, help="Folder of the sweep; runs/NAME-sweep by default.")
@FRESH
@JOBS
@TRACK
def sweep(
    file: Path,
    overs: Sequence[str],
    trials: int,
    changes: Sequence[str],
    labels: Sequence[str],
    output: Path | None,
    fresh: bool,
    jobs: int,
    trackers: Sequence[TrackerName],
) -> None:
    """Search the settings of the algorithms in FILE."""
    from offbeat.cli.experiments import select_labels
    from offbeat.cli.terminal import command_line, console
    from offbeat.config import experiment_file
    from offbeat.overview.page import update_overview
    from offbeat.runs.progress import Progress
    from offbeat.sweeps import result
    from offbeat.sweeps.page.page import write_sweep_report
    from offbeat.sweeps.search_space import parse_over
    from offbeat.sweeps.sweep import Sweep
    from offbeat.sweeps.trials import measure_name

    parsed = [parse_over(text) for text in overs]
    experiment = experiment_file.load(file, changes)
    wanted = Sweep.of(file, changes, parsed, select_labels(experiment, labels), trials)
    folder = output or Path("runs") / f"{experiment.name}-sweep"
    metric = measure_name(experiment) if experiment.metrics else None
    with tracked(folder, trackers):
        done = wanted.carry_out(
            folder, lambda runs: Progress(console(), experiment.stop, metric, runs), jobs=jobs, fresh=fresh
        )
    show_sweep(wanted.searched, done, folder)
    best = result.best_trials(done)
    path = result.write_best(wanted, best, folder)
    click.echo(f"Report: {write_sweep_report(folder, command_line())}")
    update_overview(folder, is_default=output is None)
    click.echo(f"Best settings: {path}\n\n{result.settings(best)}\n")
    # On the sweep's own seeds the best of many trials looks better than it is.
    first = max(experiment.seeds) + 1
    seeds = f"seeds={list(range(first, first + len(experiment.seeds)))}"
    click.echo(f"Compare them on other seeds: {shlex.join(['offbeat', 'compare', str(path), '--set', seeds])}")


def show_sweep(searched: "Searched", trials: "Trials", folder: Path) -> None:
    """Print the best trials of each algorithm and write ``sweep.csv``."""
    from offbeat.cli.terminal import console
    from offbeat.sweeps import result

    for table in result.tables(searched, trials):
        console().print(table)
    click.echo(f"{result.budget(searched)}\nTrials: {result.write_csv(searched, trials, folder)}")


def report_on_sweep(folder: Path, output: Path | None) -> None:
    """Print the trials of a sweep's folder and write its report anew."""
    from offbeat.cli.terminal import command_line
    from offbeat.overview.page import update_overview
    from offbeat.sweeps.page.page import write_sweep_report
    from offbeat.sweeps.record import read_record

    searched, trials = read_record(folder)
    show_sweep(searched, trials, output or folder)
    click.echo(f"Report: {write_sweep_report(folder, command_line(), output)}")
    update_overview(output or folder, is_default=False)
