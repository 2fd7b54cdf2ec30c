"""The history of a run: versions over time, staleness, evaluations."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from offbeat_core.number_checks import is_number

from offbeat.coordinator import Coordinator, RecordedCall

MOST_VERSIONS = 1024
MOST_EVALUATIONS = 2048

_EXACT_BITS = 6  # staleness of 2⁶ or more is rounded down to its six highest bits


class MadeVersion(NamedTuple):
    """A version and the time when it was made."""

    number: int  # of the entry in the history
    seconds: float  # since the run began
    version: int


class Evaluated(NamedTuple):
    """An evaluation of a version."""

    number: int  # of the entry in the history
    version: int
    values: dict[str, float]


T = TypeVar("T", MadeVersion, Evaluated)


class RunHistory:
    """The versions over time, the staleness of counted updates, and the evaluations.

    Its size is bounded: of long runs it keeps every second version, then every fourth, and so on, and likewise of the
    evaluations, except the newest. A replay of the coordinator's calls makes the same versions and counts again.

    Attributes:
        number: The number of entries so far, dropped ones included.
        versions: The versions, oldest first.
        evaluations: The evaluations, oldest first.
        staleness: The number of counted updates, by staleness.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.number = 0
        self.versions: list[MadeVersion] = []
        self.evaluations: list[Evaluated] = []
        self.staleness: dict[int, int] = {}
        self._stride = 1  # every so many versions are kept
        self._last_version = 0
        if state is not None:
            self._stride, self._last_version = state["stride"], state["last_version"]
            self.staleness = dict(map(tuple, state["staleness"]))
            self.versions = [MadeVersion(self._next(), seconds, version) for seconds, version in state["versions"]]

    def state_dict(self) -> dict[str, Any]:
        """Return plain values, without the evaluations, which have their own file."""
        return {
            "stride": self._stride,
            "last_version": self._last_version,
            "staleness": [list(pair) for pair in sorted(self.staleness.items())],
            "versions": [[point.seconds, point.version] for point in self.versions],
        }

    def note(self, call: RecordedCall, coordinator: Coordinator) -> None:
        """Record the effects of a call that the coordinator has carried out."""
        if call.name == "receive":
            receipt = coordinator.visits.receipt(call.arguments["client"], call.arguments["visit"])
            if receipt is not None and receipt.counted:
                key = _rounded(receipt.staleness)
                self.staleness[key] = self.staleness.get(key, 0) + 1
        version = coordinator.algorithm.version
        if version != self._last_version:
            self._last_version = version
            self._add_version(call.arguments["now"], version)

    def _add_version(self, seconds: float, version: int) -> None:
        if version % self._stride:
            return
        self.versions.append(MadeVersion(self._next(), seconds, version))
        if len(self.versions) > MOST_VERSIONS:
            self._stride *= 2
            self.versions = [point for point in self.versions if point.version % self._stride == 0]

    def note_evaluation(self, version: int, values: Mapping[str, Any]) -> None:
        """Record the finite values of an evaluation of a version."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if name != "version" and is_number(value) and math.isfinite(value)
        }
        if not numbers:
            return
        self.evaluations.append(Evaluated(self._next(), version, numbers))
        if len(self.evaluations) > MOST_EVALUATIONS:
            self.evaluations = _thinned(self.evaluations)

    def between(self, number: int, last: int) -> dict[str, Any]:
        """Return the entries after ``number`` up to ``last``, as plain values."""
        versions, evaluations = _between(self.versions, number, last), _between(self.evaluations, number, last)
        return {
            "versions": [[round(one.seconds, 3), one.version] for one in versions],
            "evaluations": [[one.version, one.values] for one in evaluations],
        }

    def _next(self) -> int:
        self.number += 1
        return self.number


def _between(entries: Sequence[T], number: int, last: int) -> Sequence[T]:
    begin, end = (bisect_right(entries, bound, key=lambda entry: entry.number) for bound in (number, last))
    return entries[begin:end]


def _thinned(evaluations: Sequence[Evaluated]) -> list[Evaluated]:
    """Return half as many evaluations: those of every 2^k-th version, and the last."""
    kept, stride = list(evaluations), 1
    while len(kept) > MOST_EVALUATIONS // 2:
        stride *= 2
        kept = [one for one in evaluations if one.version % stride == 0 or one is evaluations[-1]]
    return kept


def _rounded(staleness: int) -> int:
    shift = max(staleness.bit_length() - _EXACT_BITS, 0)
    return staleness >> shift << shift
