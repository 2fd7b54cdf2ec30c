"""The command line: ``offbeat …``."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offbeat.algorithms import ALGORITHMS
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.experiments import config
from offbeat.experiments.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of
from offbeat.experiments.config import Experiment
from offbeat.experiments.progress import Progress
from offbeat.experiments.report import write_report
from offbeat.experiments.run_directory import Run
from offbeat.experiments.runner import run_all
from offbeat.experiments.summary import summarise, world_of
from offbeat.experiments.table import terminal_table

# What is piped into a file is not folded to 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=160)


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all commands that run an experiment take."""
    for add in (
        click.option("--replace", is_flag=True, help="Replace runs with other settings in the folder."),
        click.option("--output", metavar="FOLDER", type=Path, help="Where results go; runs/NAME if it is left out."),
        click.option("--algorithm", "only", metavar="LABEL", multiple=True, help="Only this algorithm. Repeatable."),
        click.option(
            "--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable."
        ),
        click.argument("file", metavar="FILE", type=Path),
    ):
        command = add(command)
    return command


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offbeat")
def app() -> None:
    """Federated learning for clients that come and go."""


@app.command(
    epilog="\b\nExample:\n  offbeat compare experiments/quickstart.toml --set local.lr=0.1 --set 'seeds=[1, 2]'"
)
@_shared
def compare(file: Path, changes: Sequence[str], only: Sequence[str], output: Path | None, replace: bool) -> None:
    """Run the algorithms of the experiment FILE and report how they compare."""
    experiment, folder, runs = _run(file, changes, only, output, replace)
    target = experiment.evaluate.target_accuracy
    click.echo(f"\n{world_of(runs)}")
    console.print(terminal_table(summarise(runs, target)))
    report = write_report(runs, folder, experiment.name, target, shlex.join(["offbeat", *sys.argv[1:]]))
    click.echo(f"Report: {report}")


@app.command(epilog="\b\nExample:\n  offbeat run experiments/quickstart.toml --algorithm fedbuff")
@_shared
def run(file: Path, changes: Sequence[str], only: Sequence[str], output: Path | None, replace: bool) -> None:
    """Run the algorithms of the experiment FILE and name the folders that hold the results."""
    _, _, runs = _run(file, changes, only, output, replace)
    for finished in runs:
        click.echo(finished.path)


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


def _run(
    file: Path, changes: Sequence[str], only: Sequence[str], output: Path | None, replace: bool
) -> tuple[Experiment, Path, list[Run]]:
    experiment = config.load(file, changes)
    folder = output or Path("runs") / experiment.name
    for label in only:
        if label not in experiment.algorithms:
            raise OffbeatError(f"--algorithm {label}: {did_you_mean(label, experiment.algorithms)}")
    labels = list(dict.fromkeys(only or experiment.algorithms))
    return experiment, folder, run_all(experiment, labels, folder, Progress(console, experiment.stop), replace=replace)


def main() -> None:
    """Run the command line; what a user can mend ends as one line and exit code 2."""
    try:
        code = app(prog_name="offbeat", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except OffbeatError as error:
        _stop(str(error), 2)
    except click.ClickException as error:
        _stop(f"{error.format_message()} See offbeat --help.", error.exit_code)
    except OSError as error:  # for instance a full disk behind standard output
        # What is left in its buffer would be written at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _stop(f"{error.strerror}{f': {error.filename}' if error.filename else ''}", 2)
    except (KeyboardInterrupt, click.Abort):
        _stop("interrupted: the unfinished run was not written, finished ones are kept", 130)


def _stop(message: str, code: int) -> None:
    click.echo(f"offbeat: {' '.join(message.split())}", err=True)
    sys.exit(code)
