"""The protocol's version, and the abilities that a run needs of its clients."""

from offbeat_core.messages import PROTOCOL

from offbeat.algorithms.components import Algorithm, LocalPlan

_REMEDIES = {
    "corrects_gradients": (
        "corrects local gradients: let the client add visit.offset to each of them, and say so by its attribute "
        "corrects_gradients = True"
    ),
    "keeps_regulariser": "lets clients keep a regulariser: let the client do so, and send keeps_regulariser, too",
    "needs_loss": "needs each visit's mean training loss: let the client send it",
}


def supported(supports: str | None) -> set[str]:
    """Return the names in a client's header ``Offbeat-Supports``; None: no header."""
    return {name.strip() for name in (supports or "").split(",")}


def other_protocol(protocol: str | None) -> str | None:
    """Return a message for a client of another protocol, or None.

    ``protocol`` is the client's header ``Offbeat-Protocol``; None without the header.
    """
    if protocol == PROTOCOL:
        return None
    theirs = "none" if protocol is None else ascii(protocol[:20])
    return f"this server speaks protocol {PROTOCOL}, the client {theirs}: use the same version of Offbeat for both"


def missing_support(
    algorithm: Algorithm, local: LocalPlan, supports: str | None, *, is_masked: bool = False
) -> str | None:
    """Return a message about what the client lacks for this run, or None.

    Args:
        algorithm: The run's algorithm.
        local: The run's plan for a visit.
        supports: The client's header ``Offbeat-Supports``, names separated by commas; None without the header.
        is_masked: Whether updates are masked.
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
