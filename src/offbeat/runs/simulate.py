"""``offbeat.simulate``: simulations from notebooks and scripts."""

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from safetensors.torch import save
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.algorithm_table import build_algorithm
from offbeat.config.client_evaluation import check_client_evaluation
from offbeat.config.early_stop import early_stop
from offbeat.config.experiment_file import check_lease
from offbeat.config.experiment_sections import EvaluateSection, ServerSection, StopSection
from offbeat.config.population_sections import PopulationSection
from offbeat.config.privacy_section import PrivacySection
from offbeat.data.catalogue import load_dataset
from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.data.user_examples import Collate
from offbeat.errors import OffbeatError
from offbeat.garbage_collection import rare_garbage_collection
from offbeat.runs.argument_errors import in_terms_of_arguments
from offbeat.runs.directory import EVENTS, disk_errors
from offbeat.runs.progress import Progress
from offbeat.runs.simulate_arguments import (
    Function,
    accelerator_of,
    check_arguments,
    module_of,
    objective_of,
    plan_of,
    table_of,
)
from offbeat.simulation.records import Evaluation
from offbeat.training.accelerator import Precision
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.choice import available_processors
from offbeat.training.trainers.names import TrainerName
from offbeat.training.training_loss import TRAINING_LOSS
from offbeat.training.workload import Workload
from offbeat.worlds.given_devices import separate_given, with_given
from offbeat.worlds.population import build_population
from offbeat.worlds.simulation import World
from offbeat.worlds.workload import as_examples

if TYPE_CHECKING:
    from offbeat.runs.history import History


@contextmanager
def _one_thread() -> Generator[None]:
    """Use one thread, as runs do: more would add in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@in_terms_of_arguments
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
            a value for each client, or functions of the client's number; see ``with_given``.
        local: The work of a client in a visit: a plan, or a table as ``[local]``.
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
            name. Default: accuracy for a loss between classes, else none.
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
        A row for each evaluation: seconds (virtual), version, counted, unused, lost, bytes_down, bytes_up, loss, and a
        column for each metric; with ``privacy`` also what was spent, epsilon and epsilon_replace_one; with
        ``evaluate_on_clients`` statistics of the clients' metrics, such as client_accuracy. The table has the
        attributes ``model`` (the final one), ``algorithm`` and ``events`` (a table of visits).

    Raises:
        OffbeatError: An argument is wrong, or two do not fit together; the message is one line.
    """
    check_arguments(algorithm, batch_norm, augmentation, trainer, seed)
    if collate is not None and isinstance(data, str):
        raise OffbeatError(f"data = {data!r} with collate: collate is for data of your own, leave it out")
    dataset = load_dataset(data) if isinstance(data, str) else from_user(data, "data", collate=collate)
    seed = int(seed)
    if isinstance(population, Integral) and not isinstance(population, bool | int):  # for instance numpy's
        population = int(population)
    given: dict[str, Any] = {}
    if isinstance(population, Mapping):
        population, given = separate_given(population)
    section = table_of(PopulationSection, {"clients": population} if isinstance(population, int) else population)
    stop = table_of(
        StopSection,
        {
            "virtual_seconds": virtual_seconds,
            "versions": versions,
            "updates": updates,
            "target": target,
            "patience": patience,
            "metric": stop_metric,
        },
        "stop",
    )
    server_section = table_of(ServerSection, server or {})
    evaluate = table_of(
        EvaluateSection,
        {
            "every_seconds": evaluate_every_seconds,
            "every_versions": evaluate_every_versions,
            "on_clients": evaluate_on_clients,
        },
        "evaluate",
    )
    objective = objective_of(loss, metrics)
    folder = None if output is None else _make_folder(Path(output))
    accelerator = accelerator_of(device, precision, deterministic)
    bars = Progress(Console(quiet=not progress), stop, next(iter(objective.metrics), None))
    evaluations: list[Evaluation] = []
    with accelerator.numerics():
        try:
            check_lease(section, server_section)
            if "availability" in given and server_section.lease_seconds is None:
                raise OffbeatError("population.availability needs server.lease_seconds: some may not return")
            check_client_evaluation(
                evaluate, list(objective.metrics), holdout=section.holdout, is_private=privacy is not None
            )
            names = [*objective.metrics, *([TRAINING_LOSS] if objective.training_loss else [])]
            train, test = as_examples(dataset)
            clients = with_given(build_population(section, dataset, seed), given)
            world = World(
                algorithm=build_algorithm(algorithm, {}) if isinstance(algorithm, str) else copy.deepcopy(algorithm),
                plan=plan_of(local),
                dataset=dataset,
                population=clients,
                workload=Workload(
                    FlatModel(module_of(model, seed), batch_norm=batch_norm),
                    objective,
                    train,
                    clients.shards,
                    seed,
                    test=test,
                    augmentation=augmentation,
                ),
                server=server_section,
                privacy=None if privacy is None else table_of(PrivacySection, privacy),
                stop=stop,
                early_stop=early_stop(stop, evaluate, names),
                evaluate=evaluate,
                trainer=trainer,
                workers=1 if trainer == "loop" else available_processors(),
                seed=seed,
                accelerator=accelerator,
            )
            simulation = world.build()
        except ValueError as error:
            raise OffbeatError(str(error)) from None
        name = algorithm if isinstance(algorithm, str) else algorithm.name
        with bars:
            bars.begin(name, seed)
            for evaluation in simulation.run():
                evaluations.append(evaluation)
                bars.advance(name, seed, evaluation)
            bars.end(name, seed)
    # Imported here, because pandas takes long to import.
    from offbeat.runs.history import History

    events = pa.Table.from_pylist([visit._asdict() for visit in simulation.ended], EVENTS)
    history = History(
        evaluations,
        model=_final_module(world.workload.model, simulation.model),
        algorithm=simulation.coordinator.algorithm,
        events=events.to_pandas(),
    )
    if folder is not None:
        rows = [evaluation.row() for evaluation in simulation.evaluated_by]
        _write(folder, history, events, rows, world.workload.model.named(simulation.model))
    return history


def _final_module(model: FlatModel, vector: Tensor) -> nn.Module:
    model.load(vector)
    model.module.zero_grad(set_to_none=True)
    return model.module.cpu().eval()


def _make_folder(folder: Path) -> Path:
    if (folder / "config.toml").exists():
        raise OffbeatError(f"output = {str(folder)!r} holds a run: choose another folder")
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(
    folder: Path,
    history: "History",
    events: pa.Table,
    evaluations_by_clients: Sequence[Mapping[str, Any]],
    model: Mapping[str, Tensor],
) -> None:
    with _disk_errors(folder):
        history.to_parquet(folder / "history.parquet", index=False)
        pq.write_table(events, folder / "events.parquet")
        if evaluations_by_clients:
            pq.write_table(pa.Table.from_pylist(list(evaluations_by_clients)), folder / "clients.parquet")
        (folder / "model.safetensors").write_bytes(save(dict(model)))


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    return disk_errors(f"into {folder}", "choose another output")
