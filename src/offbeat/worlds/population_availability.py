"""When the clients of an experiment are there, made from its configuration."""

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
def named(key: str) -> Generator[None]:
    """Let an error begin with the key."""
    try:
        yield
    except OffbeatError as error:
        raise OffbeatError(f"population.{key}: {error}") from None


def build_quiet_hours(section: PopulationSection, seed: int) -> QuietHours | HoursOfDay | None:
    """Return the clients' quiet hours, before it is known who holds what; None if they are there at other times.

    Raises:
        OffbeatError: The file of hourly counts is wrong.
    """
    how = section.availability
    if not isinstance(how, QuietHoursSection):
        return None
    if how.path is None:
        starts = availability.quiet_starts(section.clients, how.first_hour, how.spread_hours, seed)
        return QuietHours(starts, how.hours)
    with named("availability"):
        return HoursOfDay(availability.quietest_hours(how.path, section.clients, int(how.hours)))


def build_availability(
    section: PopulationSection,
    dataset: Dataset,
    shards: list[NDArray[np.int64]],
    quiet: QuietHours | HoursOfDay | None,
    seed: int,
) -> Availability:
    """Return when each client is there.

    Args:
        section: The configuration.
        dataset: The data.
        shards: For each client the numbers of its training examples.
        quiet: What ``build_quiet_hours`` returned.
        seed: The run's seed.

    Raises:
        OffbeatError: The file of intervals is wrong, or the clients cannot be grouped by label.
    """
    if quiet is not None:
        return quiet
    match section.availability:
        case AlternatingSection() as how:
            return availability.Alternating(how.groups, how.period_seconds, _groups(how, dataset, shards))
        case BernoulliSection() as how:
            return availability.Bernoulli(how.probability, how.round_seconds, seed)
        case IntervalsSection() as how:
            with named("availability"):
                return availability.intervals_from_file(Path(how.path), section.clients)
        case _:
            return availability.Always()


def _groups(how: AlternatingSection, dataset: Dataset, shards: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    if how.first_labels is None:
        return np.arange(len(shards)) % how.groups
    with named("availability"):
        if dataset.classes is None:
            raise OffbeatError(f"first_labels needs classes, which {dataset.name} has none of; take another one")
        return availability.label_groups(shards, dataset.train_labels, dataset.classes, how.first_labels)
