"""The progress of a helper, read from its folder."""

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from offbeat_private.accounting import epsilon
from offbeat_private.helper.helper_database import HelperDatabase
from offbeat_private.helper.rules import ClientHistory


@dataclass(frozen=True)
class HelperStatus:
    """The progress of a helper.

    Pairs are the largest and the median value of a client, over all runs. ε is for the run's δ, and for zero-out or
    replace-one adjacency.
    """

    run: str
    fingerprint: str
    clients: int
    batches: int
    is_stopped: bool
    participations: tuple[int, int]
    delta: float
    epsilon: tuple[float, float]
    epsilon_replace_one: tuple[float, float]


def status(folder: Path) -> HelperStatus:
    """Return the status of a helper, which may be running.

    Raises:
        OffbeatError: The folder is not an enrolled one.
    """
    with closing(HelperDatabase(folder, read_only=True)) as store:
        run, roster, opened = store.run(), store.roster(), store.opened()
    histories = [opened.histories[key] for key in roster]

    def spread(value: Callable[[ClientHistory], float]) -> tuple[float, float]:
        values = [value(history) for history in histories]
        return max(values), median_low(values)

    def epsilons(*, replace_one: bool) -> tuple[float, float]:
        most, usual = spread(lambda history: history.spent)
        return _epsilon(most, run.delta, replace_one), _epsilon(usual, run.delta, replace_one)

    most, usual = spread(lambda history: history.participations)
    return HelperStatus(
        run=run.signed_terms.terms.run.hex(),
        fingerprint=run.signed_terms.terms.fingerprint,
        clients=len(histories),
        batches=len(opened.batches),
        is_stopped=opened.is_stopped,
        participations=(int(most), int(usual)),
        delta=run.delta,
        epsilon=epsilons(replace_one=False),
        epsilon_replace_one=epsilons(replace_one=True),
    )


def _epsilon(spent: float, delta: float, replace_one: bool) -> float:
    """Return ε of a Gaussian mechanism with ``μ² = spent``."""
    if not spent:
        return 0.0
    return epsilon(1 / math.sqrt(spent), 1, delta, replace_one=replace_one)
