"""The part of an algorithm that its author writes, with the defaults."""

import math
from collections.abc import Collection
from typing import Any, ClassVar, Generic, cast

from offbeat_core.local_plan import LocalPlan, Payload
from torch import Tensor
from typing_extensions import TypeVar

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.client_update import Update
from offbeat.algorithms.components.component import RunFacts
from offbeat.algorithms.components.schedules.schedule import NoSchedule, Schedule

Schedule_co = TypeVar("Schedule_co", bound=Schedule, default=Schedule, covariant=True)


class Hooks(Generic[Schedule_co]):
    """The declarations and methods of an algorithm that an author may override.

    Attributes:
        name: As in a configuration.
        payload: What clients upload: ``delta`` (start − end), ``params`` (the end point), or ``difference`` (the delta
            minus the client's last counted delta).
        needs_base: Updates must carry ``base``.
        needs_loss: Updates must carry ``loss``.
        weighs_by_examples: Updates weigh more the more examples their clients declare.
        corrects_gradients: Clients add ``down()`` minus a vector of their own to each local gradient; that vector
            becomes Δ_i / P − (the sum that they added), P the sum of their step sizes, once the update has counted;
            with a proximal term mu in the plan, mu Δ_i − (the sum that they added).
        averages_old_updates: A version averages updates of old and new versions, so a plan may not have ``lr_decay``.
        grows: A run may get more clients while it goes on, since nothing depends on their number N.
        selection: How the coordinator picks the next client: a name, or a function that makes a pool from N and a seed.
        measures: It plans by clients' measured speeds, so no client may be refused before it counted; ``note_speed``
            is called for each client that can tell its speed before its first visit. A private run sets it to False.
        pooled: It is not federated: one client holds all the data, and nothing travels.
        period: Seconds between two ticks; None without a clock.
        now: Seconds at the driver's latest call; set by the driver.
        max_step_norm: The largest Euclidean norm of a server step, infinity for any; set by the run, before ``start``.
        schedule: The clients at work, and when the buffer may close; ``compose`` assigns it.
        buffer: The updates since the last version; ``compose`` assigns it.
    """

    name: ClassVar[str]
    payload: Payload = "delta"
    needs_base: ClassVar[bool] = False
    needs_loss: ClassVar[bool] = False
    weighs_by_examples: bool = False
    corrects_gradients: ClassVar[bool] = False
    averages_old_updates: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    selection: ClassVar[Any] = "uniform"
    measures: bool = False
    pooled: ClassVar[bool] = False
    period: Any = None  # float | None, or the type that a subclass declares for its hyper-parameter
    now: float = 0.0
    max_step_norm: float = math.inf
    schedule: Schedule_co = cast(Any, NoSchedule())  # of an algorithm that implements the whole contract by itself
    buffer: Aggregate

    def check_values(self) -> None:
        """Raise ``ValueError`` if the hyper-parameters do not go together."""

    def compose(self) -> None:
        """Assign ``schedule``, ``buffer`` and other components.

        They depend on the hyper-parameters alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must define compose")

    def check_run(self, run: RunFacts) -> None:
        """Raise ``ValueError`` if the hyper-parameters do not fit the run."""

    def check_local(self, local: LocalPlan) -> None:
        """Raise ``ValueError`` if the run's plan does not suit; ``lr_decay`` is in it."""
        if self.averages_old_updates and local.lr_decay is not None:
            raise ValueError(
                f"{self.name} averages updates of old and new versions, made with one lr: leave lr_decay out"
            )

    def begin(self, model: Tensor) -> None:
        """Assign the rest of the saved state: tensors, numbers, dicts of numbers.

        Args:
            model: w_0, ``(d,)``.
        """

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        """Return the client's plan, made from the run's; change nothing.

        Step sizes of ``local`` are those of this version, with the run's decay.

        Raises:
            ValueError: The run's plan does not suit.
        """
        return local

    def divisor(self, plan: LocalPlan) -> float:
        """Return the divisor that makes updates of different plans comparable.

        Where updates are clipped for privacy, they are clipped after that.
        """
        return 1.0

    def weigh(self, update: Update) -> float | Weight:
        """Return the weight of an update, finite and ≥ 0; change nothing.

        ``DOES_NOT_COUNT`` means that the update is received but does not count.

        Raises:
            ValueError: The update is refused.
        """
        return 1.0

    def note(self, update: Update) -> None:
        """Record other facts of an update, which is in the buffer now."""

    def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Record the speed of a client that has had no visit yet.

        Called only where ``measures`` is true.

        Args:
            client: 0 ≤ client < N.
            step_seconds: Measured seconds a local step, ≥ 0.
            upload_seconds: Measured seconds for an uncompressed upload, ≥ 0.
        """

    def is_ready(self) -> bool:
        """Return whether the buffer makes a new version.

        Called when the schedule lets the buffer close.
        """
        return self.buffer.count > 0

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        """Return w_{t+1}, a new float32 tensor ``(d,)``, from w_t and the buffer.

        Here t is ``closed.version``.
        """
        raise NotImplementedError(f"{type(self).__name__} must define next_model")

    def down(self) -> Tensor | None:
        """Return the vector that goes to clients beside the model; None for none.

        It is float32 ``(d,)``, belongs to the version, and changes with it only. Computing it may train.
        """
        return None

    def urgent(self) -> Collection[int]:
        """Return the clients that should upload a partial update now."""
        return ()

    def cancelled(self) -> Collection[int]:
        """Return the clients at work whose updates are not wanted any more.

        They are to stop.
        """
        return ()

    def deadline(self) -> float:
        """Return when ``tick`` is to be called next, in the driver's seconds.

        Infinity means never.
        """
        return math.inf
