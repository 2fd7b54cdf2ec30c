"""The command line: ``offbeat …``."""

import math
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offbeat.algorithms import ALGORITHMS
from offbeat.cli import service as cli_service
from offbeat.cli.theory import theory
from offbeat.config import experiment_file
from offbeat.config.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import metric_name
from offbeat.data.catalogue import get_dataset, list_datasets
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.report import export
from offbeat.report.collect import collect
from offbeat.report.html import write_report
from offbeat.report.population.plots import write_population
from offbeat.report.population.table import population_table
from offbeat.report.population.view import view_population
from offbeat.report.summary import summarise, world_of
from offbeat.report.table import terminal_table
from offbeat.report.tensorboard import write_tensorboard
from offbeat.runs.directory import Run
from offbeat.runs.interruption import InterruptedRunError
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import CHECKPOINT_SECONDS, run_all

# What is piped into a file is not folded to 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=160)

Command = Callable[..., None]

_FILE = click.argument("file", metavar="FILE", type=Path)
_SET = click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable."
)
_TENSORBOARD = click.option("--tensorboard", is_flag=True, help="Write TensorBoard event files too.")


@dataclass(frozen=True)
class _HowToRun:
    """What all commands that run an experiment take."""

    file: Path
    changes: Sequence[str]
    only: Sequence[str]
    output: Path | None
    replace: bool
    resume: bool
    jobs: int
    checkpoint_seconds: float
    tensorboard: bool


def _runs(command: Callable[[_HowToRun], None]) -> Command:
    """Make a command that runs an experiment."""

    def with_options(**options: Any) -> None:
        command(_HowToRun(**options))

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    made: Command = with_options
    for add in (
        _TENSORBOARD,
        click.option(
            "--checkpoint-every",
            "checkpoint_seconds",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            default=CHECKPOINT_SECONDS,
            show_default=True,
            help="Real seconds between two checkpoints of a run.",
        ),
        click.option(
            "--jobs",
            metavar="N",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Runs at once, each in a process of its own.",
        ),
        click.option("--resume", is_flag=True, help="Leave finished runs as they are, go on with unfinished ones."),
        click.option("--replace", is_flag=True, help="Replace runs with other settings in the folder."),
        click.option("--output", metavar="FOLDER", type=Path, help="Where results go; runs/NAME if it is left out."),
        click.option("--algorithm", "only", metavar="LABEL", multiple=True, help="Only this algorithm. Repeatable."),
        _SET,
        _FILE,
    ):
        made = add(made)
    return made


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offbeat")
def app() -> None:
    """Federated learning for clients that come and go."""


app.add_command(theory)
for _command in (
    cli_service.serve,
    cli_service.join,
    cli_service.status,
    cli_service.tokens,
    cli_service.make_token,
    cli_service.revoke,
    cli_service.runs,
    cli_service.export,
    cli_service.backup,
    cli_service.demo,
):
    app.add_command(_command)


@app.command(
    epilog="\b\nExample:\n  offbeat compare experiments/quickstart.toml --set local.lr=0.1 --set 'seeds=[1, 2]'"
)
@_runs
def compare(how: _HowToRun) -> None:
    """Run the algorithms of the experiment FILE and report how they compare."""
    experiment, folder, runs = _run(how)
    _show(runs, folder, experiment.name)


@app.command(epilog="\b\nExample:\n  offbeat run experiments/quickstart.toml --algorithm fedbuff --jobs 2")
@_runs
def run(how: _HowToRun) -> None:
    """Run the algorithms of the experiment FILE and name the folders that hold the results."""
    _, _, runs = _run(how)
    for finished in runs:
        click.echo(finished.path)


@app.command(epilog="\b\nExample:\n  offbeat report runs/quickstart runs/500-clients --output runs/both --csv")
@click.argument("folders", metavar="RUN...", type=Path, nargs=-1, required=True)
@click.option("--output", metavar="FOLDER", type=Path, help="Where the report goes; the first RUN if it is left out.")
@click.option("--target", metavar="VALUE", type=float, help="Another target of the first metric than the runs' own.")
@click.option("--csv", is_flag=True, help="Write summary.csv and history.csv too.")
@click.option("--markdown", is_flag=True, help="Write the table as Markdown too.")
@_TENSORBOARD
def report(
    folders: Sequence[Path], output: Path | None, target: float | None, csv: bool, markdown: bool, tensorboard: bool
) -> None:
    """Report on runs that were made before, each RUN a run's folder or a folder that holds some."""
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


@app.command(epilog="\b\nExample:\n  offbeat population experiments/quickstart.toml --set population.clients=500")
@_FILE
@_SET
@click.option("--output", metavar="FOLDER", type=Path, help="Where the drawing goes; runs/NAME if it is left out.")
def population(file: Path, changes: Sequence[str], output: Path | None) -> None:
    """Draw the clients of the experiment FILE: who is there when, how fast, with which labels."""
    experiment = experiment_file.load(file, changes)
    view = view_population(experiment)
    console.print(population_table(view))
    click.echo(f"Drawing: {write_population(view, output or Path('runs') / experiment.name)}")


@app.command(epilog="\b\nExample:\n  offbeat algorithms")
def algorithms() -> None:
    """List the algorithms, with their hyper-parameters and defaults."""
    table = Table("Algorithm", "What it does", "Hyper-parameters", box=box.SIMPLE)
    for name, kind in ALGORITHMS.items():
        values = hyper_parameters_of(kind())
        listed = [
            f"{key} = {as_inline_toml(values[key])}" if key in values else f"{key}: none"
            for key in default_hyper_parameters(kind)
        ]
        table.add_row(name, (kind.__doc__ or "").partition("\n")[0], Text("\n".join(listed)))
    console.print(table)


@app.command("reproduce", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def moved_reproduce() -> None:
    """Say where the command is now."""
    raise click.ClickException("this is now 'python -m papers', in a checkout of Offbeat.")


@app.group()
def data() -> None:
    """List the built-in data sets, or fetch one."""


@data.command("list", epilog="\b\nExample:\n  offbeat data list")
def list_data() -> None:
    """List the built-in data sets and where they are on this machine."""
    table = Table("Name", "What it holds", "Train", "Test", "Where", box=box.SIMPLE)
    for entry in list_datasets():
        train, test = ("" if n is None else f"{n:,}" for n in (entry.train_examples, entry.test_examples))
        table.add_row(entry.name, entry.description, train, test, Text(entry.where, overflow="fold"))
    console.print(table)


@data.command("get", epilog="\b\nExample:\n  offbeat data get mnist")
@click.argument("name", metavar="NAME")
def get_data(name: str) -> None:
    """Make sure that the data set NAME is here, if need be by downloading it, and say where."""
    click.echo(get_dataset(name).where)


def _run(how: _HowToRun) -> tuple[Experiment, Path, list[Run]]:
    if how.replace and how.resume:
        raise OffbeatError("--resume keeps what is there and --replace does not: leave one of them out")
    if not math.isfinite(how.checkpoint_seconds):
        raise OffbeatError(f"--checkpoint-every {how.checkpoint_seconds}: must be a finite number of seconds")
    experiment = experiment_file.load(how.file, how.changes)
    folder = how.output or Path("runs") / experiment.name
    for label in how.only:
        if label not in experiment.algorithms:
            raise OffbeatError(f"--algorithm {label}: {did_you_mean(label, experiment.algorithms)}")
    labels = list(dict.fromkeys(how.only or experiment.algorithms))
    metric = metric_name(experiment.metrics[0]) if experiment.metrics else None
    runs = run_all(
        experiment,
        labels,
        folder,
        Progress(console, experiment.stop, metric),
        replace=how.replace,
        resume=how.resume,
        jobs=how.jobs,
        checkpoint_seconds=how.checkpoint_seconds,
    )
    if how.tensorboard:
        _write_tensorboard(runs, folder)
    return experiment, folder, runs


def _show(runs: Sequence[Run], folder: Path, title: str, target: float | None = None) -> None:
    """Print the table of a comparison and write its report."""
    rows = summarise(runs, target)  # first, since it says if they cannot be compared
    click.echo(f"\n{world_of(runs)}")
    console.print(terminal_table(rows))
    command = shlex.join(["offbeat", *sys.argv[1:]])
    click.echo(f"Report: {write_report(runs, folder, title, command, target)}")


def _write_tensorboard(runs: Sequence[Run], folder: Path) -> None:
    write_tensorboard(runs, folder / "tensorboard")
    click.echo(f"TensorBoard: tensorboard --logdir {shlex.quote(str(folder / 'tensorboard'))}")


def main(command: click.Command = app, name: str = "offbeat") -> None:
    """Run a command line; what a user can mend ends as one line and exit code 2."""
    try:
        code = command(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except OffbeatError as error:
        _stop(name, str(error), 2)
    except click.ClickException as error:
        _stop(name, f"{error.format_message()} See {name} --help.", error.exit_code)
    except OSError as error:  # for instance a full disk behind standard output
        # What is left in its buffer would be written at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _stop(name, f"{error.strerror}{f': {error.filename}' if error.filename else ''}", 2)
    except InterruptedRunError as error:
        how = " with --resume in place of --replace" if "--replace" in sys.argv else " with --resume"
        _stop(name, f"{error}: the same command{how} goes on from here", 128 + error.signal)
    except (KeyboardInterrupt, click.Abort):
        _stop(name, "interrupted: what was finished is kept", 128 + signal.SIGINT)


def _stop(name: str, message: str, code: int) -> None:
    click.echo(f"{name}: {' '.join(message.split())}", err=True)
    sys.exit(code)
