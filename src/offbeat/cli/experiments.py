"""Commands on experiments: ``run``, ``compare``, ``report``, ``population``."""

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.cli.options import ALGORITHM, FILE, FRESH, JOBS, PATH, SET
from offbeat.cli.tracking import TRACK, tracked
from offbeat.runs.interruption import CHECKPOINT_SECONDS
from offbeat.trackers.libraries import TrackerName
from offbeat.training.trainers.names import TRAINERS

if TYPE_CHECKING:
    from offbeat.config.experiment_file import Experiment
    from offbeat.runs.directory import Run

Command = Callable[..., None]


@dataclass(frozen=True)
class RunOptions:
    """Arguments of the commands that run an experiment."""

    file: Path
    changes: Sequence[str]
    labels: Sequence[str]
    output: Path | None
    fresh: bool
    jobs: int
    device: str | None
    precision: str | None
    checkpoint_seconds: float
    trainer: str | None
    app: str | None
    ray_address: str | None
    trackers: Sequence[TrackerName]
    tensorboard: bool


def _with_run_options(command: Callable[[RunOptions], None]) -> Command:
    """Add the options of ``RunOptions`` to a command."""

    def with_options(**options: Any) -> None:
        command(RunOptions(**options))

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    result: Command = with_options
    for option in (
        click.option("--tensorboard", is_flag=True, help="Short for --track tensorboard."),
        TRACK,
        click.option(
            "--flower", "app", metavar="MODULE:NAME", help="A Flower ClientApp trains; short for --set flower.app=."
        ),
        click.option(
            "--ray-address",
            metavar="ADDRESS",
            help="Ray cluster for --trainer ray: auto or HOST:PORT; by default $RAY_ADDRESS, else this machine.",
        ),
        click.option(
            "--trainer", type=click.Choice(TRAINERS), help="How clients are trained; short for --set trainer=."
        ),
        click.option(
            "--checkpoint-every",
            "checkpoint_seconds",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            default=CHECKPOINT_SECONDS,
            show_default=True,
            help="Real seconds between two checkpoints of a run.",
        ),
        click.option("--precision", metavar="NAME", help="float32, tf32 or bf16; short for --set precision=NAME."),
        click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps; short for --set device=NAME."),
        JOBS,
        FRESH,
        click.option("--output", metavar="FOLDER", type=PATH, help="Folder of the results; runs/NAME by default."),
        ALGORITHM,
        SET,
        FILE,
    ):
        result = option(result)
    return result


@click.command(
    epilog="\b\nExample:\n  offbeat compare experiments/quickstart.toml --set local.lr=0.1 --set 'seeds=[1, 2]'"
)
@_with_run_options
def compare(options: RunOptions) -> None:
    """Run the algorithms of the experiment FILE and compare them."""
    experiment, folder, runs = _run(options)
    _show(runs, folder, experiment.name)


@click.command(epilog="\b\nExample:\n  offbeat run experiments/quickstart.toml --algorithm fedbuff --jobs 2")
@_with_run_options
def run(options: RunOptions) -> None:
    """Run the algorithms of the experiment FILE.

    Prints the folders of the results, without a report.
    """
    _, _, runs = _run(options)
    for finished in runs:
        click.echo(finished.path)


@click.command(epilog="\b\nExample:\n  offbeat report runs/quickstart runs/500-clients --output runs/both --csv")
@click.argument("folders", metavar="RUN...", type=PATH, nargs=-1, required=True)
@click.option("--output", metavar="FOLDER", type=PATH, help="Folder of the report; the first RUN by default.")
@click.option("--target", metavar="VALUE", type=float, help="Target of the first metric, instead of the runs' own.")
@click.option("--csv", is_flag=True, help="Also write summary.csv and history.csv.")
@click.option("--markdown", is_flag=True, help="Also write the table as Markdown.")
@click.option("--tensorboard", is_flag=True, help="Also write TensorBoard event files.")
def report(
    folders: Sequence[Path], output: Path | None, target: float | None, csv: bool, markdown: bool, tensorboard: bool
) -> None:
    """Report on existing runs.

    Each RUN is the folder of a run, or a folder of runs.
    """
    from offbeat.report import export
    from offbeat.report.collect import collect
    from offbeat.report.summary import summarise

    runs = collect(folders)
    folder = output or folders[0]
    rows = summarise(runs, target)
    _show(runs, folder, " and ".join(path.resolve().name for path in folders), target)
    if csv:
        for path in export.write_csv(rows, runs, folder):
            click.echo(f"CSV: {path}")
    if markdown:
        click.echo(f"Markdown: {export.write_markdown(rows, folder / 'summary.md')}")
    if tensorboard:
        _write_tensorboard(runs, folder)


@click.command(epilog="\b\nExample:\n  offbeat population experiments/quickstart.toml --set population.clients=500")
@FILE
@SET
@click.option("--output", metavar="FOLDER", type=PATH, help="Folder of the drawing; runs/NAME by default.")
def population(file: Path, changes: Sequence[str], output: Path | None) -> None:
    """Draw the clients of FILE: availability, speeds and labels."""
    from offbeat.cli.terminal import console
    from offbeat.config import experiment_file
    from offbeat.report.population_plots import write_population
    from offbeat.report.population_statistics import population_statistics
    from offbeat.report.population_table import population_table
    from offbeat.runs.run_all import load_data

    experiment = experiment_file.load(file, changes)
    statistics = population_statistics(experiment, load_data(experiment, click.echo))
    console().print(population_table(statistics))
    click.echo(f"Drawing: {write_population(statistics, output or Path('runs') / experiment.name)}")


def _run(options: RunOptions) -> "tuple[Experiment, Path, list[Run]]":
    from offbeat.cli.terminal import console
    from offbeat.config import experiment_file
    from offbeat.config.experiment_sections import metric_name
    from offbeat.config.import_path import canonical
    from offbeat.runs.progress import Progress
    from offbeat.runs.run_all import run_all

    if not math.isfinite(options.checkpoint_seconds):
        raise OffbeatError(f"--checkpoint-every {options.checkpoint_seconds}: must be a finite number of seconds")
    # An import path in an option is relative to the current folder, as in offbeat join.
    app = None if options.app is None else canonical(options.app, Path.cwd())
    named = {"flower.app": app, "trainer": options.trainer, "device": options.device, "precision": options.precision}
    changes = [*options.changes, *(f"{key}={value}" for key, value in named.items() if value is not None)]
    experiment = experiment_file.load(options.file, changes)
    if options.ray_address is not None and experiment.trainer != "ray":
        raise OffbeatError(
            f"--ray-address {options.ray_address}: the trainer is {experiment.trainer!r}: add --trainer ray"
        )
    folder = options.output or Path("runs") / experiment.name
    labels = select_labels(experiment, options.labels)
    metric = metric_name(experiment.metrics[0]) if experiment.metrics else None
    trackers: list[TrackerName] = [*options.trackers, *(["tensorboard"] if options.tensorboard else [])]
    with tracked(folder, trackers):
        runs = run_all(
            experiment,
            labels,
            folder,
            Progress(console(), experiment.stop, metric),
            fresh=options.fresh,
            jobs=options.jobs,
            checkpoint_seconds=options.checkpoint_seconds,
            ray_address=options.ray_address,
        )
    if "tensorboard" in trackers:
        _name_tensorboard(folder)
    return experiment, folder, runs


def select_labels(experiment: "Experiment", labels: Sequence[str]) -> list[str]:
    """Return the labels of ``--algorithm``, or all."""
    for label in labels:
        if label not in experiment.algorithms:
            raise OffbeatError(f"--algorithm {label}: {did_you_mean(label, experiment.algorithms)}")
    return list(dict.fromkeys(labels or experiment.algorithms))


def _show(runs: Sequence["Run"], folder: Path, title: str, target: float | None = None) -> None:
    """Print the table of a comparison and write its report."""
    from offbeat.cli.terminal import console
    from offbeat.report.html import write_report
    from offbeat.report.summary import summarise
    from offbeat.report.table import TerminalTable
    from offbeat.runs.settings import world_of

    rows = summarise(runs, target)  # first, because it raises an error if the runs cannot be compared
    click.echo(f"\n{world_of(runs)}")
    console().print(TerminalTable(rows))
    command = shlex.join(["offbeat", *sys.argv[1:]])
    click.echo(f"Report: {write_report(runs, folder, title, command, target)}")


def _write_tensorboard(runs: Sequence["Run"], folder: Path) -> None:
    from offbeat.trackers.libraries import write_tensorboard

    write_tensorboard(runs, folder / "tensorboard")
    _name_tensorboard(folder)


def _name_tensorboard(folder: Path) -> None:
    click.echo(f"TensorBoard: tensorboard --logdir {shlex.quote(str(folder / 'tensorboard'))}")
