"""``offbeat.simulate``: simulations from notebooks and scripts."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import torch
from rich.console import Console
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.api.arguments import (
    Function,
    algorithm_of,
    experiment_of,
    given_unless_named,
    label_of,
    local_of,
    metrics_of,
    named_by_arguments,
    population_of,
)
from offbeat.api.run_record import RunRecord, config_of, make_folder, write_output
from offbeat.config.experiment_sections import metric_name
from offbeat.config.given_objects import Given
from offbeat.coordinator.algorithm_checks import errors_named
from offbeat.data.dataset import Dataset
from offbeat.data.user_examples import Collate
from offbeat.process_memory import rare_garbage_collection
from offbeat.runs.directory import EVENTS
from offbeat.runs.package_versions import versions as versions_of
from offbeat.runs.progress import Progress
from offbeat.simulation.totals import Evaluation
from offbeat.training.accelerator import Precision
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainer_names import TrainerName
from offbeat.training.trainers.choice import available_processors
from offbeat.worlds.availability_check import warnings_of
from offbeat.worlds.population import build_population
from offbeat.worlds.simulation import build_simulation
from offbeat.worlds.workload import build_dataset, with_default_metrics

if TYPE_CHECKING:
    from offbeat.api.history import History


@contextmanager
def _one_thread() -> Generator[None]:
    """Use one thread, as runs do: more would add in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@named_by_arguments
@_one_thread()
@rare_garbage_collection()
def simulate(
    model: nn.Module | Callable[[], nn.Module],
    data: Dataset | tuple[Any, Any] | str,
    algorithm: Algorithm | str,
    *,
    population: int | Mapping[str, Any],
    local: LocalPlan | Mapping[str, Any],
    evaluate_every_seconds: float | None = None,
    evaluate_every_versions: int | None = None,
    evaluate_on_clients: int | None = None,
    virtual_seconds: float | None = None,
    versions: int | None = None,
    updates: int | None = None,
    target: float | None = None,
    patience: int | None = None,
    stop_metric: str | None = None,
    server: Mapping[str, Any] | None = None,
    privacy: Mapping[str, Any] | None = None,
    loss: str | Function = "cross_entropy",
    metrics: Sequence[str] | Mapping[str, Function] | None = None,
    batch_norm: Literal["refuse", "local"] = "refuse",
    collate: Collate | None = None,
    augmentation: AugmentationName | None = None,
    trainer: TrainerName = "auto",
    device: str = "auto",
    precision: Precision = "float32",
    deterministic: bool = True,
    seed: int = 1,
    output: str | Path | None = None,
    progress: bool = True,
) -> "History":
    """Train a model over clients in virtual time, and return the evaluations.

    The arguments are not changed: each call starts from the same model.

    Args:
        model: A module, whose parameters are the initial ones, or a class or function that makes one.
        data: The name of a built-in data set, a ``Dataset``, or a pair (train, test) of data sets of torch or Hugging
            Face, or of pairs of arrays.
        algorithm: For instance ``FedBuff(buffer_size=5)``, or a name for the algorithm with its defaults.
        population: The number of clients, or a table as ``[population]`` in an experiment's file. In it,
            ``step_seconds``, ``down_bytes_per_second``, ``up_bytes_per_second`` and ``availability`` may be arrays with
            a value for each client, or functions of the client's number; see ``given_devices``.
        local: The work of a client in a visit: a plan, or a table as ``[local]``. In it, ``steps`` may be a function of
            the client's number of examples.
        evaluate_every_seconds: Virtual seconds between two evaluations on the test set; exactly one of this and the
            next is needed. The first and the last model are always evaluated.
        evaluate_every_versions: Versions between two evaluations: at the instant at which the version reaches or
            passes a multiple of this.
        evaluate_on_clients: How many available clients measure each evaluated version on their held-out examples; needs
            ``holdout`` in ``population``.
        virtual_seconds: When the run ends; the first of these three limits counts, and at least one is needed.
        versions: The number of versions after which the run ends.
        updates: The number of counted updates after which the run ends.
        target: The run also ends at the first evaluation at which a metric has reached this value.
        patience: It also ends once so many evaluations in a row have not had a better value of the metric.
        stop_metric: The metric of the two: one on the test set, or one over clients such as ``client_accuracy_mean``;
            by default the first metric, or the loss if there is none.
        server: A table as ``[server]``.
        privacy: A table as ``[privacy]``.
        loss: The name of a built-in loss, such as ``model`` for the one that the model returns when called with
            labels; or a module or function of (outputs, labels) that returns the mean, such as
            ``nn.CrossEntropyLoss()``.
        metrics: Names of built-in metrics or ``training_loss``, or functions of the test set's (outputs, labels) by
            name. Default: those of the labels, such as accuracy; see ``default_metrics``.
        batch_norm: How to treat BatchNorm layers; as ``model.batch_norm``.
        collate: Pads a list of your examples to a batch; as ``data.collate``.
        augmentation: ``crop-and-flip`` shifts and mirrors training images at random; as ``data.augmentation``.
        trainer: ``loop`` for one client after the other, ``vmap`` for many at once, ``processes`` for several, each in
            a process of its own, ``ray`` for several on the cluster of ``RAY_ADDRESS``, or else on this machine;
            ``auto`` chooses by the model.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; ``auto`` takes a CUDA GPU where there is one.
        precision: ``float32``, ``tf32`` on NVIDIA GPUs, or ``bf16`` in forward passes.
        deterministic: On a GPU, use only operations that give the same bits each time.
        seed: Fixes clients, devices, minibatches and, if ``model`` is a class or function, the initial model.
        output: A folder for ``history.parquet``, ``events.parquet`` (a row for each visit), ``clients.parquet`` (a row
            for each client's evaluation) and ``model.safetensors``.
        progress: Whether to show a progress bar.

    Returns:
        A row for each evaluation: seconds (virtual), version, counted, unused, lost, bytes_down, bytes_up,
        displacement (the length of the model's way), loss, and a column for each metric; with ``privacy`` also what
        was spent, epsilon and epsilon_replace_one; with ``evaluate_on_clients`` statistics of the clients' metrics,
        such as client_accuracy. The table has the attributes ``model`` (the final one), ``algorithm`` and ``events``
        (a table of visits).

    Raises:
        OffbeatError: An argument is wrong, or two do not fit together; the message is one line.

    Examples:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        >>> local = {"steps": 5, "batch_size": 10, "lr": 0.1}
        >>> history = offbeat.simulate(
        ...     model, "digits", "fedbuff", population=20, local=local, updates=20, evaluate_every_versions=1
        ... )
        fedbuff, seed 1: ... % after 20 updates
        >>> int(history.counted.iloc[-1])
        20
    """
    began = time.monotonic()
    label = label_of(algorithm)
    experiment = experiment_of(
        {
            "name": label,
            "seeds": [seed],
            "trainer": trainer,
            "device": device,
            "precision": precision,
            "deterministic": deterministic,
            "data": {
                "name": given_unless_named(data),
                "augmentation": augmentation,
                "collate": given_unless_named(collate),
            },
            "model": {"name": Given.of(model), "loss": given_unless_named(loss), "batch_norm": batch_norm},
            "local": local_of(local),
            "population": population_of(population),
            "server": server,
            "privacy": privacy,
            "stop": {
                "virtual_seconds": virtual_seconds,
                "versions": versions,
                "updates": updates,
                "target": target,
                "patience": patience,
                "metric": stop_metric,
            },
            "evaluate": {
                "every_seconds": evaluate_every_seconds,
                "every_versions": evaluate_every_versions,
                "metrics": metrics_of(metrics),
                "on_clients": evaluate_on_clients,
            },
            "algorithms": {label: {"algorithm": algorithm_of(algorithm)}},
        }
    )
    dataset = build_dataset(experiment.data)
    experiment = with_default_metrics(experiment, dataset)
    folder = None if output is None else make_folder(Path(output))
    (seed,) = experiment.seeds
    shown = metric_name(experiment.metrics[0]) if experiment.metrics else None
    bars = Progress(Console(quiet=not progress), experiment.stop, shown)
    evaluations: list[Evaluation] = []
    with experiment.accelerator().numerics():
        clients = build_population(experiment.population, dataset, seed)
        workers = 1 if trainer == "loop" else available_processors()
        simulation = build_simulation(experiment, label, seed, dataset, population=clients, workers=workers)
        for line in warnings_of(experiment, clients):
            bars.warn(line)
        with bars, errors_named(label):
            bars.begin(label, seed)
            for evaluation in simulation.run():
                evaluations.append(evaluation)
                bars.advance(label, seed, evaluation)
            bars.end(label, seed)
        by_label = simulation.workload.accuracy_by_label(simulation.model)
    flat_model = simulation.workload.model
    # Imported here, because pandas takes long to import.
    from offbeat.api.history import History

    trained = simulation.coordinator.algorithm
    chosen = {"trainer": simulation.trainer, "device": str(experiment.accelerator().device)}
    config = config_of(experiment.model_copy(update=chosen), label, dataset.name, trained)
    record = RunRecord(
        label,
        seed,
        config,
        versions_of(config, dataset) | {"kernel": simulation.kernel},
        evaluations,
        pa.Table.from_pylist([visit._asdict() for visit in simulation.ended], EVENTS),
        simulation.evaluated_by,
        flat_model.saved(simulation.model.cpu()),
        time.monotonic() - began,
        by_label,
        simulation.client_time,
        simulation.workload.objective.bounds,
    )
    history = History(
        evaluations,
        model=_final_module(flat_model, simulation.model),
        algorithm=trained,
        events=record.visits.to_pandas(),
        record=record,
    )
    if folder is not None:
        write_output(folder, history, record)
    return history


def _final_module(model: FlatModel, vector: Tensor) -> nn.Module:
    model.load(vector)
    model.module.zero_grad(set_to_none=True)
    return model.module.cpu().eval()
