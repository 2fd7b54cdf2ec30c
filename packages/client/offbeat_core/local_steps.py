"""Numbers of local steps that depend on a client's number of examples."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from offbeat_core.number_checks import check_positive

MOST_STEPS = 1_000_000
"""The largest number of steps that may follow from a client's number of examples."""

StepsRule = Callable[[int, int], int]
"""Maps a client's number of examples and the size of minibatches to its steps, 1 … ``MOST_STEPS``."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """The steps of E = ``epochs`` passes over a client's n examples.

    A pass has ⌈n / batch_size⌉ minibatches, as in McMahan et al. (2017). E times as many steps are rounded to the
    nearest whole number, halves up, and are at least 1.

    Raises:
        ValueError: Not 0 < E < ∞; or when called, if there are more than ``MOST_STEPS``.
    """

    epochs: float

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)

    def __call__(self, examples: int, batch_size: int) -> int:
        """Return the steps of a client with so many examples, ≥ 1."""
        steps = max(1, math.floor(self.epochs * -(-examples // batch_size) + 0.5))
        if steps > MOST_STEPS:
            raise ValueError(
                f"local.epochs = {self.epochs:g} is {steps:,} steps for {count_examples(examples)}: at most "
                f"{MOST_STEPS:,} are possible"
            )
        return steps


def count_examples(number: int) -> str:
    """Return a number of examples in words."""
    return "1 example" if number == 1 else f"{number:,} examples"
