"""The rule that decides which late updates count."""

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator.calls import Assignment


class LateUpdates:
    """The rule that decides which late updates count.

    The update of an open visit counts if the algorithm wants it and it is not too stale. The end of the visit's lease
    does not matter.

    Args:
        algorithm: The run's algorithm.
        max_staleness: The largest staleness at which an update counts; None for any.

    Raises:
        ValueError: The algorithm plans by measured speed, and ``max_staleness`` is set.
    """

    def __init__(self, algorithm: Algorithm, max_staleness: int | None) -> None:
        if max_staleness is not None and algorithm.measures:
            raise ValueError(
                f"{algorithm.name} plans each client's work by how long it took, and would never hear of one that is "
                "always too stale: leave server.max_staleness out"
            )
        self._algorithm = algorithm
        self.max_staleness = max_staleness

    @property
    def may_refuse(self) -> bool:
        """True if an update may come too late to count."""
        return self.max_staleness is not None or not self._algorithm.wants_all

    def counts(self, assignment: Assignment) -> bool:
        """Return whether the update of an open visit would count now."""
        client, _, version, *_ = assignment
        is_too_stale = self.max_staleness is not None and self._algorithm.version - version > self.max_staleness
        return not is_too_stale and self._algorithm.wants(client, version)
