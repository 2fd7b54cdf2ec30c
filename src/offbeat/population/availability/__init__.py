"""Availability of clients, one module for each kind.

A new kind is a class with the methods of ``Availability``, a section in ``config/population_sections.py`` and a case
in ``worlds/population_availability.py``.
"""

from offbeat.population.availability.alternating import Alternating
from offbeat.population.availability.always import Always
from offbeat.population.availability.base import Availability
from offbeat.population.availability.bernoulli import Bernoulli
from offbeat.population.availability.hourly_counts import quietest_hours
from offbeat.population.availability.hours_of_day import HoursOfDay
from offbeat.population.availability.interval_file import intervals_from_file
from offbeat.population.availability.intervals import Intervals
from offbeat.population.availability.label_groups import label_groups
from offbeat.population.availability.quiet_hours import QuietHours, quiet_starts

__all__ = [
    "Alternating",
    "Always",
    "Availability",
    "Bernoulli",
    "HoursOfDay",
    "Intervals",
    "QuietHours",
    "intervals_from_file",
    "label_groups",
    "quiet_starts",
    "quietest_hours",
]
