"""An attack on noisy releases: could this model have come from that sum and this generator?

The attacker knows everything but whether one client's update is in the sum, and both models of a version, bit for bit.
Two hypotheses give two sums, with and without that update. A hypothesis is excluded as soon as one coordinate of the
model cannot have come from its sum. On float32 sums with float32 noise that happens: the difference of two floats of
unlike size is not always a float (Mironov, 2012).
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Release(NamedTuple):
    """A version of FedBuff with ``server_lr = 1`` and two updates a sum, and what the attacker compares."""

    before: Floats  # the model, (d,)
    after: Floats
    sums: tuple[Floats, Floats]  # with and without the client, as float32 sums
    numbers: tuple[Numbers, Numbers]  # the same in steps
    step: float


def attack(releases: list[Release]) -> Counter[str]:
    """Return how many releases exclude the false hypothesis alone, the true one alone, both and none, each way.

    The client is in all sums, so the second hypothesis is the false one.
    """
    found: Counter[str] = Counter()
    for release in releases:
        totals = _totals(release)
        for way, possible in (
            ("floats", [_from_floats(totals, total) for total in release.sums]),
            ("grid", [_from_grid(totals, numbers, release.step) for numbers in release.numbers]),
        ):
            outcome = {(True, True): "none", (True, False): "right", (False, True): "wrong", (False, False): "both"}
            found[f"{way} {outcome[possible[0], possible[1]]}"] += 1
    return found


def steps(releases: list[Release]) -> NDArray[np.float64]:
    """Return (released sum − true sum) in steps, of all coordinates; needs models that begin at zero."""
    assert all((release.before == 0).all() for release in releases)
    return np.concatenate([-2.0 * r.after.astype(np.float64) / r.step - r.numbers[0] for r in releases])


def _totals(release: Release) -> list[tuple[Floats, NDArray[np.bool_]]]:
    """Return the released sums that lead from one model to the other, with a mark where they do.

    There are several where the model is so much larger than the step that digits of the step are lost.
    """
    nearest = (release.before.astype(np.float64) - release.after).astype(np.float32)
    return [(2 * mean, release.before - mean == release.after) for mean in _neighbours(nearest, 4)]


def _neighbours(values: Floats, most: int) -> list[Floats]:
    below, above = [values], [values]
    for _ in range(most):
        below.append(np.nextafter(below[-1], np.float32(-np.inf)))
        above.append(np.nextafter(above[-1], np.float32(np.inf)))
    return [*below, *above[1:]]


def _from_floats(totals: list[tuple[Floats, NDArray[np.bool_]]], known: Floats) -> bool:
    """Return whether float32 noise on a float32 sum gives one of the totals, in each coordinate."""
    possible = np.zeros(len(known), bool)
    for total, leads in totals:
        noise = (total.astype(np.float64) - known).astype(np.float32)
        for candidate in _neighbours(noise, 2):
            possible |= leads & (known + candidate == total)
    return bool(possible.all())


def _from_grid(totals: list[tuple[Floats, NDArray[np.bool_]]], known: Numbers, step: float) -> bool:
    """Return whether whole noise on a whole sum gives one of the totals, in each coordinate."""
    possible = np.zeros(len(known), bool)
    for total, leads in totals:
        noise = np.rint(total.astype(np.float64) / step) - known
        possible |= leads & (((known + noise) * step).astype(np.float32) == total)
    return bool(possible.all())
