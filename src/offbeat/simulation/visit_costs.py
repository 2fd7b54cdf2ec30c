"""Costs of a visit: seconds, bytes on the wire, FedNova's normaliser."""

import math
from array import array

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import normaliser
from offbeat_core.sent_update import upload_bytes

from offbeat.algorithms.components import Algorithm, LocalPlan
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import Devices, Link

_MAX_INTERVALS = 1_000_000
# The share of a transfer that rounding may leave over when a client goes offline.
_ROUNDING = 1e-12


Ending = tuple[float, float]
"""The end of a download, of local steps or of an upload: virtual seconds, infinite if the client never comes back to
finish it; and the bytes or seconds that are not done, 0 unless the client went offline and does not resume."""


class _Computing:
    """Computing as a link: a second of it takes a second."""

    def transfer_end(self, client: int, start: float, size: float) -> float:
        return start + size

    def transferred(self, client: int, start: float, end: float) -> float:
        return end - start


class Timing:
    """The ends of downloads, local steps and uploads of clients that may go offline.

    A client's work rests while the client is offline and resumes when it is back. If ``devices.when_away`` is
    ``"lose"``, the work is lost at the moment when the client goes offline. Work that is interrupted a million times
    raises ``OffbeatError``.

    Attributes:
        step_seconds: The duration of each client's local step.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._availability = devices.availability
        self._pauses = devices.when_away == "pause"
        self._nobody_leaves = isinstance(devices.availability, Always)
        self.step_seconds = array("d", devices.step_seconds)
        self._computing = _Computing()

    def download(self, client: int, start: float, size: float) -> Ending:
        """Return the end of a download of ``size`` bytes that begins at ``start``."""
        return self._carry_out(self._devices.down, client, start, size)

    def compute(self, client: int, start: float, steps: int) -> Ending:
        """Return the end of local steps that begin at ``start``."""
        return self._carry_out(self._computing, client, start, steps * self.step_seconds[client])

    def upload(self, client: int, start: float, size: float) -> Ending:
        """Return the end of an upload of ``size`` bytes that begins at ``start``."""
        return self._carry_out(self._devices.up, client, start, size)

    def _carry_out(self, link: Link | _Computing, client: int, start: float, amount: float) -> Ending:
        if self._nobody_leaves:
            return link.transfer_end(client, start, amount), 0.0
        now, left = start, amount
        for _ in range(_MAX_INTERVALS):
            online = self._availability.next_available(client, now)
            if math.isnan(online):
                raise OffbeatError(f"population.availability: next_available({client}, {now:g}) is not a number")
            if online == math.inf or (online > now and not self._pauses):
                return (online if self._pauses else now), left
            end = link.transfer_end(client, online, left)
            offline = self._availability.next_offline(client, online)
            if end <= offline:
                return end, 0.0
            left -= link.transferred(client, online, offline)
            if left <= _ROUNDING * amount:
                # By rounding only it seemed to end after the client goes offline.
                return offline, 0.0
            now = offline
        # For instance a trace without any bandwidth whenever the client is online.
        raise OffbeatError(
            f"client {client} goes offline {_MAX_INTERVALS:,} times before it ends what it began at {start:g} "
            "virtual seconds: change population.availability or its speed"
        )


_BYTES_PER_PARAMETER = 4


class PlanCosts:
    """Bytes of a visit's transfers, and the normaliser of its update.

    A model has ``length`` parameters. A masked update is ``share_bytes`` larger than a plain one.

    Attributes:
        model_bytes: An uncompressed model or update.
        down_bytes: A download: the model, and what the algorithm sends beside it.
    """

    def __init__(self, algorithm: Algorithm, length: int, share_bytes: int = 0) -> None:
        self.model_bytes = 0 if algorithm.pooled else length * _BYTES_PER_PARAMETER
        self.down_bytes = self.model_bytes * (2 if algorithm.corrects_gradients else 1)
        self._share_bytes = share_bytes
        self._length = length
        self._last_plan: LocalPlan | None = None
        self._last_normaliser = 0.0

    def upload_bytes(self, plan: LocalPlan) -> int:
        """Return the bytes of an upload."""
        return upload_bytes(plan, self._length) if plan.compression else self.model_bytes + self._share_bytes

    def normaliser(self, plan: LocalPlan) -> float:
        """Return FedNova's a for a visit that followed the whole plan."""
        # Most visits have the very plan of the one before: comparing identities is cheaper than hashing plans.
        if plan is not self._last_plan:
            self._last_plan, self._last_normaliser = plan, normaliser(plan)
        return self._last_normaliser
