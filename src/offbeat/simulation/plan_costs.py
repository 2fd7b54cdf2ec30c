"""Costs of a visit's plan: bytes on the wire and FedNova's normaliser."""

from offbeat_core.local_plan import normaliser
from offbeat_core.sent_update import upload_bytes

from offbeat.algorithms.components import Algorithm, LocalPlan

_BYTES_PER_PARAMETER = 4


class PlanCosts:
    """Bytes of a visit's transfers, and the normaliser of its update.

    A model has ``length`` parameters. A masked update is ``share_bytes`` larger than a plain one.

    Attributes:
        model_bytes: An uncompressed model or update.
        down_bytes: A download: the model, and what the algorithm sends beside it.
    """

    def __init__(self, algorithm: Algorithm, length: int, share_bytes: int = 0) -> None:
        self.model_bytes = 0 if algorithm.pooled else length * _BYTES_PER_PARAMETER
        self.down_bytes = self.model_bytes * (2 if algorithm.corrects_gradients else 1)
        self._share_bytes = share_bytes
        self._length = length
        self._last_plan: LocalPlan | None = None
        self._last_normaliser = 0.0

    def upload_bytes(self, plan: LocalPlan) -> int:
        """Return the bytes of an upload."""
        return upload_bytes(plan, self._length) if plan.compression else self.model_bytes + self._share_bytes

    def normaliser(self, plan: LocalPlan) -> float:
        """Return FedNova's a for a visit that followed the whole plan."""
        # Most visits have the very plan of the one before: comparing identities is cheaper than hashing plans.
        if plan is not self._last_plan:
            self._last_plan, self._last_normaliser = plan, normaliser(plan)
        return self._last_normaliser
