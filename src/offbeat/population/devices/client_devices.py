"""The clients' devices: speeds, losses, and links in either direction."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from offbeat_core.randomness import Purpose

from offbeat.population.availability import Availability
from offbeat.population.devices.bandwidth_traces import Trace
from offbeat.uniform_numbers import number, uniform


class Link(Protocol):
    """One direction of N clients' connections.

    Times are virtual seconds, finite and at least 0; sizes are bytes, at least 0. A transfer has the full bandwidth of
    its client, since a client has one transfer at a time.
    """

    def transfer_end(self, client: int, start: float, size: float) -> float:
        """Return the end of a transfer of ``size`` bytes that begins at ``start``."""
        ...

    def transferred(self, client: int, start: float, end: float) -> float:
        """Return how many bytes can be transferred from ``start`` to ``end`` ≥ ``start``."""
        ...

    def mean_bytes_per_second(self) -> NDArray[np.float64]:
        """Return each client's mean bandwidth, ``(N,)``."""
        ...


class ConstantLink:
    """Links of constant bandwidth ``(N,)``, above 0 and finite."""

    def __init__(self, bytes_per_second: NDArray[np.float64]) -> None:
        self._rate = array("d", bytes_per_second)

    def transfer_end(self, client: int, start: float, size: float) -> float:
        """Return ``start`` + size / bandwidth."""
        return start + size / self._rate[client]

    def transferred(self, client: int, start: float, end: float) -> float:
        """Return bandwidth · (end − start)."""
        return self._rate[client] * (end - start)

    def mean_bytes_per_second(self) -> NDArray[np.float64]:
        """Return the bandwidths, ``(N,)``."""
        return np.array(self._rate)


class _Integral:
    """The integral of a trace's bandwidth and its inverse; both are piecewise linear."""

    def __init__(self, trace: Trace) -> None:
        cumulative = np.append(0.0, np.cumsum(trace.bytes_per_second * np.diff(trace.seconds)))
        self._seconds: list[float] = trace.seconds.tolist()
        self._rate: list[float] = trace.bytes_per_second.tolist()
        self._bytes: list[float] = cumulative.tolist()
        self.length = self._seconds[-1]
        self.total = self._bytes[-1]

    def bytes_at(self, seconds: float) -> float:
        """Return the bytes from 0 to ``seconds``, 0 ≤ seconds < length."""
        segment = bisect_right(self._seconds, seconds) - 1
        return self._bytes[segment] + self._rate[segment] * (seconds - self._seconds[segment])

    def seconds_at(self, size: float) -> float:
        """Return the earliest time by which ``size`` bytes pass, 0 < size ≤ total."""
        # The first of equal byte counts, so that this segment's bandwidth is above 0.
        segment = bisect_left(self._bytes, size) - 1
        seconds = self._seconds[segment] + (size - self._bytes[segment]) / self._rate[segment]
        # In a segment of very low bandwidth, the rounding error of the bytes can exceed the segment.
        return min(seconds, self._seconds[segment + 1])


class TraceLink:
    """Links whose bandwidth follows repeated traces.

    ``trace_of``, ``(N,)``, is the index of each client's trace; ``offset``, ``(N,)``, its position in the trace at time
    0, in seconds, ≥ 0.
    """

    def __init__(self, traces: Sequence[Trace], trace_of: NDArray[np.int64], offset: NDArray[np.float64]) -> None:
        integrals = [_Integral(trace) for trace in traces]
        self._integral = [integrals[index] for index in trace_of.tolist()]
        self._offset: list[float] = offset.tolist()

    def transfer_end(self, client: int, start: float, size: float) -> float:
        """Return when the integral of the bandwidth from ``start`` reaches ``size``."""
        if size <= 0:
            return start
        integral = self._integral[client]
        within = math.fmod(start + self._offset[client], integral.length)
        repetitions, rest = divmod(integral.bytes_at(within) + size, integral.total)
        if rest == 0:
            # Complete at the end of a repetition, or earlier if the repetition ends with zero bandwidth.
            repetitions, rest = repetitions - 1, integral.total
        # Rounding can make this negative where size is tiny.
        return start + max(repetitions * integral.length + (integral.seconds_at(rest) - within), 0.0)

    def transferred(self, client: int, start: float, end: float) -> float:
        """Return the integral of the bandwidth from ``start`` to ``end``."""
        integral, offset = self._integral[client], self._offset[client]
        begin, stop = start + offset, end + offset
        begin_within, stop_within = math.fmod(begin, integral.length), math.fmod(stop, integral.length)
        repetitions = round(((stop - stop_within) - (begin - begin_within)) / integral.length)
        return repetitions * integral.total + (integral.bytes_at(stop_within) - integral.bytes_at(begin_within))

    def mean_bytes_per_second(self) -> NDArray[np.float64]:
        """Return the mean of each client's trace, ``(N,)``."""
        return np.array([integral.total / integral.length for integral in self._integral])


def random_traces(traces: Sequence[Trace], clients: int, *, seed: int, draw: int) -> TraceLink:
    """Return links that follow random traces from random positions.

    All are equally likely. Draw ``draw`` for ``Purpose.TRACE`` chooses a client's trace, ``draw + 1`` the position; 0
    for downloads, 2 for uploads.
    """
    numbers = uniform(seed, Purpose.TRACE, client=np.arange(clients), draw=np.array([[draw], [draw + 1]]))
    trace_of = (numbers[0] * len(traces)).astype(np.int64)
    lengths = np.array([trace.seconds[-1] for trace in traces])
    return TraceLink(traces, trace_of, numbers[1] * lengths[trace_of])


WhenAway = Literal["pause", "lose"]


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of N clients.

    Attributes:
        step_seconds: ``(N,)`` float64, duration of a local step.
        down: The links for downloads.
        up: The links for uploads.
        loss_probability: ``(N,)`` float64, probability that a visit's update is lost.
        availability: When each client is available.
        when_away: Whether a visit pauses or is lost when its client goes offline.
    """

    step_seconds: NDArray[np.float64]
    down: Link
    up: Link
    loss_probability: NDArray[np.float64]
    availability: Availability
    when_away: WhenAway

    def visit_is_lost(self, seed: int, client: int, visit: int) -> bool:
        """Return whether the update of the client's visit 0, 1, … is lost."""
        return number(seed, Purpose.LOSS, client, visit) < self.loss_probability[client].item()


def lossy(clients: int, *, fraction: float, probability: float, seed: int) -> NDArray[np.float64]:
    """Return ``probability`` for round(fraction · N) random clients, else 0, ``(N,)``."""
    order = np.argsort(uniform(seed, Purpose.LOSSY_CLIENTS, client=np.arange(clients)), kind="stable")
    probabilities = np.zeros(clients)
    probabilities[order[: round(fraction * clients)]] = probability
    return probabilities
