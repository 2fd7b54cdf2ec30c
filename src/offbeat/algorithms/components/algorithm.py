"""The contract between an algorithm and its driver.

``Algorithm`` also holds the implementation that every algorithm inherits.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, dataclass_transform

from offbeat_core.local_plan import LocalPlan
from offbeat_core.number_checks import check_count, is_number, plain_number
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import (
    DOES_NOT_COUNT,
    Aggregate,
    ClosedBuffer,
    Weight,
    WrongStepError,
    returned,
)
from offbeat.algorithms.components.client_update import Update, check_client, check_update
from offbeat.algorithms.components.component import Component, RunFacts, prefixed, restored, saved, under
from offbeat.algorithms.components.hooks import Hooks, Schedule_co
from offbeat.algorithms.components.hyper_parameters import check_hyper_parameters
from offbeat.algorithms.components.lazy_model import LazyModel
from offbeat.algorithms.components.weights import Shares


@dataclass_transform(kw_only_default=True, eq_default=False)
class Algorithm(Hooks[Schedule_co]):
    """A server-side algorithm: a pure state machine.

    It has no clock, thread, file, socket or global random state. A value out of range raises a ``ValueError``.

    **For authors.** A subclass declares its hyper-parameters as annotated class attributes with defaults; they become
    keyword arguments, are checked against their annotations, and are the keys of the TOML table. It then overrides
    methods of ``Hooks``, most of them

    - ``compose``: its components, from the hyper-parameters alone: ``self.schedule``, ``self.buffer``, others;
    - ``weigh``: how much an update counts, as it arrives;
    - ``is_ready``: whether there is a new version, once the schedule lets the buffer close;
    - ``next_model``: the next model from this one and the closed buffer, later, when the model is read.

    There are two clocks. ``weigh``, ``note`` and ``is_ready`` see ``self.version``, which moves as updates arrive.
    ``next_model`` runs later, so it uses ``closed.version``; state that only ``next_model`` changes moves when the
    model is read. Every attribute that ``compose`` or ``begin`` assigns is saved and restored: components, tensors,
    numbers, and dicts of numbers.

    **For drivers.** The order of calls is ``start`` (or ``load_state_dict``), then ``assign`` whenever ``slots`` asks
    for clients, ``receive`` or ``drop`` for each of them, and ``tick`` every ``period`` seconds where there is a
    period. An algorithm identifies work by its client and version; the driver distinguishes two visits of one client
    from the same version, as ``Coordinator`` does.

    **How it works.** The schedule says when the buffer may close (``_close``). Then the version moves at once, and the
    step to the new model is kept until the model is read (``_make_version``).

    Examples:
        >>> from offbeat.algorithms.components import Continuous, Sum
        >>> class Plain(Algorithm):
        ...     name = "plain"
        ...     server_lr: float = 1.0
        ...
        ...     def compose(self):
        ...         self.schedule, self.buffer = Continuous(concurrency=10), Sum()
        ...
        ...     def next_model(self, model, closed):
        ...         return model - self.server_lr * closed.total()
        >>> Plain(server_lr=0.5).server_lr
        0.5
    """

    _sealed: Sequence[ClosedBuffer] = ()
    _discarded = 0
    _refused_steps: Mapping[int, str] = MappingProxyType({})

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # An __init__ that an author wrote, here or in a base class, stays.
        is_written = cls.__init__ is not object.__init__ and not hasattr(cls.__init__, "is_generated")
        dataclass(kw_only=True, eq=False, repr=False, init=not is_written)(cls)
        if not is_written:
            cls.__init__.is_generated = True  # pyright: ignore[reportFunctionMemberAccess]

    def __post_init__(self) -> None:
        check_hyper_parameters(self)
        self.check_values()
        settings = set(vars(self))
        self.compose()
        self._check_payload()
        self._state = set(vars(self)) - settings - {"payload"}  # names of attributes

    def _check_payload(self) -> None:
        needed = self.buffer.payload if hasattr(self, "buffer") else None
        if needed not in (None, self.payload):
            buffer = type(self.buffer).__name__
            raise ValueError(f"{self.name}: {buffer} needs payload = {needed!r}, it is {self.payload!r}")

    def age(self, update: Update) -> int:
        """Return the update's staleness τ: versions made since its client began."""
        return self._version - update.version

    @property
    def model(self) -> Tensor:
        """The current model, float32 ``(d,)``.

        It is never changed in place. Reading it may train.
        """
        return self._model.read()

    def at(self, version: int) -> AbstractContextManager[bool]:
        """Let ``model`` and ``down()`` be those of a version; see ``LazyModel.at``."""
        return self._model.at(version)

    @property
    def result(self) -> Tensor:
        """The current model, or the average of models where the algorithm keeps one."""
        return self.model

    @property
    def displacement(self) -> float:
        """The length of the model's way so far, step by step: Σ‖w_{t+1} − w_t‖."""
        self._model.read()
        return self._model.displacement

    @property
    def version(self) -> int:
        """The number of server steps taken."""
        return self._version

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self._clients

    @property
    def round(self) -> int | None:
        """The number of the open round or period; None if clients may return at any time.

        A client is assigned once a round. A round in which its update came counts as its turn, too.
        """
        return self.schedule.number

    @property
    def wants_all(self) -> bool:
        """True if every update counts, however late: ``wants`` is always true."""
        return self.schedule.wants_all

    def grow(self, clients: int) -> None:
        """Let the run have so many clients N, more than before.

        Raises:
            ValueError: The algorithm does not allow it: see ``grows``.
        """
        if not self.grows or self.averages_all_clients:
            raise ValueError(f"{self.name} cannot have more clients in a run: its steps depend on their number N")
        self.schedule.grow(clients)
        self._clients = clients

    @property
    def weighs_all_clients(self) -> bool:
        """True if the average is over all N clients, by the data weights given to start."""
        return any(isinstance(part, Shares) and part.weighting == "examples" for part in vars(self).values())

    @property
    def averages_all_clients(self) -> bool:
        """True if weights are clients' shares of all N, 1/N for equal ones."""
        return any(isinstance(part, Shares) for part in vars(self).values())

    @property
    def sealed(self) -> Sequence[ClosedBuffer]:
        """The sums that were closed but not yet revealed, oldest first."""
        return self._sealed

    @property
    def released(self) -> int:
        """The number of sums released so far: sealed, discarded, and made into versions."""
        return self.opened + len(self._sealed)

    @property
    def opened(self) -> int:
        """The number of sums released so far that are not sealed any more."""
        return self._version + self._discarded

    @property
    def refused_steps(self) -> Mapping[int, str]:
        """The reasons for refused server steps, by the version that they began from."""
        return self._refused_steps

    def returns_in(self, client: int) -> int | None:
        """Return the round, open or later, in which the client may be assigned again.

        When that round opens, the answer may be a later one.
        """
        return self.schedule.returns_in(client)

    def wrap(self, wrapper: Callable[["Algorithm[Any]"], Aggregate]) -> None:
        """Put a wrapper around the buffer, before ``start``; the last one is outermost."""
        self.buffer = wrapper(self)

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        """Begin a run and forget any run before it.

        Args:
            model: Initial model w_0, float32 ``(d,)``; copied.
            clients: Number of clients N.
            data_weights: Each client's share of the objective, ``(N,)``; None for uniform. Algorithms that average
                over arrivals ignore it.

        Raises:
            ValueError: The model is not a finite float32 vector, or the hyper-parameters do not fit the run; nothing
                has changed.
            TypeError: A part of the state cannot be saved.
        """
        check_count("clients", clients)
        initial = LazyModel(model, self.max_step_norm)
        run = RunFacts(initial.length, clients, data_weights, model.device)
        components = [part for name in sorted(self._state) if hasattr(part := getattr(self, name), "check_run")]
        self.check_run(run)
        for component in components:
            component.check_run(run)
        for component in components:
            component.start(run)
        self._model, self._version, self._clients = initial, 0, clients
        self._sealed, self._discarded = [], 0
        self._refused_steps = initial.refused_steps
        before = set(vars(self))
        self.begin(initial.read())
        self._state |= set(vars(self)) - before
        self._known = {*vars(self), "_known", "now"}
        for name in self._state:
            if not hasattr(getattr(self, name), "check_run"):
                saved(name, getattr(self, name))

    def slots(self) -> int:
        """Return how many clients are wanted now, beyond those already assigned."""
        return self.schedule.slots()

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        """Record that the client works from the current version; return its plan.

        Raises:
            ValueError: The client does not exist; the run's plan does not suit; or, where there are rounds, the client
                had its turn or the round is full. Nothing has changed.
        """
        check_client(client, self._clients)
        if local.compression is not None and self.payload == "params":
            raise ValueError(f"{self.name} uploads whole models, which cannot be compressed: leave compression out")
        plan: Any = self.plan(client, local)
        if not isinstance(plan, LocalPlan):
            raise WrongStepError(f"plan must return a LocalPlan, {returned(plan)}", self.plan)
        self.schedule.assign(client, self._version)
        return plan

    def scale(self, update: Update) -> float:
        """Return the factor of an update that was divided by ``divisor``.

        It is 0 if the update does not count. Where all clients are averaged, the factor leaves out their share 1/N.
        """
        weight = self._weight_of(update)
        assert update.plan is not None
        factor = (weight.value if isinstance(weight, Weight) else weight) * self.divisor(update.plan)
        return factor / (1 / self._clients) if self.averages_all_clients else factor

    def _weight_of(self, update: Update) -> float | Weight:
        """Return the checked weight of an update, a number of Python."""
        weight: Any = self.weigh(update)
        number = plain_number(weight.value if isinstance(weight, Weight) else weight)
        if not is_number(number) or not 0 <= number < math.inf:
            found = returned(number if isinstance(weight, Weight) else weight)
            to_leave_out = " If the update does not count, return DOES_NOT_COUNT" if weight is None else ""
            raise WrongStepError(f"weigh must return a finite number of at least 0, {found}{to_leave_out}", self.weigh)
        return weight if isinstance(weight, Weight) else number

    def wants(self, client: int, version: int) -> bool:
        """Return whether an update of the client from this version would count now."""
        return self.schedule.wants(client, version)

    def receive(self, update: Update) -> bool:
        """Take an update in; return whether there is a new version.

        An unwanted update changes nothing. A malformed or refused one raises ``ValueError`` and changes nothing. Only
        metadata is checked: the producer of the vector has called ``check_vector``.
        """
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        weight = self._weight_of(update)
        if weight is not DOES_NOT_COUNT:
            self.buffer.add(update, weight)
        self.note(update)
        return self.schedule.hear(update.client) and self._close()

    def drop(self, client: int, version: int) -> bool:
        """Free the slot of a client that is late; return whether there is a new version.

        Its update still counts if it comes while ``wants`` is true.
        """
        return self.schedule.lose(client, version) and self._close()

    def forget(self, client: int, taken: Mapping[str, int] | None = None) -> dict[str, int]:
        """Take a client's updates out of the open buffers, and delete what is kept of it.

        The client must not come again. Which updates can still be told apart depends on when the state was saved last,
        so that a replay is given what the first call returned.

        Args:
            client: The client.
            taken: How many updates each component takes out; None for all that it can.

        Returns:
            How many updates each component has taken out; without those that have taken out none.
        """
        check_client(client, self._clients)
        self._model.read()  # steps that are due use what is kept
        parts = {name: getattr(self, name) for name in sorted(self._state)}
        found = {
            name: len(part.forget(client, sys.maxsize if taken is None else taken.get(name, 0)))
            for name, part in parts.items()
            if isinstance(part, Component)
        }
        return {name: number for name, number in found.items() if number}

    def tick(self) -> bool:
        """Let a period or a round end; return whether there is a new version.

        To be called when a period, a deadline or a round's last lease has passed.
        """
        return self.schedule.tick() and self._close()

    def reveal(self, opened: Tensor) -> bool:
        """Make the new version of the oldest sealed sum, opened; return True.

        A ``ValueError`` if no sum is sealed or ``opened`` cannot be such a sum; nothing has changed.
        """
        closed = self.buffer.reveal(self._oldest_sealed(), opened)
        closed.version = self._version
        self._sealed = self._sealed[1:]
        return self._make_version(closed)

    def discard(self) -> None:
        """Forget the oldest sealed sum, which cannot be opened; there is no version.

        A ``ValueError`` if no sum is sealed; nothing has changed.
        """
        self._oldest_sealed()
        self._sealed = self._sealed[1:]
        self._discarded += 1
        if self.schedule.has_rounds:
            self.schedule.open()

    def withdraw(self, client: int) -> None:
        """Take a client's update out of the oldest sealed sum, which the helper refused.

        If fewer than the buffer's ``least`` are left, they go into the sum that is being filled.

        Raises:
            ValueError: No sum is sealed, or the client is not in it; nothing has changed.
        """
        left = self.buffer.without(self._oldest_sealed(), client)
        self._sealed = self._sealed[1:] if left is None else [left, *self._sealed[1:]]
        if left is None and self.schedule.has_rounds:
            self.schedule.open()
        elif left is None:
            self._close()

    def _oldest_sealed(self) -> ClosedBuffer:
        if not self._sealed:
            raise ValueError("no sum is sealed: there is nothing to reveal")
        return self._sealed[0]

    def _close(self) -> bool:
        """Release the buffer if it is ready; where there are rounds, open the next."""
        self.buffer.advance(self.schedule.number)
        wants_close: Any = self.is_ready()
        if wants_close is None:
            raise WrongStepError(f"is_ready must return True or False, {returned(None)}", self.is_ready)
        is_ready = wants_close and self.buffer.count >= self.buffer.least
        has_rounds = self.schedule.has_rounds
        if has_rounds:
            self.schedule.close()
        if is_ready:
            closed = self.buffer.release(self._version)
            if not closed.sealed:
                return self._make_version(closed)
            self._sealed = [*self._sealed, closed]
        elif has_rounds:
            self.schedule.open()
        return False

    def _make_version(self, closed: ClosedBuffer) -> bool:
        self._model.step(lambda model: self.next_model(model, closed), closed.version, self.next_model)
        self._version += 1
        if self.schedule.has_rounds:
            self.schedule.open()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values.

        Raises:
            TypeError: The state has an attribute that was not assigned by ``compose`` or ``begin``.
        """
        model = self.model.clone()  # first: reading it carries out the steps that change other state
        if late := vars(self).keys() - self._known:
            raise TypeError(f"{self.name}.{min(late)} was first assigned during the run: assign it in begin")
        state = {
            "model": model,
            "clients": self._clients,
            "version": self._version,
            "sealed": len(self._sealed),
            "discarded": self._discarded,
            "displacement": self._model.displacement,
            "refused_steps": list(self._refused_steps.items()),
        }
        for name in sorted(self._state):
            state |= saved(name, getattr(self, name))
        for number, closed in enumerate(self._sealed):
            state |= prefixed(f"sealed.{number}", self.buffer.sealed_state(closed))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of the same hyper-parameters, in place of ``start``."""
        self.start(state["model"], state["clients"])
        self._version = self._model.version = state["version"]
        self._model.displacement = state["displacement"]
        self._model.refused_steps.update(state["refused_steps"])
        for name in self._state:
            setattr(self, name, restored(name, getattr(self, name), state))
        self._discarded = state.get("discarded", 0)  # earlier states have none
        sealed = [under(f"sealed.{number}", state) for number in range(state["sealed"])]
        self._sealed = [self.buffer.sealed_from(part) for part in sealed]
