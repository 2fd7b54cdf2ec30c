"""When a client is done with what it does, given its device, its lines and when it is there."""

import math
from array import array
from typing import NamedTuple

import numpy as np

from offbeat.errors import OffbeatError
from offbeat.population.availability import Always
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import Link

_MOST_INTERVALS = 1_000_000
# Of what was to be done, what rounding may leave over after going away and coming back.
_ROUNDING = 1e-12


class Ending(NamedTuple):
    """How something that a client does ends."""

    seconds: float  # virtual time; infinity if the client never comes back to finish it
    left: float  # bytes or seconds of it that are not done: 0 unless the client went away and does not go on


class _Computing:
    """Computing as a link: a second of it takes a second."""

    def transfer_end(self, client: int, start: float, size: float) -> float:
        return start + size

    def transferred(self, client: int, start: float, end: float) -> float:
        return end - start


class Timing:
    """Downloads, local steps and uploads of clients that may go away meanwhile.

    While a client is away nothing goes on. When it is back it goes on where it was, or, where ``devices.when_away`` is
    ``"lose"``, what it did is lost at the moment when it goes.

    Args:
        devices: The clients' devices.
        model_bytes: The size of a model on the wire.

    Raises:
        OffbeatError: A transfer would take for ever; the methods, too: something is never done.
    """

    def __init__(self, devices: Devices, model_bytes: int) -> None:
        for link in (devices.down, devices.up):
            with np.errstate(divide="ignore", over="ignore"):
                if not np.isfinite(model_bytes / link.mean_bytes_per_second()).all():
                    raise OffbeatError(
                        "a client's transfer takes for ever: raise population.up_ and down_bytes_per_second"
                    )
        self._devices = devices
        self._availability = devices.availability
        self._pauses = devices.when_away == "pause"
        self._nobody_leaves = isinstance(devices.availability, Always)
        self._step_seconds = array("d", devices.step_seconds)
        self._computing = _Computing()

    def download(self, client: int, start: float, size: float) -> Ending:
        """Return how a download of ``size`` bytes ends that begins at ``start``."""
        return self._carry_out(self._devices.down, client, start, size, "down_bytes_per_second")

    def compute(self, client: int, start: float, steps: int) -> Ending:
        """Return how a number of local steps ends that begin at ``start``."""
        amount = steps * self._step_seconds[client]
        return self._carry_out(self._computing, client, start, amount, "step_seconds")

    def upload(self, client: int, start: float, size: float) -> Ending:
        """Return how an upload of ``size`` bytes ends that begins at ``start``."""
        return self._carry_out(self._devices.up, client, start, size, "up_bytes_per_second")

    def _carry_out(self, link: Link | _Computing, client: int, start: float, amount: float, key: str) -> Ending:
        if self._nobody_leaves:
            end = link.transfer_end(client, start, amount)
            if end < math.inf:
                return Ending(end, 0.0)
        now, left = start, amount
        for _ in range(_MOST_INTERVALS):
            there = self._availability.next_available(client, now)
            if there == math.inf or (there > now and not self._pauses):
                return Ending(there if self._pauses else now, left)
            end = link.transfer_end(client, there, left)
            if not math.isfinite(end):
                raise OffbeatError(
                    f"population.{key}: client {client} is never done with what it began at {start:g} virtual seconds: "
                    "make it faster"
                )
            away = self._availability.next_offline(client, there)
            if end <= away:
                return Ending(end, 0.0)
            left -= link.transferred(client, there, away)
            if left <= _ROUNDING * amount:
                # It only seemed to end after the client goes, by rounding.
                return Ending(away, 0.0)
            now = away
        # For instance a trace without any bandwidth whenever the client is there.
        raise OffbeatError(
            f"client {client} goes away {_MOST_INTERVALS:,} times before it is done with what it began at {start:g} "
            "virtual seconds: change population.availability or its speed"
        )
