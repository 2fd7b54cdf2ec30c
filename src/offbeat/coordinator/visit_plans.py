"""The plans of visits, before the algorithm changes them, and as plain values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from offbeat.algorithms.components import Compression, LocalPlan


class VisitPlans:
    """The run's plan, with a client's steps and the step size of a version.

    Args:
        local: The run's plan.
        examples: The clients' numbers of examples; None if each client's steps are to be noted.

    Attributes:
        noted: The steps of clients that were noted.
    """

    def __init__(self, local: LocalPlan, examples: Sequence[int] | None) -> None:
        self.noted: dict[int, int] = {}
        self._local = local
        self._rule = local.steps_by
        self._with_steps: dict[int, LocalPlan] = {}  # so that clients with equal steps share a plan
        self._known: list[int] | None = None
        if self._rule is not None and examples is not None:
            self._known = [self._rule(number, local.batch_size) for number in examples]

    def needs(self, client: int) -> bool:
        """Return whether the client's steps have to be noted before its first visit."""
        return self._rule is not None and self._known is None and client not in self.noted

    def plan(self, client: int, version: int) -> LocalPlan:
        """Return the plan of a client's visit that starts at a version."""
        if self._rule is None:
            return self._local.at(version)
        steps = self.noted[client] if self._known is None else self._known[client]
        if steps not in self._with_steps:
            self._with_steps[steps] = self._local.with_steps(steps)
        return self._with_steps[steps].at(version)


def plan_to_plain(plan: LocalPlan, local: LocalPlan) -> dict[str, Any] | None:
    """Return a plan as plain values; None if it is the run's own, ``local``."""
    return None if plan == local else asdict(plan)


def plan_from_plain(values: dict[str, Any] | None, local: LocalPlan) -> LocalPlan:
    """Return the plan from which ``plan_to_plain`` made these values.

    Tuples may have become lists, as in JSON.
    """
    if values is None:
        return local
    values = dict(values)
    if isinstance(values["lr"], list):
        values["lr"] = tuple(values["lr"])
    if values["compression"]:
        name, parameters = values["compression"].values()
        values["compression"] = Compression(name, tuple((key, value) for key, value in parameters))
    return LocalPlan(**values)
