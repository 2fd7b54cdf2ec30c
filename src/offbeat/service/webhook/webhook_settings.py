"""The receiver of messages, and what it gets."""

from dataclasses import dataclass, field
from typing import Literal

EventName = Literal[
    "ready",
    "run_ended",
    "clients_silent",
    "budget_low",
    "step_refused",
    "evaluation_failed",
    "disk_full",
    "disk_has_space_again",
    "log_unavailable",
    "log_available",
    "blobs_unavailable",
    "fronts_ended",
    "helper_problem",
    "helper_answers",
]
"""The log's events that may be sent."""


@dataclass(frozen=True)
class WebhookSettings:
    """The receiver's URL, the secret that it shares, and the events that it gets.

    ``is_internal`` tells whether its address may be one of this machine or network.
    """

    url: str
    secret: bytes = field(repr=False)
    events: frozenset[EventName]
    is_internal: bool = False
