"""The papers' bounds, measured on small problems with known constants.

``check()`` runs each algorithm as its theorem assumes, in plain numpy and independently of the simulator, and
counter-examples: settings that break an assumption and exceed the bound, and bounds that are misprinted.
"""

import numpy as np

from offbeat_studies.papers.theory.async_comm_sgd import check_async_comm_sgd
from offbeat_studies.papers.theory.fedbuff import check_fedbuff
from offbeat_studies.papers.theory.fedlaavg import check_fedlaavg
from offbeat_studies.papers.theory.fedluck import check_fedluck
from offbeat_studies.papers.theory.measured_bound import Row

__all__ = ["Row", "check"]


def check(seeds: int = 20) -> list[Row]:
    """Measure every bound; takes a few seconds with 20 seeds on one core.

    Args:
        seeds: Independent runs of each setting, ≥ 1. The same number gives the same rows.

    Raises:
        ValueError: ``seeds`` is less than 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    return [
        measured
        for number, part in enumerate((check_fedbuff, check_fedlaavg, check_async_comm_sgd, check_fedluck))
        for measured in part(seeds, np.random.default_rng([number, seeds]))
    ]
