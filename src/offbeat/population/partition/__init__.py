"""Partitions of the training examples among the clients.

Each is a function of the examples' labels ``(n,)``, or of what it divides by instead, the number of clients N, its
parameters and the run's seed. It returns each client's example numbers, int64, in random order. It raises
``OffbeatError`` if there are fewer than one or more than n clients, or if a parameter is out of range.

A new partition is a function here, a section in ``config/population_sections.py`` and a case in
``worlds/population.py``.
"""

from offbeat.population.partition.by_label import by_hour, dirichlet, mixing, one_class
from offbeat.population.partition.by_owner import by_user, from_file
from offbeat.population.partition.shards import iid, quantity_skew

__all__ = ["by_hour", "by_user", "dirichlet", "from_file", "iid", "mixing", "one_class", "quantity_skew"]
