"""Partitions of the training examples among the clients, one module each.

A new partition is a function here, a section in ``config/population_sections.py`` and a case in
``worlds/population.py``.
"""

from offbeat.population.partition.by_hour import by_hour
from offbeat.population.partition.by_user import by_user
from offbeat.population.partition.dirichlet import dirichlet
from offbeat.population.partition.from_file import from_file
from offbeat.population.partition.iid import iid
from offbeat.population.partition.mixing import mixing
from offbeat.population.partition.one_class import one_class
from offbeat.population.partition.quantity_skew import quantity_skew

__all__ = ["by_hour", "by_user", "dirichlet", "from_file", "iid", "mixing", "one_class", "quantity_skew"]
