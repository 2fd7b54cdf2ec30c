"""A check for algorithms of one's own: random scripts of a run, and one line on what is wrong."""

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
from offbeat.algorithms.components import Vector, WrongStepError
from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.coordinator import Coordinator
from offbeat.coordinator.algorithm_checks import (
    FaultError,
    answered,
    attempt,
    check_declarations,
    check_down,
    check_failed_start,
    check_model,
    check_restart,
    differing_entries,
    differing_parts,
    same_bits,
)
from offbeat.coordinator.calls import Assignment

_LEASE_SECONDS = 10.0
_KINDS = ("assign",) * 4 + ("arrive",) * 6 + ("drop", "duplicate", "lapse", "tick", "restart")
_VECTORS = 64
_BEGINNING = [("assign", 0, 0), ("arrive", 0, 0), ("arrive", 0, 1)]
Step = tuple[str, int, int]


class AlgorithmError(AssertionError):
    """What is wrong with an algorithm, in one line."""


def check_algorithm(
    factory: Callable[[], Algorithm],
    *,
    clients: int = 20,
    length: int = 5,
    scripts: int = 20,
    steps: int = 80,
    seed: int = 0,
    local: LocalPlan | None = None,
) -> None:
    """Play random scripts of assignments, arrivals, losses, duplicates, ticks and restarts; nothing is trained.

    Each script is played several times, and all must come to the same model, bit for bit: once left alone; once with
    the model read after every step; once with promises in place of tensors; once saved to a checkpoint and restored.

    Args:
        factory: Returns a new algorithm, with the same hyper-parameters every time.
        clients: Number of clients N; 1 for an algorithm that is ``pooled``.
        length: The model's number of parameters d.
        scripts: How many scripts.
        steps: The length of each.
        seed: Of the scripts; the same seed makes the same scripts.
        local: The run's plan for a visit.

    Raises:
        AlgorithmError: Something is wrong; one line says what.
    """
    try:
        algorithm = attempt("the factory", factory)
    except FaultError as error:
        raise AlgorithmError(str(error)) from error.__cause__
    name = type(algorithm).__name__
    if not isinstance(algorithm, Algorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AlgorithmError(f"the factory must return an offbeat.algorithms.Algorithm, it returned {name}")
    world = _World(factory, 1 if algorithm.pooled else clients, length, local or LocalPlan(2, 1, 0.1), seed)
    try:
        check_declarations(algorithm)
        _check_start(world)
        for number in range(scripts):
            script = _script(random.Random(f"{seed} {number}"), steps)
            _check_script(world, script)
    except (FaultError, WrongStepError) as error:
        raise AlgorithmError(f"{name}: {error}") from error.__cause__


def _script(source: random.Random, steps: int) -> list[Step]:
    return [(source.choice(_KINDS), source.randrange(10**6), source.randrange(_VECTORS)) for _ in range(steps)]


class _World:
    """What all plays of a script have in common."""

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
        """Return a new run, of an algorithm whose answers are checked."""
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


class _Play:
    """A script, played by one algorithm.

    Attributes:
        trace: What the algorithm has answered, a tuple a step.
        suspects: The attributes that a restart has changed.
    """

    def __init__(self, world: _World, *, reads: bool = False, promises: bool = False, restarts: bool = False) -> None:
        self._world = world
        self._reads, self._promises, self._restarts = reads, promises, restarts
        self.coordinator = attempt("start", world.coordinator)
        self.trace: list[tuple[Any, ...]] = []
        self.suspects: list[str] = []
        self._now = 0.0
        self._at_work: list[Assignment] = []
        self._last: Update | None = None
        self._models: list[tuple[Tensor, Tensor]] = []
        for client in range(world.clients):
            self.coordinator.present(0.0, client)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, another one after a restart."""
        return self.coordinator.algorithm

    def play(self, script: Sequence[Step]) -> None:
        """Take all steps of a script."""
        for client in range(1, self._world.clients, 2):  # the others cannot tell; ignored unless the algorithm measures
            attempt("note_speed", self.coordinator.note_speed, 0.0, client, 0.1 + client % 4, 0.3 * (client % 5))
        for kind, number, choice in script:
            self._now += 1.0
            answer = getattr(self, f"_{kind}")(number, choice)
            algorithm = self.algorithm
            self.trace.append((kind, answer, algorithm.version, algorithm.round, algorithm.slots()))
            if self._reads:
                self._read()

    def _read(self) -> None:
        model = attempt("reading the model", lambda: self.algorithm.model)
        check_model(model, len(self._world.model))
        for before, copy in self._models:
            if not same_bits(before, copy):
                raise FaultError("the step changes the model in place: it must return a new tensor")
        self._models = [*self._models[-3:], (model, model.clone())]

    def _assign(self, number: int, choice: int) -> Any:
        given = attempt("assign", self.coordinator.assign, self._now)
        self._at_work += given
        return [(assignment.client, assignment.version, assignment.plan) for assignment in given]

    def _arrive(self, number: int, choice: int) -> Any:
        if not self._at_work:
            return None
        assignment = self._at_work.pop(number % len(self._at_work))
        client, visit, steps = assignment.client, assignment.visit, assignment.plan.steps
        vector = self._world.vectors[choice].clone()
        if self.coordinator.assignment(client) != assignment:
            return None
        version = self.algorithm.version
        handed: Vector = _Promise(vector) if self._promises else vector
        times = {"step_seconds": 0.1 + choice % 4, "upload_seconds": 0.3 * (choice % 5)}
        said: dict[str, Any] = {"examples": 1 + choice, "steps": steps, "normaliser": float(steps), **times}
        said |= {"base": self._world.vectors[version % _VECTORS].clone(), "since": assignment.since, "loss": 1.0}
        receipt = attempt("receive", self.coordinator.receive, self._now, client, visit, handed, **said)
        if self.algorithm.version - version != receipt.new_version:
            raise FaultError(
                f"receive returned {receipt.new_version}, but the version went from {version} to "
                f"{self.algorithm.version}"
            )
        if receipt.counted:
            self._last = Update(client, assignment.version, handed, **said, plan=assignment.plan)
        self.coordinator.present(self._now, client)
        return receipt

    def _duplicate(self, number: int, choice: int) -> Any:
        """Hand in the update that counted last once more, past the coordinator, which would not let it through."""
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

    def outcome(self) -> dict[str, Any]:
        """Return what the run has come to."""
        model = attempt("reading the model", lambda: self.algorithm.model)
        check_model(model, len(self._world.model))
        for version, reason in self.algorithm.refused_steps.items():
            raise FaultError(f"the step from version {version} was refused: {reason}")
        return {"model": model, "result": self.algorithm.result}


def _check_script(world: _World, script: Sequence[Step]) -> None:
    """Play a script in every way; an ``FaultError`` if one comes to something else."""
    alone, read = _Play(world), _Play(world, reads=True)
    read.play(script)  # first: it sees a wrong step as it is made
    alone.play(script)
    _compare(
        alone,
        read,
        "it depends on when the model is read: next_model must use closed.version, not self.version, and change only "
        "what no other method reads",
    )
    promised = _Play(world, promises=True)
    try:
        promised.play(script)
        promised.outcome()
    except FaultError as error:
        raise FaultError(
            f"an update's vector may be a promise: use resolve(update.vector, length) ({error})"
        ) from error
    _compare(alone, promised, "promises of vectors come to another model: use resolve(update.vector, length)")
    restarted = _Play(world, restarts=True)
    restarted.play(script)
    names = ", ".join(map(repr, dict.fromkeys(restarted.suspects)))
    forgotten = f"; after it {names} differ" if names else ""
    _compare(alone, restarted, f"a restart comes to other results: something is not saved{forgotten}")


def _compare(alone: _Play, other: _Play, message: str) -> None:
    is_same = alone.trace == other.trace
    one, two = alone.outcome(), other.outcome()
    if not is_same or not all(same_bits(one[key], two[key]) for key in one):
        raise FaultError(message)


def _check_start(world: _World) -> None:
    """Check that a start that fails changes nothing, and that one that succeeds forgets the run before."""
    for model, clients in ((torch.full_like(world.model, float("nan")), world.clients), (world.model, 1)):
        play = _Play(world)
        play.play(_BEGINNING)
        attempt("state_dict", play.algorithm.state_dict)
        attempt("start", check_failed_start, play.algorithm, model, clients)
    play, fresh = _Play(world), _Play(world)
    check_down(fresh.algorithm, len(world.model))
    play.play(_BEGINNING)
    attempt("start", play.algorithm.start, world.model, world.clients)
    changed = next(differing_entries(fresh.algorithm.state_dict(), play.algorithm.state_dict()), None)
    if changed is not None:
        raise FaultError(f"start does not forget the run before: {changed!r} differs")
