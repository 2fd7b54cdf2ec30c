"""The clients' availability: when each becomes available or goes offline."""

import math
from array import array
from collections.abc import Container
from typing import Any

from offbeat.coordinator import Coordinator
from offbeat.population.devices.client_devices import Devices
from offbeat.simulation.events import EventQueue, Kind


class Attendance:
    """Tells the coordinator which idle clients are available.

    Where the algorithm plans by speed, a client reports two times before its first visit: of a step, and of an
    uncompressed upload that begins at once and is not interrupted. The report costs neither time nor bytes. The clients
    in ``at_work`` have a visit.

    Attributes:
        assignment_due: Whether work is to be given out at the end of this instant.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        devices: Devices,
        queue: EventQueue,
        *,
        model_bytes: int,
        at_work: Container[int],
    ) -> None:
        self.assignment_due = False
        self._coordinator = coordinator
        self._availability = devices.availability
        self._up = devices.up
        self._step_seconds = array("d", devices.step_seconds)
        self._measures = coordinator.algorithm.measures
        self._queue = queue
        self._model_bytes = model_bytes
        self._at_work = at_work
        self._idle: list[int] = []  # clients that have become idle at this instant, in order
        self._departures: dict[int, float] = {}  # when a client goes offline, where that is in the queue

    def expect(self, client: int, now: float) -> None:
        """Make an idle client available once it is online.

        It becomes available at the end of this instant at the earliest.
        """
        seconds = self._availability.next_available(client, now)
        if seconds == now:
            self._idle.append(client)
            self.assignment_due = True
        elif seconds < math.inf:
            self._queue.put(seconds, Kind.AVAILABILITY, client)

    def arrive(self, now: float, client: int) -> None:
        """Let a client be available, until it goes offline."""
        if self._measures and self._coordinator.wants_speed(client):
            upload_seconds = self._up.transfer_end(client, now, self._model_bytes) - now
            self._coordinator.note_speed(now, client, self._step_seconds[client], upload_seconds)
        self._coordinator.present(now, client)
        departure = self._availability.next_offline(client, now)
        if departure < math.inf and self._departures.get(client) != departure:
            self._departures[client] = departure
            self._queue.put(departure, Kind.DEPARTURE, client)
        self.assignment_due = True

    def depart(self, now: float, client: int) -> None:
        """Let a client go offline; one at work is expected again when its visit ends."""
        del self._departures[client]
        if client not in self._at_work:
            self._coordinator.absent(now, client)
            self.expect(client, now)

    def begin_assignment(self, now: float) -> None:
        """Make the clients available that have become idle at this instant."""
        for client in self._idle:
            self.arrive(now, client)
        self._idle.clear()
        self.assignment_due = False

    def state_dict(self) -> dict[str, Any]:
        """Return the idle clients, and the departures that are in the queue."""
        return {
            "idle": list(self._idle),
            "assignment_due": self.assignment_due,
            "departures": list(self._departures.items()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._idle = list(state["idle"])
        self.assignment_due = state["assignment_due"]
        self._departures = dict(state["departures"])
