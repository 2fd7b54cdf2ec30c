"""The decay of the step size from a table."""

from typing import Any

from offbeat_core.lr_decay import LR_DECAYS, LrDecay

from offbeat.config.objects_by_name import make_by_name


def no_decay() -> None:
    """Keep lr for all versions, although ``[local]`` sets a decay."""


FACTORIES = {**LR_DECAYS, "none": no_decay}


def lr_decay_from_table(key: str, table: Any) -> LrDecay | None:
    """Return the decay of a table such as ``{ name = "exponential", factor = 0.99 }``."""
    return make_by_name(key, table, FACTORIES)
