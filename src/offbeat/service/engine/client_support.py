"""The support that a client needs to take part in a run."""

from offbeat_core.messages import PROTOCOL

from offbeat.algorithms.components import Algorithm, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.service.internal.questions import supported

_REMEDIES = {
    "corrects_gradients": (
        "corrects local gradients: let the client add visit.offset to each of them, and say so by its attribute "
        "corrects_gradients = True"
    ),
    "keeps_regulariser": "lets clients keep a regulariser: let the client do so, and send keeps_regulariser, too",
    "needs_loss": "needs each visit's mean training loss: let the client send it",
}


def other_protocol(protocol: str | None) -> str | None:
    """Return a message for a client of another protocol, or without one; or None."""
    if protocol == PROTOCOL:
        return None
    theirs = "none" if protocol is None else ascii(protocol[:20])
    return f"this server speaks protocol {PROTOCOL}, the client {theirs}: use the same version of Offbeat for both"


def lacks(coordinator: Coordinator, protocol: str | None, supports: str | None, *, is_masked: bool) -> str | None:
    """Return a message about what a client lacks to get a visit, or None.

    ``protocol`` and ``supports`` are its headers ``Offbeat-Protocol`` and ``Offbeat-Supports``.
    """
    return other_protocol(protocol) or missing_support(
        coordinator.algorithm, coordinator.local, supports, is_masked=is_masked
    )


def missing_support(
    algorithm: Algorithm, local: LocalPlan, supports: str | None, *, is_masked: bool = False
) -> str | None:
    """Return a message about what the client lacks for this run, or None.

    ``supports`` is its header ``Offbeat-Supports``, names separated by commas; None without the header.
    """
    available = supported(supports)
    # With mu in its plan a client's memory is a regulariser, not a control variate.
    needs = {
        "corrects_gradients": algorithm.corrects_gradients,
        "keeps_regulariser": algorithm.corrects_gradients and algorithm.plan(0, local).mu > 0,
        "needs_loss": algorithm.needs_loss,
    }
    for need, remedy in _REMEDIES.items():
        if needs[need] and need not in available:
            return f"{algorithm.name} {remedy}"
    return missing_terms(supports) if is_masked else None


def missing_terms(supports: str | None) -> str | None:
    """Return a message for a client without the helper's terms, or None."""
    if "privacy" in supported(supports):
        return None
    return "updates of this run are masked: give the client the helper's terms.json (offbeat join --terms)"
