"""Commands on experiments: ``compare``, ``run``, ``report``."""

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.cli.options import ALGORITHM, FILE, FRESH, JOBS, PATH, SET
from offbeat.cli.sweep import report_on_sweep
from offbeat.cli.tracking import TRACK, tracked
from offbeat.runs.interruption import CHECKPOINT_SECONDS
from offbeat.trackers.tracker import TrackerName
from offbeat.training.trainer_names import TRAINERS

if TYPE_CHECKING:
    from offbeat.config.experiment_file import Experiment
    from offbeat.runs.directory import Run


_RUN_OPTIONS = (
    FILE,
    SET,
    ALGORITHM,
    click.option("--output", metavar="FOLDER", type=PATH, help="Folder of the results; runs/NAME by default."),
    FRESH,
    JOBS,
    click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps; short for --set device=NAME."),
    click.option("--precision", metavar="NAME", help="float32, tf32 or bf16; short for --set precision=NAME."),
    click.option(
        "--checkpoint-every",
        "checkpoint_seconds",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=CHECKPOINT_SECONDS,
        show_default=True,
        help="Real seconds between two checkpoints of a run.",
    ),
    click.option("--trainer", type=click.Choice(TRAINERS), help="How clients are trained; short for --set trainer=."),
    click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Ray cluster for --trainer ray: auto or HOST:PORT; by default $RAY_ADDRESS, else this machine.",
    ),
    click.option(
        "--flower", "app", metavar="MODULE:NAME", help="A Flower ClientApp trains; short for --set flower.app=."
    ),
    TRACK,
    click.option("--tensorboard", is_flag=True, help="Short for --track tensorboard."),
)


def _with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of ``_run`` to a command."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog="\b\nExample:\n  offbeat compare experiments/quickstart.toml --set local.lr=0.1 --set 'seeds=[1, 2]'"
)
@_with_run_options
@click.option(
    "--tune",
    metavar="N",
    type=click.IntRange(min=2),
    help="Search each algorithm's settings before, by N trials on a validation part; the first has the file's.",
)
@click.option(
    "--over",
    "overs",
    metavar="KEY=VALUES",
    multiple=True,
    help="With --tune, values to try, as in offbeat sweep, beside or in place of the usual ones. Repeatable.",
)
def compare(**options: Any) -> None:
    """Run the algorithms of the experiment FILE and compare them."""
    experiment, folder, runs = _run(**options)
    _show(runs, folder, experiment.name)
    _update_overview(folder, options["output"])


@click.command(epilog="\b\nExample:\n  offbeat run experiments/quickstart.toml --algorithm fedbuff --jobs 2")
@_with_run_options
def run(**options: Any) -> None:
    """Run the algorithms of the experiment FILE.

    Prints the folders of the results, without a report.
    """
    _, folder, runs = _run(**options)
    for finished in runs:
        click.echo(finished.path)
    _update_overview(folder, options["output"])


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
    """Report on existing runs, or on a sweep.

    Each RUN is the folder of a run, or a folder of runs.
    """
    from offbeat.report import export
    from offbeat.report.collect import collect
    from offbeat.report.summary import summarise
    from offbeat.sweeps.record import is_sweep

    if len(folders) == 1 and is_sweep(folders[0]):
        if target is not None or markdown or tensorboard:
            raise OffbeatError(f"{folders[0]} is a sweep: its report has no --target, --markdown or --tensorboard")
        report_on_sweep(folders[0], output)
        return
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
        from offbeat.trackers.tracker import write_tensorboard

        write_tensorboard(runs, folder / "tensorboard")
        _name_tensorboard(folder)


def _run(
    *,
    file: Path,
    changes: Sequence[str],
    labels: Sequence[str],
    output: Path | None,
    fresh: bool,
    jobs: int,
    device: str | None,
    precision: str | None,
    checkpoint_seconds: float,
    trainer: str | None,
    ray_address: str | None,
    app: str | None,
    trackers: Sequence[TrackerName],
    tensorboard: bool,
    tune: int | None = None,
    overs: Sequence[str] = (),
) -> "tuple[Experiment, Path, list[Run]]":
    from offbeat.cli.terminal import console
    from offbeat.config import experiment_file
    from offbeat.config.experiment_sections import metric_name
    from offbeat.config.import_path import canonical
    from offbeat.runs.progress import Progress
    from offbeat.runs.run_all import run_all

    if not math.isfinite(checkpoint_seconds):
        raise OffbeatError(f"--checkpoint-every {checkpoint_seconds}: must be a finite number of seconds")
    # An import path in an option is relative to the current folder, as in offbeat join.
    app = None if app is None else canonical(app, Path.cwd())
    named = {"flower.app": app, "trainer": trainer, "device": device, "precision": precision}
    named_changes = [f"{key}={value}" for key, value in named.items() if value is not None]
    changes = [*changes, *named_changes]
    experiment = experiment_file.load(file, changes)
    if ray_address is not None and experiment.trainer != "ray":
        raise OffbeatError(f"--ray-address {ray_address}: the trainer is {experiment.trainer!r}: add --trainer ray")
    folder = output or Path("runs") / (experiment.name if tune is None else f"{experiment.name}-tuned")
    metric = metric_name(experiment.metrics[0]) if experiment.metrics else None
    if tensorboard:
        trackers = [*trackers, "tensorboard"]
    chosen = select_labels(experiment, labels)
    if tune is None and overs:
        raise OffbeatError(f"--over {overs[0]}: is for --tune: add --tune 20, or use offbeat sweep")
    if tune is not None and ray_address is not None:
        raise OffbeatError("--ray-address does not go with --tune: set the environment variable RAY_ADDRESS")
    with tracked(folder, trackers):
        if tune is not None:
            experiment = _tuned(file, changes, overs, chosen, tune, folder, jobs=jobs, fresh=fresh)
        runs = run_all(
            experiment,
            chosen,
            folder,
            Progress(console(), experiment.stop, metric),
            fresh=fresh and tune is None,  # with --tune they were removed before it
            jobs=jobs,
            checkpoint_seconds=checkpoint_seconds,
            keep_diverged=tune is not None,  # on another seed than the trials'
            ray_address=ray_address,
        )
    if "tensorboard" in trackers:
        _name_tensorboard(folder)
    return experiment, folder, runs


def _tuned(
    file: Path,
    changes: Sequence[str],
    overs: Sequence[str],
    labels: Sequence[str],
    trials: int,
    folder: Path,
    *,
    jobs: int,
    fresh: bool,
) -> "Experiment":
    """Tune the algorithms; return the experiment at their best settings."""
    from offbeat.cli.terminal import console
    from offbeat.runs.progress import Progress
    from offbeat.sweeps.search_space import parse_over
    from offbeat.sweeps.trials import measure_name
    from offbeat.sweeps.tuning import Tuning

    tuning = Tuning.of(file, changes, list(map(parse_over, overs)), labels, trials)
    trial = tuning.sweep.experiment
    metric = measure_name(trial) if trial.metrics else None
    return tuning.carry_out(folder, lambda runs: Progress(console(), trial.stop, metric, runs), jobs=jobs, fresh=fresh)


def _update_overview(folder: Path, output: Path | None) -> None:
    from offbeat.overview.page import update_overview

    update_overview(folder, is_default=output is None)


def select_labels(experiment: "Experiment", labels: Sequence[str]) -> list[str]:
    """Return the labels of ``--algorithm``, or all."""
    for label in labels:
        if label not in experiment.algorithms:
            raise OffbeatError(f"--algorithm {label}: {did_you_mean(label, experiment.algorithms)}")
    return list(dict.fromkeys(labels or experiment.algorithms))


def _show(runs: Sequence["Run"], folder: Path, title: str, target: float | None = None) -> None:
    """Print the table of a comparison and write its report."""
    from offbeat.cli.terminal import command_line, console
    from offbeat.report.finding import finding
    from offbeat.report.page.page import write_report
    from offbeat.report.summary import summarise
    from offbeat.report.terminal_table import TerminalTable
    from offbeat.report.tuning import ReportedTuning
    from offbeat.runs.settings import world_of

    rows = summarise(runs, target)  # first, because it raises an error if the runs cannot be compared
    tuning = ReportedTuning.of(runs, rows[0].measure)
    click.echo(f"\n{world_of(runs)}\n{finding(rows, tuning)}")
    console().print(TerminalTable(rows))
    if tuning.is_any:
        console().print(tuning.table())
        click.echo("\n".join([*tuning.gains(), tuning.how()]))
    click.echo(f"Report: {write_report(runs, folder, title, command_line(), target)}")


def _name_tensorboard(folder: Path) -> None:
    click.echo(f"TensorBoard: tensorboard --logdir {shlex.quote(str(folder / 'tensorboard'))}")
