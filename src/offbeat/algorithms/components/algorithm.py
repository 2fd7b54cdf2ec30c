"""The contract between an algorithm and what drives it, and the driver that every algorithm inherits."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, cast, dataclass_transform

import torch
from torch import Tensor
from typing_extensions import TypeVar

from offbeat.algorithms.components.aggregate import (
    Aggregate,
    ClosedBuffer,
    NotFiniteError,
    Weight,
    WrongStepError,
    check_finite,
)
from offbeat.algorithms.components.checks import check_client, check_count
from offbeat.algorithms.components.component import Run
from offbeat.algorithms.components.hyper_parameters import check_hyper_parameters
from offbeat.algorithms.components.lazy_model import LazyModel
from offbeat.algorithms.components.schedule import NoSchedule, Schedule
from offbeat.algorithms.components.shares import Shares
from offbeat.algorithms.components.state import prefixed, restored, saved, under
from offbeat.algorithms.components.update import Update, check_update
from offbeat_client.local_plan import LocalPlan, Payload

Schedule_co = TypeVar("Schedule_co", bound=Schedule, default=Schedule, covariant=True)


@dataclass_transform(kw_only_default=True, eq_default=False)
class Algorithm(Generic[Schedule_co]):
    """A server-side algorithm: a state machine without clock, thread, file, socket or global random state.

    **For authors.** A subclass declares its hyper-parameters as annotated class attributes with defaults; they become
    keyword arguments, are checked against their annotations, and are the keys of the TOML table. It then writes

    - ``compose``: its components, from the hyper-parameters alone: ``self.schedule``, ``self.buffer``, others;
    - ``weigh``: how much an update counts, as it arrives;
    - ``is_ready``: whether there is a new version, once the schedule lets the buffer close;
    - ``next_model``: the next model from this one and the closed buffer, later, when the model is read.

    There are two clocks. ``weigh``, ``note`` and ``is_ready`` see ``self.version``, which moves as updates arrive.
    ``next_model`` runs later, so it uses ``closed.version``, and what only it changes moves when the model is read.
    Every attribute that ``compose`` or ``begin`` assigns is saved and restored: components, tensors, numbers, and
    dicts of numbers.

    **For drivers.** The order of life is ``start`` (or ``load_state_dict``), then ``assign`` whenever ``slots`` asks
    for clients, ``receive`` or ``drop`` for each of them, and ``tick`` every ``period`` seconds where there is a
    period. An algorithm knows work by its client and version; the driver distinguishes two visits of one client from
    the same version, as ``Coordinator`` does.

    Attributes:
        name: As in a configuration.
        payload: What clients upload: ``delta`` (start − end), ``params`` (the end point), or ``difference`` (the delta
            minus the client's last counted delta).
        needs_base: Updates must carry ``base``.
        needs_loss: Updates must carry ``loss``.
        weighs_by_examples: Updates weigh more the more examples their clients declare.
        corrects_gradients: Clients add ``down()`` minus a vector of their own to each local gradient; that vector
            becomes Δ_i / P − what they added, P the sum of their step sizes, once the update has counted.
        selection: How the coordinator picks the next client: a name, or what makes a pool from N and a seed.
        measures: It plans by what clients were measured at, so none may be refused before it counted; ``note_speed`` is
            called for each client that can tell its speed before its first visit.
        pooled: It is no federation: one client holds all the data, and nothing travels.
        period: Seconds between two ticks; None without a clock.
        now: Seconds at the driver's latest call; set by the driver.
        max_step_norm: The largest Euclidean norm of a server step, infinity for any; set by the run, before ``start``.
    """

    name: ClassVar[str]
    payload: Payload = "delta"
    needs_base: ClassVar[bool] = False
    needs_loss: ClassVar[bool] = False
    weighs_by_examples: ClassVar[bool] = False
    corrects_gradients: ClassVar[bool] = False
    selection: ClassVar[Any] = "uniform"
    measures: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    period: Any = None  # float | None, and whatever a subclass declares as its hyper-parameter
    now: float = 0.0
    max_step_norm: float = math.inf
    schedule: Schedule_co = cast(Any, NoSchedule())  # of an algorithm that implements the whole contract by itself
    buffer: Aggregate
    _sealed: Sequence[ClosedBuffer] = ()
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

    # What an author writes.

    def check_values(self) -> None:
        """Raise ``ValueError`` if the hyper-parameters do not go together."""

    def compose(self) -> None:
        """Assign ``schedule``, ``buffer`` and other components, from the hyper-parameters alone."""
        raise NotImplementedError(f"{type(self).__name__} must define compose")

    def check_run(self, run: Run) -> None:
        """Raise ``ValueError`` if the hyper-parameters do not fit the run."""

    def begin(self, model: Tensor) -> None:
        """Assign what else is saved: tensors, numbers, dicts of numbers. ``model`` is w_0, ``(d,)``."""

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        """Return the client's plan, made from the run's; a ``ValueError`` if that does not suit. Changes nothing."""
        return local

    def weigh(self, update: Update) -> float | Weight | None:
        """Return how much an update counts; None if it is heard but does not count. Changes nothing.

        Raises:
            ValueError: The update is refused.
        """
        return 1.0

    def note(self, update: Update) -> None:
        """Record what else an update says; it has been taken in."""

    def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Record how fast a client is that has had no visit yet; only where ``measures`` is true.

        Args:
            client: 0 ≤ client < N.
            step_seconds: Measured seconds a local step, ≥ 0.
            upload_seconds: Measured seconds for an uncompressed upload, ≥ 0.
        """

    def is_ready(self) -> bool:
        """Return whether the buffer makes a new version, now that the schedule lets it close."""
        return self.buffer.count > 0

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        """Return w_{t+1}, float32 ``(d,)``, a new tensor, from w_t and what was released for t = ``closed.version``."""
        raise NotImplementedError(f"{type(self).__name__} must define next_model")

    def age(self, update: Update) -> int:
        """Return the update's staleness τ: the versions made since the one that its client works from."""
        return self._version - update.version

    # What a driver calls.

    @property
    def model(self) -> Tensor:
        """The current model, float32 ``(d,)``; never changed in place. Reading it may train."""
        return self._model.read()

    @property
    def result(self) -> Tensor:
        """What the run has learnt so far, ``(d,)``: the current model, unless the algorithm averages its models."""
        return self.model

    @property
    def version(self) -> int:
        """How many server steps have been taken."""
        return self._version

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self._clients

    @property
    def round(self) -> int | None:
        """The number of the round or period that is open; None if clients may return at any time.

        A client that was assigned or heard in a round is not assigned again in it.
        """
        return self.schedule.number

    @property
    def wants_all(self) -> bool:
        """Whether every update counts, however late it comes: ``wants`` is then always true of it."""
        return self.schedule.wants_all

    @property
    def weighs_all_clients(self) -> bool:
        """Whether it averages over all N clients by their data weights, so that it needs them to start."""
        return any(isinstance(part, Shares) and part.weighting == "examples" for part in vars(self).values())

    @property
    def sealed(self) -> Sequence[ClosedBuffer]:
        """The sums that were closed but not yet revealed, oldest first."""
        return self._sealed

    @property
    def refused_steps(self) -> Mapping[int, str]:
        """Why server steps were refused and left the model as it was, by the version that they began from."""
        return self._refused_steps

    def returns_in(self, client: int) -> int | None:
        """Return the round in which a client that had its turn may be assigned again: the open one, or a later one."""
        return self.schedule.returns_in(client)

    def wrap(self, wrapper: Callable[["Algorithm[Any]"], Aggregate]) -> None:
        """Put a wrapper around the buffer, before ``start``; the last one is outermost.

        Raises:
            ValueError: The wrapper does not go with the algorithm.
        """
        self.buffer = wrapper(self)

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        """Begin a run; what came before is forgotten.

        Args:
            model: Initial model w_0, float32 ``(d,)``; copied.
            clients: Number of clients N.
            data_weights: Each client's share of the objective, ``(N,)``; None for uniform. Only for algorithms that
                average over all clients; those that average over arrivals have no use for it.

        Raises:
            ValueError: The model is not a finite float32 vector, or the hyper-parameters do not fit the run; nothing
                has changed.
            TypeError: A part of the state cannot be saved.
        """
        check_count("clients", clients)
        initial = LazyModel(model)
        run = Run(initial.length, clients, data_weights)
        components = [part for name in sorted(self._state) if hasattr(part := getattr(self, name), "check_run")]
        self.check_run(run)
        for component in components:
            component.check_run(run)
        for component in components:
            component.start(run)
        self._model, self._version, self._clients = initial, 0, clients
        self._sealed = []
        self._refused_steps = {}
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
        """Record that the client now has the current version; return its plan: the run's, changed if need be.

        Raises:
            ValueError: No such client; the run's plan does not suit; or, where there are rounds, the client had its
                turn or the round is full. Nothing has changed.
        """
        check_client(client, self._clients)
        if local.compression is not None and self.payload == "params":
            raise ValueError(f"{self.name} uploads whole models, which cannot be compressed: leave compression out")
        plan = self.plan(client, local)
        self.schedule.assign(client, self._version)
        return plan

    def wants(self, client: int, version: int) -> bool:
        """Return whether an update of this client, made from this version, would count if it came now."""
        return self.schedule.wants(client, version)

    def receive(self, update: Update) -> bool:
        """Take an update in; return whether there is a new version.

        An update that is not wanted changes nothing. Only metadata is looked at: linear buffers take the vector as it
        is, so its maker has called ``check_vector``.

        Raises:
            ValueError: The update is malformed or refused; nothing has changed.
        """
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        weight = self.weigh(update)
        if weight is not None:
            self.buffer.add(update, weight)
        self.note(update)
        return self.schedule.hear(update.client) and self._close()

    def drop(self, client: int, version: int) -> bool:
        """Give the client's slot up, since it was not heard in time; return whether there is a new version.

        Its update still counts if it comes while ``wants`` is true.
        """
        return self.schedule.lose(client, version) and self._close()

    def urgent(self) -> Sequence[int]:
        """Return the clients to ask now for what they have so far."""
        return ()

    def cancelled(self) -> Sequence[int]:
        """Return the clients at work whose updates are not wanted any more, so that they stop."""
        return ()

    def down(self) -> Tensor | None:
        """Return what goes to clients beside the model, float32 ``(d,)``; None for nothing. Reading it may train.

        It belongs to the version, and changes with it only.
        """
        return None

    def deadline(self) -> float:
        """Return when ``tick`` is to be called next, in the driver's seconds; infinity for never."""
        return math.inf

    def tick(self) -> bool:
        """Record that a period, a deadline or a round's last lease has passed; return whether there is a version."""
        return self.schedule.tick() and self._close()

    def reveal(self, answer: Tensor) -> bool:
        """Open the oldest sealed sum by a helper's answer; return whether there is a new version.

        Raises:
            ValueError: No sum is sealed, or the answer does not open it; nothing has changed.
        """
        if not self._sealed:
            raise ValueError("no sum is sealed: there is nothing to reveal")
        opened = self.buffer.reveal(self._sealed[0], answer)
        opened.version = self._version
        self._sealed = self._sealed[1:]
        return self._make_version(opened)

    def _close(self) -> bool:
        """Release the buffer if it is ready, and open the next round; return whether there is a new version."""
        is_ready = self.is_ready()
        has_rounds = self.schedule.has_rounds
        if has_rounds:
            self.schedule.close()
        if is_ready:
            closed = self.buffer.release(self._version)
            if closed.sealed is None:
                return self._make_version(closed)
            self._sealed = [*self._sealed, closed]
        elif has_rounds:
            self.schedule.open()
        return False

    def _make_version(self, closed: ClosedBuffer) -> bool:
        self._model.step(lambda model: self._advance(model, closed))
        self._version += 1
        if self.schedule.has_rounds:
            self.schedule.open()
        return True

    def _advance(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        """Return the next model; the same one if the step is refused."""
        try:
            proposed = self.next_model(model, closed)
            self._check_step(proposed)
            if self.max_step_norm < math.inf:
                step = proposed - model
                norm = torch.linalg.vector_norm(step, dtype=torch.float64).item()
                if norm > self.max_step_norm:
                    proposed = model.add(step, alpha=self.max_step_norm / norm)
            check_finite(proposed, "the new model")
        except NotFiniteError as error:
            self._refused_steps = {**self._refused_steps, closed.version: str(error)}
            return model
        return proposed

    def _check_step(self, proposed: object) -> None:
        length = self._model.length
        if not isinstance(proposed, Tensor):
            kind = type(proposed).__name__
        elif proposed.dtype != torch.float32 or proposed.shape != (length,):
            kind = f"{str(proposed.dtype).removeprefix('torch.')} of shape {tuple(proposed.shape)}"
        else:
            return
        raise WrongStepError(f"next_model must return float32 of shape ({length},), it returned {kind}")

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values.

        Raises:
            TypeError: The state has an attribute that was not assigned by ``compose`` or ``begin``.
        """
        model = self.model.clone()  # first: it carries out the steps that move the rest
        if late := vars(self).keys() - self._known:
            raise TypeError(f"{self.name}.{min(late)} was first assigned during the run: assign it in begin")
        state = {
            "model": model,
            "clients": self._clients,
            "version": self._version,
            "sealed": len(self._sealed),
            "refused_steps": list(self._refused_steps.items()),
        }
        for name in sorted(self._state):
            state |= saved(name, getattr(self, name))
        for number, closed in enumerate(self._sealed):
            state |= prefixed(f"sealed.{number}", closed.state_dict())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``, in place of ``start``; the hyper-parameters must be the same."""
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._refused_steps = dict(state["refused_steps"])
        for name in self._state:
            setattr(self, name, restored(name, getattr(self, name), state))
        sealed = [under(f"sealed.{number}", state) for number in range(state["sealed"])]
        self._sealed = [ClosedBuffer.from_state(of_one) for of_one in sealed]
