"""Command that lists the devices, and what an experiment would take."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.options import PATH, SET

if TYPE_CHECKING:
    from offbeat.algorithms import Algorithm, LocalPlan
    from offbeat.config.experiment_file import Experiment
    from offbeat.training.workload import Workload


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
    from offbeat.worlds.data_placement import fits_on_device
    from offbeat.worlds.population import build_population
    from offbeat.worlds.workload import build_workload

    torch.set_num_threads(1)  # as runs do
    accelerator = experiment.accelerator()
    dataset, seed = load_data(experiment, click.echo), experiment.seeds[0]
    shards = build_population(experiment.population, dataset, seed).shards
    with accelerator.numerics():
        workload = build_workload(experiment, dataset, shards, seed)
        workload = workload.to(accelerator, with_data=fits_on_device(workload, accelerator, experiment.data.on_device))
        for label in experiment.algorithms:
            trainer, reason = experiment.trainer, "the experiment says so"
            if trainer == "auto":
                at_work = _clients_at_work(experiment.algorithm(label), len(shards))
                trainer, reason = choose_trainer(workload, experiment.plan(label), at_work)
            click.echo(f"{label}: device {accelerator.device}, trainer {trainer}: {reason}")
        if tune:
            first = next(iter(experiment.algorithms))
            _tune(workload, experiment.plan(first), experiment.algorithm(first))


def _tune(workload: "Workload", plan: "LocalPlan", algorithm: "Algorithm") -> None:
    """Print the visits per second of each trainer, and the key of the fastest."""
    from offbeat.training.trainers.choice import measure_trainers

    rates: dict[str, float] = {}
    for name, measured in measure_trainers(workload, plan, _clients_at_work(algorithm, len(workload.shards))):
        click.echo(f"{name}: {measured if isinstance(measured, str) else f'{measured:,.1f} visits per second'}")
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
