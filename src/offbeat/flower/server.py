"""``run_on_grid``: an algorithm as a Flower ServerApp, which may resume its run."""

# pyright: reportMissingImports=false

import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from flwr.serverapp import Grid
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.flower.grid_run import GridRun
from offbeat.flower.model_arrays import ModelArrays
from offbeat.tensor_file import read_checkpoint, write_checkpoint


class SavedRun:
    """The state of a run in a folder, which one process at a time may use.

    Args:
        folder: The folder; it is made.
        settings: The run's, which must not change: plain values.

    Raises:
        OffbeatError: The folder is in use, or has a run with other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._path = folder / "run.safetensors"
        self._folder = folder
        self._settings = json.loads(json.dumps(settings))
        self._lock = FileLock(folder / ".lock", blocking=False)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise OffbeatError(f"another ServerApp is at work in {self._folder}: give each a folder") from None
        except OSError as error:
            raise OffbeatError(f"cannot use {self._folder}: {error.strerror}: take another folder") from None
        try:
            self._check_settings()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()

    def _check_settings(self) -> None:
        path = self._folder / "settings.json"
        if not path.exists():
            write_durably(path, json.dumps(self._settings, indent=1).encode())
            return
        try:
            saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise OffbeatError(f"{path} is broken: take another folder") from None
        for key, value in self._settings.items():
            if saved.get(key) != value:
                raise OffbeatError(
                    f"{self._folder} has a run with {key} = {saved.get(key)}, now it is {value}: set it back, or take "
                    "another folder"
                )

    def read(self) -> dict[str, Any] | None:
        """Return the saved state; None if there is none."""
        return read_checkpoint(self._path) if self._path.exists() else None

    def write(self, state: dict[str, Any]) -> None:
        """Save a state; a kill leaves the old one or the new one."""
        write_checkpoint(self._path, state)


_log = logging.getLogger("flwr")  # as of Flower's strategies: its lines are in the run's log


def run_on_grid(
    grid: Grid,
    algorithm: Algorithm,
    model: nn.Module,
    plan: LocalPlan,
    *,
    clients: int,
    versions: int,
    lease_seconds: float = 600.0,
    seed: int = 0,
    folder: Path | str | None = None,
    client_fn: bool = False,
    on_version: Callable[[int, dict[str, Tensor]], None] | None = None,
    look_seconds: float = 0.1,
) -> dict[str, Tensor]:
    """Run an algorithm on Flower's nodes, in the main function of a ServerApp.

    Args:
        grid: The ServerApp's Grid.
        algorithm: The algorithm, not started.
        model: Has the initial values, and the names by which the app gets them; it is not changed.
        plan: The clients' local training. Apps read it from the message's config; they may train in another way.
        clients: The most nodes that take part; further ones wait until one of these is offline.
        versions: The run ends at this version.
        lease_seconds: How long a node may take for an update; infinity for 12 hours, Flower's largest TTL.
        seed: Decides which nodes get work.
        folder: Where the run is saved: the same call resumes it. None saves nothing.
        client_fn: Whether the app is a ``ClientApp(client_fn)``, as of a ``NumPyClient``.
        on_version: Called with new versions and their ``state_dict``; not each, if several come at once.
        look_seconds: Seconds between two looks at the Grid.

    Returns:
        The ``state_dict`` of the final model.

    Raises:
        OffbeatError: The algorithm needs what apps cannot do, the settings do not go together, or the folder cannot be
            used.

    Examples:
        >>> @app.main()
        ... def main(grid, context):
        ...     plan = LocalPlan(steps=18, batch_size=10, lr=0.05)
        ...     algorithm = FedBuff(buffer_size=3, concurrency=6)
        ...     state = run_on_grid(grid, algorithm, Net(), plan, clients=10, versions=20)
    """
    _refuse_unsupported(algorithm, plan)
    arrays = ModelArrays(model)
    settings = _settings(algorithm, arrays, clients)
    try:
        coordinator = Coordinator(
            algorithm, arrays.vector, clients=clients, local=plan, seed=seed, lease_seconds=lease_seconds
        )
    except ValueError as error:
        raise OffbeatError(f"the algorithm: {error}") from None
    run = GridRun(grid, coordinator, arrays, client_fn, time.monotonic())

    def state_of(vector: Tensor) -> dict[str, Tensor]:
        complete = arrays.complete(arrays.named(vector), {})
        return {name: torch.from_numpy(array.copy()) for name, array in complete.items()}

    with ExitStack() as stack:
        saved = None
        if folder is not None:
            saved = stack.enter_context(SavedRun(Path(folder), settings))
            if (state := saved.read()) is not None:
                run.load_state_dict(state)
                _log.info("resumed at version %d", algorithm.version)
        seen = algorithm.version
        while algorithm.version < versions:
            has_update = run.step()
            if has_update and saved is not None:
                saved.write(run.state_dict())
            if algorithm.version > seen:
                seen = algorithm.version
                _log.info("version %d, %d updates counted", seen, coordinator.statistics.counted)
                if on_version is not None:
                    on_version(seen, state_of(algorithm.model))
            if not has_update:
                time.sleep(look_seconds)
        return state_of(algorithm.result)


def _refuse_unsupported(algorithm: Algorithm, plan: LocalPlan) -> None:
    reasons = {
        "needs all data in one place": algorithm.pooled,
        "corrects each local gradient": algorithm.corrects_gradients,
        "plans by clients' measured speeds": algorithm.measures,
        "weighs all clients by their examples before they train (set weighting = 'uniform')": (
            algorithm.weighs_all_clients
        ),
    }
    for reason, is_reason in reasons.items():
        if is_reason:
            raise OffbeatError(f"{algorithm.name} {reason}: that is not possible with Flower's apps")
    if plan.steps_by is not None:
        raise OffbeatError("plan.steps_by: only Flower's apps know how many examples they hold: leave it out")
    if plan.compression is not None:
        raise OffbeatError("plan.compression: Flower's apps return whole models: leave it out")


def _settings(algorithm: Algorithm, arrays: ModelArrays, clients: int) -> dict[str, Any]:
    """Return what must not change when the run resumes.

    The algorithm is not started.
    """
    values = {name: value for name, value in vars(algorithm).items() if isinstance(value, bool | int | float | str)}
    shapes = {name: list(shape) for name, shape in arrays.shapes.items()}
    return {"algorithm": {"name": algorithm.name, **values}, "clients": clients, "model": shapes}
