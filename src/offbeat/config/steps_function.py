"""A user's function that returns the local steps of a client."""

from collections.abc import Callable
from dataclasses import dataclass

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import MOST_STEPS, count_examples
from offbeat_core.number_checks import check_count
from offbeat_core.user_code_errors import user_code


@dataclass(frozen=True, slots=True, eq=False)
class StepsFunction:
    """The steps of a client by a user's function of its number of examples.

    Attributes:
        function: Maps n ≥ 1 to a whole number, 1 … ``MOST_STEPS``.
        name: Stands for the function in messages and records.

    Raises:
        OffbeatError: When called, if the function fails or returns something else.
    """

    function: Callable[[int], object]
    name: str

    def __call__(self, examples: int, batch_size: int) -> int:
        """Return the steps of a client with so many examples, ≥ 1."""
        with user_code(f"local.steps = {self.name!r} failed for {count_examples(examples)}"):
            steps = self.function(examples)
        try:
            number = check_count("steps", steps)
        except ValueError:
            number = 0
        if not 1 <= number <= MOST_STEPS:
            raise OffbeatError(
                f"local.steps = {self.name!r} returned {steps!r} for {count_examples(examples)}: it must return a "
                f"whole number in 1 … {MOST_STEPS:,}"
            )
        return number
