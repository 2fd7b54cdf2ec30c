"""A check for user-defined algorithms.

It plays random scripts of a run, and reports a fault in one line.
"""

from collections.abc import Callable, Sequence

import torch

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.algorithms.components import WrongStepError
from offbeat.coordinator.algorithm_checks import (
    FaultError,
    attempt,
    check_declarations,
    check_down,
    check_failed_start,
    differing_entries,
    same_bits,
)
from offbeat.coordinator.script_play import ScriptPlay, ScriptWorld, Step, random_script

__all__ = ["AlgorithmError", "check_algorithm"]

_BEGINNING = [("assign", 0, 0), ("arrive", 0, 0), ("arrive", 0, 1)]


class AlgorithmError(AssertionError):
    """A fault of an algorithm, in one line.

    Examples:
        >>> class Forgetful(FedBuff):
        ...     def weigh(self, update):
        ...         pass  # returns None
        >>> check_algorithm(Forgetful)
        Traceback (most recent call last):
        offbeat.testing.AlgorithmError: Forgetful: weigh must return a finite number of at least 0, it returned ...
    """


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
    """Play random scripts of a run with an algorithm; nothing is trained.

    A script has assignments, arrivals, losses, duplicates, ticks and restarts.

    Each script is played several times, and all plays must come to the same model, bit for bit: once undisturbed;
    once with the model read after every step; once with promises in place of tensors; once saved to a checkpoint and
    restored.

    Args:
        factory: Returns a new algorithm, with the same hyper-parameters every time.
        clients: Number of clients N; 1 for an algorithm that is ``pooled``.
        length: The model's number of parameters d.
        scripts: Number of scripts.
        steps: Length of each script.
        seed: The seed of the scripts; the same seed makes the same scripts.
        local: The run's plan for a visit.

    Raises:
        AlgorithmError: The algorithm has a fault; one line names it.

    Examples:
        >>> check_algorithm(lambda: FedBuff(buffer_size=3, concurrency=6), scripts=2)
    """
    try:
        algorithm = attempt("the factory", factory)
    except FaultError as error:
        raise AlgorithmError(str(error)) from error.__cause__
    name = type(algorithm).__name__
    if not isinstance(algorithm, Algorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AlgorithmError(f"the factory must return an offbeat.algorithms.Algorithm, it returned {name}")
    world = ScriptWorld(factory, 1 if algorithm.pooled else clients, length, local or LocalPlan(2, 1, 0.1), seed)
    try:
        check_declarations(algorithm)
        _check_start(world)
        for number in range(scripts):
            _check_script(world, random_script(f"{seed} {number}", steps))
    except (FaultError, WrongStepError) as error:
        raise AlgorithmError(f"{name}: {error}") from error.__cause__


def _check_script(world: ScriptWorld, script: Sequence[Step]) -> None:
    """Play a script in every way; a ``FaultError`` if one comes to another model."""
    alone, read = ScriptPlay(world), ScriptPlay(world, reads=True)
    read.play(script)  # first: it sees a wrong step as it is made
    alone.play(script)
    _compare(
        alone,
        read,
        "it depends on when the model is read: next_model must use closed.version, not self.version, and change only "
        "what no other method reads",
    )
    promised = ScriptPlay(world, promises=True)
    try:
        promised.play(script)
        promised.outcome()
    except FaultError as error:
        raise FaultError(
            f"an update's vector may be a promise: use resolve(update.vector, length) ({error})"
        ) from error
    _compare(alone, promised, "promises of vectors come to another model: use resolve(update.vector, length)")
    restarted = ScriptPlay(world, restarts=True)
    restarted.play(script)
    names = ", ".join(map(repr, dict.fromkeys(restarted.suspects)))
    suspects = f"; after it {names} differ" if names else ""
    _compare(alone, restarted, f"a restart comes to other results: something is not saved{suspects}")


def _compare(alone: ScriptPlay, other: ScriptPlay, message: str) -> None:
    is_same = alone.trace == other.trace
    one, two = alone.outcome(), other.outcome()
    if not is_same or not all(same_bits(one[key], two[key]) for key in one):
        raise FaultError(message)


def _check_start(world: ScriptWorld) -> None:
    """Check that a failed start changes nothing and that a good one starts afresh.

    A start that succeeds must forget the run before.
    """
    for model, clients in ((torch.full_like(world.model, float("nan")), world.clients), (world.model, 1)):
        play = ScriptPlay(world)
        play.play(_BEGINNING)
        attempt("state_dict", play.algorithm.state_dict)
        attempt("start", check_failed_start, play.algorithm, model, clients)
    play, fresh = ScriptPlay(world), ScriptPlay(world)
    check_down(fresh.algorithm, len(world.model))
    play.play(_BEGINNING)
    attempt("start", play.algorithm.start, world.model, world.clients)
    changed = next(differing_entries(fresh.algorithm.state_dict(), play.algorithm.state_dict()), None)
    if changed is not None:
        raise FaultError(f"start does not forget the run before: {changed!r} differs")
