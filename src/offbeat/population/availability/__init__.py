"""Availability of clients.

A new kind is a class with the methods of ``Availability``, a section in ``config/population_sections.py`` and a case
in ``worlds/population_availability.py``.
"""

from offbeat.population.availability.bernoulli import Bernoulli
from offbeat.population.availability.groups import Alternating, label_groups
from offbeat.population.availability.hours import HoursOfDay, QuietHours, quiet_starts, quietest_hours
from offbeat.population.availability.intervals import Intervals, intervals_from_file
from offbeat.population.availability.protocol import Always, Availability

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
