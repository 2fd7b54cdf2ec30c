"""The availability of clients, made from ``population.availability``."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.config.population_sections import (
    AlternatingSection,
    BernoulliSection,
    IntervalsSection,
    PopulationSection,
    QuietHoursSection,
)
from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError
from offbeat.population import availability
from offbeat.population.availability import Availability, HoursOfDay, QuietHours


@contextmanager
def with_key(key: str) -> Generator[None]:
    """Put ``population.KEY`` before the message of an error."""
    try:
        yield
    except OffbeatError as error:
        raise OffbeatError(f"population.{key}: {error}") from None


def build_quiet_hours(section: PopulationSection, seed: int) -> QuietHours | HoursOfDay | None:
    """Return the clients' quiet hours; None for another availability.

    A partition may depend on them.

    Raises:
        OffbeatError: The file of hourly counts is wrong.
    """
    kind = section.availability
    if not isinstance(kind, QuietHoursSection):
        return None
    if kind.path is None:
        starts = availability.quiet_starts(section.clients, kind.first_hour, kind.spread_hours, seed)
        return QuietHours(starts, kind.hours)
    with with_key("availability"):
        return HoursOfDay(availability.quietest_hours(kind.path, section.clients, int(kind.hours)))


def build_availability(
    section: PopulationSection,
    dataset: Dataset,
    shards: list[NDArray[np.int64]],
    quiet: QuietHours | HoursOfDay | None,
    seed: int,
) -> Availability:
    """Return when each client is available.

    Args:
        section: The configuration.
        dataset: The data.
        shards: For each client the numbers of its training examples.
        quiet: The result of ``build_quiet_hours``.
        seed: The run's seed.

    Raises:
        OffbeatError: The file of intervals is wrong, or the clients cannot be grouped by label.
    """
    if quiet is not None:
        return quiet
    match section.availability:
        case AlternatingSection() as kind:
            return availability.Alternating(kind.groups, kind.period_seconds, _groups(kind, dataset, shards))
        case BernoulliSection() as kind:
            return availability.Bernoulli(kind.probability, kind.round_seconds, seed)
        case IntervalsSection() as kind:
            with with_key("availability"):
                return availability.intervals_from_file(Path(kind.path), section.clients)
        case _:
            return availability.Always()


def _groups(kind: AlternatingSection, dataset: Dataset, shards: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    if kind.first_labels is None:
        return np.arange(len(shards)) % kind.groups
    with with_key("availability"):
        if dataset.classes is None:
            raise OffbeatError(f"first_labels needs classes, but {dataset.name} has none; use groups instead")
        return availability.label_groups(shards, dataset.train_labels, dataset.classes, kind.first_labels)
