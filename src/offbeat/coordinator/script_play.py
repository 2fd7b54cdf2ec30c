"""Random scripts of a run, played by one algorithm without any training."""

import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan, Update
from offbeat.algorithms.components import Vector
from offbeat.coordinator.algorithm_checks import (
    FaultError,
    answered,
    attempt,
    check_model,
    check_restart,
    differing_parts,
    same_bits,
)
from offbeat.coordinator.coordinator import Coordinator
from offbeat.coordinator.visits import Assignment
from offbeat.tensor_file import read_checkpoint, write_checkpoint

_LEASE_SECONDS = 10.0
_KINDS = ("assign",) * 4 + ("arrive",) * 6 + ("drop", "duplicate", "lapse", "tick", "restart")
_VECTORS = 64

Step = tuple[str, int, int]
"""A kind of call; a number that picks the assignment that it is about; a number that picks the update's vector."""


def random_script(seed: str, steps: int) -> list[Step]:
    """Return a script of this length."""
    source = random.Random(seed)
    return [(source.choice(_KINDS), source.randrange(10**6), source.randrange(_VECTORS)) for _ in range(steps)]


class ScriptWorld:
    """The parts that all plays of a script have in common.

    Args:
        factory: Returns a new algorithm.
        clients: Number of clients N.
        length: The model's number of parameters d.
        local: The run's plan for a visit.
        seed: Of the vectors and of the coordinator.
    """

    def __init__(
        self, factory: Callable[[], Algorithm], clients: int, length: int, local: LocalPlan, seed: int
    ) -> None:
        self.factory = factory
        self.clients = clients
        self.local = local
        self.seed = seed
        numbers = np.random.default_rng(seed).standard_normal((_VECTORS, length)) / 10
        self.vectors = torch.tensor(numbers, dtype=torch.float32)
        self.model = torch.ones(length)

    def coordinator(self) -> Coordinator:
        """Return a new coordinator, with an algorithm whose answers are checked."""
        algorithm = attempt("the factory", self.factory)
        for method in ("receive", "drop", "tick"):
            setattr(algorithm, method, partial(answered, method, getattr(algorithm, method)))
        return Coordinator(
            algorithm,
            self.model,
            clients=self.clients,
            local=self.local,
            seed=self.seed,
            lease_seconds=_LEASE_SECONDS,
        )


class _Promise:
    """A vector that is computed when it is needed."""

    def __init__(self, vector: Tensor) -> None:
        self._vector = vector

    def resolve(self) -> Tensor:
        """Return the vector."""
        return self._vector


class ScriptPlay:
    """A script, played by one algorithm.

    Args:
        world: Makes the coordinator.
        reads: Read the model after every step.
        promises: Hand updates in as promises in place of tensors.
        restarts: Save and restore the coordinator where the script says so.

    Attributes:
        coordinator: The coordinator, another one after a restart.
        trace: The algorithm's answers, a tuple a step.
        suspects: The attributes that a restart has changed.
    """

    def __init__(
        self, world: ScriptWorld, *, reads: bool = False, promises: bool = False, restarts: bool = False
    ) -> None:
        self._world = world
        self._reads, self._promises, self._restarts = reads, promises, restarts
        self.coordinator = attempt("start", world.coordinator)
        self.trace: list[tuple[Any, ...]] = []
        self.suspects: list[str] = []
        self._now = 0.0
        self._at_work: list[Assignment] = []
        self._last: Update | None = None
        self._models: list[tuple[Tensor, Tensor]] = []  # the latest models as they were read, and copies
        for client in range(world.clients):
            self.coordinator.present(0.0, client)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, another one after a restart."""
        return self.coordinator.algorithm

    def play(self, script: Sequence[Step]) -> None:
        """Take all steps of a script."""
        # Half of the clients know their speed; the coordinator ignores it unless the algorithm measures.
        for client in range(1, self._world.clients, 2):
            attempt("note_speed", self.coordinator.note_speed, 0.0, client, 0.1 + client % 4, 0.3 * (client % 5))
        for kind, number, choice in script:
            self._now += 1.0
            answer = getattr(self, f"_{kind}")(number, choice)
            algorithm = self.algorithm
            self.trace.append((kind, answer, algorithm.version, algorithm.round, algorithm.slots()))
            if self._reads:
                self._read()

    def outcome(self) -> dict[str, Any]:
        """Return the final model and result."""
        model = attempt("reading the model", lambda: self.algorithm.model)
        check_model(model, len(self._world.model))
        for version, reason in self.algorithm.refused_steps.items():
            raise FaultError(f"the step from version {version} was refused: {reason}")
        return {"model": model, "result": self.algorithm.result}

    def _read(self) -> None:
        model = attempt("reading the model", lambda: self.algorithm.model)
        check_model(model, len(self._world.model))
        for before, copy in self._models:
            if not same_bits(before, copy):
                raise FaultError("the step changes the model in place: it must return a new tensor")
        self._models = [*self._models[-3:], (model, model.clone())]

    def _assign(self, number: int, choice: int) -> Any:
        assignments = attempt("assign", self.coordinator.assign, self._now)
        self._at_work += assignments
        return [(assignment.client, assignment.version, assignment.plan) for assignment in assignments]

    def _arrive(self, number: int, choice: int) -> Any:
        if not self._at_work:
            return None
        assignment = self._at_work.pop(number % len(self._at_work))
        client, visit, steps = assignment.client, assignment.visit, assignment.plan.steps
        vector = self._world.vectors[choice].clone()
        if self.coordinator.visits.assignment(client) != assignment:
            return None
        version = self.algorithm.version
        upload: Vector = _Promise(vector) if self._promises else vector
        report: dict[str, Any] = {
            "examples": 1 + choice,
            "steps": steps,
            "normaliser": float(steps),
            "base": self._world.vectors[version % _VECTORS].clone(),
            "since": assignment.since,
            "step_seconds": 0.1 + choice % 4,
            "upload_seconds": 0.3 * (choice % 5),
            "loss": 1.0,
        }
        receipt = attempt("receive", self.coordinator.receive, self._now, client, visit, upload, **report)
        if self.algorithm.version - version != receipt.new_version:
            raise FaultError(
                f"receive returned {receipt.new_version}, but the version went from {version} to "
                f"{self.algorithm.version}"
            )
        if receipt.counted:
            self._last = Update(client, assignment.version, upload, **report, plan=assignment.plan)
        self.coordinator.present(self._now, client)
        return receipt

    def _duplicate(self, number: int, choice: int) -> Any:
        """Repeat the last counted update, past the coordinator.

        The coordinator would not let it through.
        """
        update, algorithm = self._last, self.algorithm
        if update is None or attempt("wants", algorithm.wants, update.client, update.version):
            return None
        version = algorithm.version
        answer = attempt("receive", algorithm.receive, update)
        if answer or algorithm.version != version:
            raise FaultError("receive takes in an update that is not wanted: ask self.wants first, return False")
        return answer

    def _drop(self, number: int, choice: int) -> Any:
        if not self._at_work:
            return None
        assignment = self._at_work.pop(number % len(self._at_work))
        answer = attempt("drop", self.coordinator.drop, self._now, assignment.client, assignment.visit)
        self.coordinator.present(self._now, assignment.client)
        return answer

    def _lapse(self, number: int, choice: int) -> Any:
        self._now += _LEASE_SECONDS
        return attempt("drop or tick", self.coordinator.lapse, self._now)

    def _tick(self, number: int, choice: int) -> Any:
        if self.algorithm.period is None:
            return None
        return attempt("tick", self.coordinator.tick, self._now)

    def _restart(self, number: int, choice: int) -> None:
        if not self._restarts:
            return
        check_restart(self.algorithm, self._world.coordinator().algorithm)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            attempt("state_dict", lambda: write_checkpoint(path, self.coordinator.state_dict()))
            restored = self._world.coordinator()
            attempt("load_state_dict", restored.load_state_dict, read_checkpoint(path))
        self.suspects += differing_parts(self.algorithm, restored.algorithm)
        self.coordinator = restored
