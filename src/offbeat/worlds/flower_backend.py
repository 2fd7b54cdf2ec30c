"""The trainer's backend of ``[flower]``."""

from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.tables.validation_errors import error_prefix

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.experiment_sections import FlowerSection
from offbeat.config.import_path import load_object
from offbeat.training.trainers.backend import Backend
from offbeat.training.workload import Workload


def build_flower_backend(
    section: FlowerSection, workload: Workload, algorithm: Algorithm, plan: LocalPlan, clients: int
) -> Backend:
    """Return the backend that calls the app.

    Raises:
        OffbeatError: Flower is not installed, the app cannot be loaded, or the algorithm needs what no app can do.
    """
    if algorithm.corrects_gradients:
        raise OffbeatError(f"{algorithm.name} corrects each local gradient: that is not possible with Flower's apps")
    if algorithm.weighs_all_clients:
        raise OffbeatError(
            f"{algorithm.name} weighs all clients by their examples, which only the app knows: set weighting = "
            '"uniform"'
        )
    if plan.steps_by is not None:
        raise OffbeatError(
            "local: only the app knows how many examples a client holds: set local.steps to a number, or epochs in "
            "flower.run_config if the app has such a setting"
        )
    try:
        from offbeat.flower.app_config import read_run_config
        from offbeat.flower.backend import FlowerBackend
        from offbeat.flower.client_app import FlowerApp
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("flwr"):
            raise
        raise OffbeatError("[flower] needs Flower: pip install 'offbeat[flower]'") from None
    with error_prefix("flower.app"):
        app = FlowerApp(
            load_object(section.app),
            run_config=read_run_config(Path.cwd(), None) | section.run_config,
            node_config={"num-partitions": clients},
        )
    return FlowerBackend(workload, app, needs_loss=algorithm.needs_loss)
