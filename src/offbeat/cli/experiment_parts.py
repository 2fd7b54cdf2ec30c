"""Commands on an experiment's parts: its algorithms, data, devices and clients."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.options import FILE, PATH, SET

if TYPE_CHECKING:
    from offbeat.algorithms import Algorithm, LocalPlan
    from offbeat.config.experiment_file import Experiment
    from offbeat.training.workload import Workload


@click.command(epilog="\b\nExample:\n  offbeat algorithms")
def algorithms() -> None:
    """List the algorithms, with their hyper-parameters and defaults."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.algorithms import ALGORITHMS
    from offbeat.cli.terminal import console
    from offbeat.config.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of

    table = Table("Algorithm", "Description", "Hyper-parameters", box=box.SIMPLE)
    for name, kind in ALGORITHMS.items():
        values = hyper_parameters_of(kind())
        listed = [
            f"{key} = {as_inline_toml(values[key])}" if key in values else f"{key}: none"
            for key in default_hyper_parameters(kind)
        ]
        table.add_row(name, (kind.__doc__ or "").partition("\n")[0], Text("\n".join(listed)))
    console().print(table)


@click.group()
def data() -> None:
    """List the built-in data sets, or fetch one."""


@data.command("list", epilog="\b\nExample:\n  offbeat data list")
def list_data() -> None:
    """List the built-in data sets and their places on this machine."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.cli.terminal import console
    from offbeat.data.catalogue import list_datasets

    table = Table("Name", "Contents", "Train", "Test", "Place", box=box.SIMPLE)
    for entry in list_datasets():
        train, test = ("" if n is None else f"{n:,}" for n in (entry.train_examples, entry.test_examples))
        table.add_row(entry.name, entry.description, train, test, Text(entry.where, overflow="fold"))
    console().print(table)


@data.command("get", epilog="\b\nExample:\n  offbeat data get mnist")
@click.argument("name", metavar="NAME")
def get_data(name: str) -> None:
    """Download the data set NAME if it is missing.

    Prints its place.
    """
    from offbeat.data.catalogue import get_dataset

    click.echo(get_dataset(name).where)


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


@click.command(epilog="\b\nExample:\n  offbeat advise experiments/quickstart.toml")
@FILE
@SET
def advise(file: Path, changes: Sequence[str]) -> None:
    """Look at algorithms for the clients of FILE, without training.

    Prints versions, staleness, waiting and bytes of each algorithm, and which ones to compare.
    """
    import torch

    from offbeat.advice.advice import advise as advise_on
    from offbeat.advice.evidence import SENTENCES
    from offbeat.advice.table import facts_table
    from offbeat.cli.terminal import console
    from offbeat.config import experiment_file
    from offbeat.runs.run_all import load_data

    torch.set_num_threads(1)  # as runs do
    experiment = experiment_file.load(file, changes)
    advice = advise_on(experiment, load_data(experiment, click.echo))
    console().print(facts_table(advice.facts, advice.own))
    for title, lines in (
        ("Does not work here:", list(advice.warnings())),
        (f"To compare, where {SENTENCES[advice.kind]}:", list(advice.reasons())),
        ("Settings to start from:", [f"{label} = {table}" for label, table in advice.settings().items()]),
    ):
        if lines:
            click.echo("\n".join([title, *(f"  {line}" for line in lines), ""]))
    click.echo(f"{advice.certainty()}\n\n{advice.command(file, changes)}")


@click.command(epilog="\b\nExample:\n  offbeat devices experiments/quickstart.toml")
@click.argument("file", metavar="[FILE]", type=PATH, required=False)
@SET
@click.option("--tune", is_flag=True, help="Measure the trainers on FILE, and print the key of the fastest.")
def devices(file: Path | None, changes: Sequence[str], tune: bool) -> None:
    """List this machine's devices, and what FILE would take."""
    import torch

    from offbeat.config import experiment_file
    from offbeat.training.accelerator import choose_device
    from offbeat.training.trainers.choice import available_processors

    if tune and file is None:
        raise OffbeatError("--tune measures an experiment: name its FILE")
    click.echo(f"cpu: {available_processors()} processors")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            click.echo(f"cuda:{number}: {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    if torch.backends.mps.is_available():
        click.echo("mps: Apple GPU")
    automatic = choose_device("auto")
    reason = "there is a CUDA GPU" if automatic.type == "cuda" else "there is no CUDA GPU that PyTorch can use"
    click.echo(f'device = "auto" takes {automatic}: {reason}')
    if file is not None:
        _describe(experiment_file.load(file, changes), tune=tune)


def _describe(experiment: "Experiment", *, tune: bool) -> None:
    """Print the device and the trainer that each algorithm of an experiment takes.

    With ``tune`` the trainers are measured, too.
    """
    import torch

    from offbeat.runs.run_all import load_data
    from offbeat.training.trainers.choice import choose_trainer
    from offbeat.worlds.population import build_population
    from offbeat.worlds.simulation import population_of
    from offbeat.worlds.workload import build_workload, fits_on_device

    if tune and experiment.flower is not None:
        raise OffbeatError("--tune: the Flower app trains the clients, so there is no trainer to choose")
    torch.set_num_threads(1)  # as runs do
    accelerator = experiment.accelerator()
    dataset, seed = load_data(experiment, click.echo), experiment.seeds[0]
    population = build_population(experiment.population, dataset, seed)
    with accelerator.numerics():
        workload = build_workload(experiment, dataset, population.shards, seed)
        workload = workload.to(accelerator, with_data=fits_on_device(workload, accelerator, experiment.data.on_device))
        for label in experiment.algorithms:
            trainer, reason = experiment.trainer, "the experiment says so"
            if experiment.flower is not None:
                trainer, reason = "flower", "the app trains the clients"
            elif trainer == "auto":
                algorithm = experiment.algorithm(label)
                theirs = replace(workload, shards=population_of(algorithm, population).shards)
                at_work = _clients_at_work(algorithm, len(theirs.shards))
                trainer, reason = choose_trainer(theirs, experiment.plan(label), at_work)
            click.echo(f"{label}: device {accelerator.device}, trainer {trainer}: {reason}")
        if tune:
            first = next(iter(experiment.algorithms))
            algorithm = experiment.algorithm(first)
            theirs = replace(workload, shards=population_of(algorithm, population).shards)
            _tune(theirs, experiment.plan(first), algorithm)


def _tune(workload: "Workload", plan: "LocalPlan", algorithm: "Algorithm") -> None:
    """Print each trainer's visits per second, and the key of the fastest."""
    from offbeat.training.trainers.choice import measure_trainers

    rates: dict[str, float] = {}
    for name, measured in measure_trainers(workload, plan, _clients_at_work(algorithm, len(workload.shards))):
        rate = measured if isinstance(measured, str) else f"{measured:,.1f} visits per second in one process"
        click.echo(f"{name}: {rate}")
        if not isinstance(measured, str):
            rates[name] = measured
    if rates:
        click.echo(f'trainer = "{max(rates, key=lambda name: rates[name])}"')


def _clients_at_work(algorithm: "Algorithm", clients: int) -> int:
    """Return how many of the clients work at the same time."""
    import torch

    try:
        algorithm.start(torch.zeros(1), clients)
    except ValueError as error:
        raise OffbeatError(f"algorithm {algorithm.name}: {error}") from None
    return max(algorithm.slots(), 1)
