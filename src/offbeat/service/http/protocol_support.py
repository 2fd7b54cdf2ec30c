"""The run's needs beyond protocol 1.1."""

from offbeat.algorithms.components import Algorithm, LocalPlan

_UPGRADE = "needs a client of protocol 1.2 or newer: upgrade this client's Offbeat"
_REMEDIES = {
    "corrects_gradients": (
        "corrects local gradients: let the client add visit.offset to each of them, and say so by its attribute "
        "corrects_gradients = True"
    ),
    "keeps_regulariser": (
        "lets clients keep a regulariser, which needs protocol 1.5 or newer: upgrade this client's Offbeat"
    ),
    "needs_loss": "needs each visit's mean training loss: let the client send it",
}


def supported(supports: str | None) -> set[str]:
    """Return the names in a client's header ``Offbeat-Supports``; None: no header."""
    return {name.strip() for name in (supports or "").split(",")}


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
    # With mu in its plan a client's memory is a regulariser; earlier clients would compute a control variate.
    needs = {
        "corrects_gradients": algorithm.corrects_gradients,
        "keeps_regulariser": algorithm.corrects_gradients and algorithm.plan(0, local).mu > 0,
        "needs_loss": algorithm.needs_loss,
    }
    for need, remedy in _REMEDIES.items():
        if needs[need] and need not in available:
            is_old = supports is None
            return f"{algorithm.name} {_UPGRADE if is_old else remedy}"
    return missing_terms(supports) if is_masked else None


def missing_terms(supports: str | None) -> str | None:
    """Return a message for a client without the helper's terms, or None."""
    if "privacy" in supported(supports):
        return None
    return (
        "updates of this run are masked: give the client the helper's terms.json (offbeat join --terms); it needs "
        "protocol 1.3 or newer"
    )
