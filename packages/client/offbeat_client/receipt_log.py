"""Lines about receipts, and about the lack of work."""

import logging

from offbeat_client.http.upload import Delivery
from offbeat_core.messages import CheckedIn

_log = logging.getLogger(__name__)


class ReceiptLog:
    """Logs a line for each receipt, and one when there is no work."""

    def __init__(self) -> None:
        self._answered = self._counted = 0
        self._idle = ""  # why there is no work, as logged

    def note_receipt(self, visit: int, delivery: Delivery) -> None:
        """Log what became of an update, and what comes next."""
        self._idle = ""
        self._answered += 1
        self._counted += delivery.counted
        outcome = "counted" if delivery.counted else "unused"
        staleness = "" if delivery.staleness is None else f", staleness {delivery.staleness}"
        total = f"{self._counted} of {self._answered} updates counted"
        _log.info("visit %d: %s%s; %s; next: %s", visit, outcome, staleness, total, _next(delivery.following))

    def note_idle(self, reason: str) -> None:
        """Log why there is no work, once until the next receipt."""
        if self._idle != reason:
            _log.info("%s", reason)
        self._idle = reason


def _next(following: CheckedIn | None) -> str:
    if following is None:
        return "check in"
    if following.finished:
        return "nothing, the run is over"
    if following.evaluation is not None:
        return f"evaluate version {following.evaluation.version}"
    return "wait for work" if following.visit is None else f"visit {following.visit.number}"
