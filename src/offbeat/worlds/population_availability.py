"""The availability of clients, made from ``population.availability``."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.tables.validation_errors import error_prefix

from offbeat.config.given_objects import Given
from offbeat.config.population_sections import (
    AlternatingSection,
    BernoulliSection,
    IntervalsSection,
    PopulationSection,
    QuietHoursSection,
)
from offbeat.data.dataset import Dataset
from offbeat.population import availability
from offbeat.population.availability import Availability, HoursOfDay, QuietHours
from offbeat.worlds.given_devices import given_availability


def build_quiet_hours(section: PopulationSection, seed: int) -> QuietHours | HoursOfDay | None:
    """Return the clients' quiet hours; None for another availability."""
    kind = section.availability
    if not isinstance(kind, QuietHoursSection):
        return None
    if kind.path is None:
        starts = availability.quiet_starts(section.clients, kind.first_hour, kind.spread_hours, seed)
        return QuietHours(starts, kind.hours)
    with error_prefix("population.availability"):
        return HoursOfDay(availability.quietest_hours(kind.path, section.clients, int(kind.hours)))


def build_availability(
    section: PopulationSection,
    dataset: Dataset,
    shards: list[NDArray[np.int64]],
    quiet: QuietHours | HoursOfDay | None,
    seed: int,
) -> Availability:
    """Return when each client is available."""
    if quiet is not None:
        return quiet
    match section.availability:
        case AlternatingSection() as kind:
            return availability.Alternating(kind.groups, kind.period_seconds, _groups(kind, dataset, shards))
        case BernoulliSection() as kind:
            return availability.Bernoulli(kind.probability, kind.round_seconds, seed)
        case Given() as given:
            with error_prefix("population.availability"):
                return given_availability(given.value, section.clients)
        case IntervalsSection() as kind:
            with error_prefix("population.availability"):
                return availability.intervals_from_file(Path(kind.path), section.clients)
        case _:
            return availability.Always()


def no_classes(dataset: Dataset) -> str:
    """Return a clause that says why the labels of a data set are not classes."""
    labels = dataset.train_labels
    found = "numbers below 0" if labels.ndim == 1 and labels.dtype == np.int64 and labels.min() < 0 else labels.dtype
    of_shape = f" of shape {labels.shape[1:]}" if labels.ndim > 1 else ""
    return f"one class for each example, a whole number from 0, but the labels of {dataset.name} are {found}{of_shape}"


def _groups(kind: AlternatingSection, dataset: Dataset, shards: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    if kind.first_labels is None:
        return np.arange(len(shards)) % kind.groups
    with error_prefix("population.availability"):
        if dataset.classes is None:
            raise OffbeatError(f"first_labels needs {no_classes(dataset)}; use groups instead")
        return availability.label_groups(shards, dataset.train_labels, dataset.classes, kind.first_labels)
