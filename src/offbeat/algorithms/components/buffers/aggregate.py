"""Buffers of updates: filled as updates arrive, released to a server step."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from offbeat_core.local_plan import Payload
from offbeat_core.number_checks import short
from torch import Tensor

from offbeat.algorithms.components.buffers.running_sum import RunningSum
from offbeat.algorithms.components.client_update import Update, resolve
from offbeat.algorithms.components.component import Component, RunFacts, prefixed, under


class NotFiniteError(ValueError):
    """A sum of updates, or a model made from one, that is not finite.

    It has NaN or infinity in it, or overflows when it is squared.
    """


class WrongStepError(TypeError):
    """A step has not returned a vector like the model, or ``weigh`` not a weight.

    Args:
        message: What is wrong.
        method: The method that is to blame; the message names its file and line.
    """

    def __init__(self, message: str, method: Callable[..., Any] | None = None) -> None:
        place = place_of(method)
        super().__init__(f"{message} ({place})" if place else message)


def returned(value: object) -> str:
    """Return what a method returned, for a message."""
    return "it returned None: did it forget return?" if value is None else f"it returned {short(value)}"


def place_of(method: Callable[..., Any] | None) -> str:
    """Return file and line of a method; empty for code without a file."""
    code = getattr(method, "__code__", None)
    if code is None:
        return ""
    file = str(getattr(method, "__globals__", {}).get("__file__", code.co_filename))
    return "" if file.startswith("<") else f"{file}:{code.co_firstlineno}"


class Weight:
    """The weight of an update, where it is more than one number.

    Attributes:
        value: The factor of its vector.
        round: The round in which it counts; None for the next release.
        tallies: Numbers that the buffer sums beside the vectors, by name.
    """

    __slots__ = ("round", "tallies", "value")

    def __init__(self, value: float, *, round: int | None = None, **tallies: float) -> None:  # noqa: A002 - the paper's word
        self.value = value
        self.round = round
        self.tallies = tallies


DOES_NOT_COUNT: Final = Weight(0.0)
"""What ``weigh`` returns for an update that is received but does not count.

Examples:
    >>> class OnlyFresh(FedBuff):
    ...     def weigh(self, update):
    ...         return DOES_NOT_COUNT if self.age(update) > 5 else 1.0
"""


class Entry:
    """A single update in a buffer, as it arrived, with its factor and its tallies."""

    __slots__ = ("_length", "_vector", "tallies", "update", "weight")

    def __init__(self, update: Update, weight: float, length: int, tallies: Mapping[str, float] | None = None) -> None:
        self.update = update
        self.weight = weight
        self.tallies = tallies or {}
        self._length = length
        self._vector: Tensor | None = None

    @property
    def vector(self) -> Tensor:
        """The update's vector, float32 ``(d,)``; trains if that has not been done yet."""
        if self._vector is None:
            self._vector = resolve(self.update.vector, self._length)
        return self._vector

    @property
    def base(self) -> Tensor:
        """The model that the client started from, where the algorithm ``needs_base``."""
        assert self.update.base is not None
        return self.update.base


class ClosedBuffer:
    """The updates that a buffer has released for one server step.

    Attributes:
        count: How many updates it holds.
        weight: The sum of their weights.
        tallies: The sums of their tallies, by name.
        version: The version of the model that the step starts from.
        oldest: The version that the oldest update began from; None where the buffer does not know it.
        entries: The single updates, where the buffer keeps them.
        sealed: Whether a helper has to open the sum first.

    Args:
        total: Returns the weighted sum, float32 ``(d,)``, when it is needed.
        is_mean: Whether ``total`` returns a mean already, which ``mean`` does not divide.
    """

    def __init__(
        self,
        version: int,
        total: Callable[[], Tensor],
        *,
        count: int,
        weight: float = 0.0,
        tallies: Mapping[str, float] | None = None,
        oldest: int | None = None,
        entries: Sequence[Entry] = (),
        sealed: bool = False,
        is_mean: bool = False,
    ) -> None:
        self.version = version
        self.count = count
        self.weight = weight
        self.tallies = dict(tallies or {})
        self.oldest = oldest
        self.entries = entries
        self.sealed = sealed
        self._make = total
        self._total: Tensor | None = None
        self._divided = is_mean

    def total(self) -> Tensor:
        """Return the weighted sum of the updates, float32 ``(d,)``; computed once.

        Raises:
            NotFiniteError: The sum is not finite.
        """
        if self._total is None:
            total = self._make()
            check_finite(total, "the sum of the updates")
            self._total = total
        return self._total

    def mean(self, weight: float) -> Tensor:
        """Return the sum divided by ``weight``, in the sum's own memory.

        It is divided once: a step that failed may be tried again.
        """
        total = self.total()
        if not self._divided:
            total.div_(weight)
            self._divided = True
        return total


class Aggregate(Component):
    """A buffer of updates: the only place that holds clients' vectors.

    Attributes:
        linear: Whether it needs only weighted sums and never looks at a single vector.
        payload: What clients have to upload; None for anything.
        releases: In how many released sums one vector takes part.
        least: The fewest updates that are released; fewer wait for others.
    """

    linear: bool = True
    payload: ClassVar[Payload | None] = None
    releases: float = 1
    least: int = 0

    @property
    def count(self) -> int:
        """The number of updates added since the last release."""
        return self._count

    def start(self, run: RunFacts) -> None:
        self._run = run
        self._empty()

    def _empty(self) -> None:
        self._count = 0

    def advance(self, number: int | None) -> None:
        """Record that the round ``number`` ends, if updates may count in later rounds."""

    def held_back(self) -> Sequence[int]:
        """Return the clients whose updates the last release has left for a later one."""
        return ()

    @abstractmethod
    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in an update; a ``ValueError`` if it is refused, and nothing has changed."""

    @abstractmethod
    def release(self, version: int) -> ClosedBuffer:
        """Empty the buffer, and return its updates for the step from ``version``."""

    def reveal(self, closed: ClosedBuffer, opened: Tensor) -> ClosedBuffer:
        """Return the buffer of a sealed sum that was opened; else raise ``ValueError``."""
        raise _not_sealed()

    def without(self, closed: ClosedBuffer, client: int) -> ClosedBuffer | None:
        """Return a sealed sum without a client's update.

        Returns:
            The sum; None if too few updates are left, which are in the buffer again.

        Raises:
            ValueError: The client is not in it.
        """
        raise _not_sealed()

    def sealed_state(self, closed: ClosedBuffer) -> dict[str, Any]:
        """Return a sealed sum as a flat dict of tensors and plain values."""
        raise _not_sealed()

    def sealed_from(self, state: dict[str, Any]) -> ClosedBuffer:
        """Return a sealed sum from its state."""
        raise _not_sealed()


def _not_sealed() -> ValueError:
    return ValueError("this buffer is not sealed: it has nothing to reveal")


_NO_TALLIES: Mapping[str, float] = {}


class _Addend(NamedTuple):
    """An update in a sum, without its vector."""

    client: int
    version: int
    weight: float
    tallies: Mapping[str, float]


class Sum(Aggregate):
    """Σ weight · vector since the last release: one vector for any number of updates.

    An update can be taken out while its vector is a promise that waits; not once it is in the sum.

    Args:
        tallies: Names of numbers that are summed beside it.
    """

    def __init__(self, *tallies: str) -> None:
        self.tallies = tallies

    def _empty(self) -> None:
        super()._empty()
        self._sum = self._empty_sum()
        self._weight = 0.0
        self._oldest: int | None = None
        self._tallies = dict.fromkeys(self.tallies, 0.0)
        self._later: list[_Addend] = []  # from the first one on that has waited
        self._before = self._numbers()  # without these

    def _numbers(self) -> tuple[int, float, int | None, dict[str, float]]:
        return self._count, self._weight, self._oldest, dict(self._tallies)

    def add(self, update: Update, weight: float | Weight) -> None:
        factor, tallies = (weight.value, weight.tallies) if isinstance(weight, Weight) else (weight, _NO_TALLIES)
        self._add_vector(update, factor)
        if self._sum.waiting:
            if not self._later:
                self._before = self._numbers()
            self._later.append(_Addend(update.client, update.version, factor, tallies))
        self._count_in(update.version, factor, tallies)

    def _count_in(self, version: int, weight: float, tallies: Mapping[str, float]) -> None:
        self._weight += weight
        self._count += 1
        self._oldest = version if self._oldest is None else min(self._oldest, version)
        for name, number in tallies.items():
            self._tallies[name] += number

    def forget(self, client: int, most: int) -> list[float]:
        summed = len(self._later) - self._sum.waiting
        places = latest_places([addend.client for addend in self._later[summed:]], client, most)
        taken = [self._later[summed + place] for place in places]
        if taken:
            self._sum.remove(places)
            self._later = [one for place, one in enumerate(self._later, start=-summed) if place not in places]
            # Anew, in the order of the arrivals: so each number has the bits that it would have without them.
            self._count, self._weight, self._oldest, self._tallies = self._before
            self._before = self._numbers()
            for _, version, weight, tallies in self._later:
                self._count_in(version, weight, tallies)
        return [addend.tallies.get("examples", addend.weight) for addend in taken]

    def release(self, version: int) -> ClosedBuffer:
        numbers: dict[str, Any] = {"count": self._count, "weight": self._weight, "tallies": self._tallies}
        closed = ClosedBuffer(version, self._total(version), **numbers, oldest=self._oldest)
        self._empty()
        return closed

    def _empty_sum(self) -> RunningSum:
        return RunningSum(self._run)

    def _add_vector(self, update: Update, factor: float) -> None:
        self._sum.add(update.vector, factor)

    def _total(self, version: int) -> Callable[[], Tensor]:
        """Return the function that returns the sum of a release, float32 ``(d,)``."""
        return self._sum.total

    def state_dict(self) -> dict[str, Any]:
        numbers = {"count": self._count, "weight": self._weight, "oldest": self._oldest}
        state = {**numbers, **prefixed("tallies", self._tallies), **self._sum.state_dict()}
        self._later = []  # they are in the sum now
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count, self._weight = state["count"], state["weight"]
        self._oldest = state.get("oldest")  # earlier states have none
        self._tallies = under("tallies", state)
        self._later = []
        self._sum.load_state_dict(state)


def latest_places(clients: Sequence[int], client: int, most: int) -> list[int]:
    """Return the last places of a client among updates' clients, ``most`` at most."""
    places = [place for place, one in enumerate(clients) if one == client]
    return places[max(0, len(places) - most) :]


def check_finite(vector: Tensor, what: str) -> None:
    """Raise ``NotFiniteError`` unless the sum of squares is finite in float32.

    One pass over the vector. It refuses entries above 10¹⁹ as well, whose squares would overflow in an optimiser.
    """
    if not math.isfinite(vector.dot(vector).item()):
        raise NotFiniteError(f"{what} is not finite, or too large for 32 bits")
