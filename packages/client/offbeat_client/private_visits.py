"""Visits, models and updates that a client with terms refuses.

Masks hide an update among the others of a sum. A server that makes the others zero, or known, finds it nevertheless.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from offbeat_client.client_folder.private_record import PrivateRecord
from offbeat_client.visit import Visit
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import PrivacyMessage
from offbeat_private.masks.fixed_point import norm
from offbeat_private.signed_terms import Terms

URGENT = "the server asks for an update before its last step, which masks do not hide: ask its operator"


def check_visit(visit: Visit, privacy: PrivacyMessage | None, terms: Terms, seen: PrivateRecord) -> None:
    """Raise ``OffbeatError`` if the visit is not one of a run with these terms."""
    digest = terms.digest.hex()
    if privacy is None:
        raise OffbeatError(
            "the server asks for updates without masks, which a client with terms never sends: ask its operator"
        )
    if privacy.terms != digest:
        raise OffbeatError(
            f"the server's run has the terms {privacy.terms[:16]}…, this client has {digest[:16]}…: ask "
            "the helper's operator for the run's terms.json"
        )
    if visit.length != terms.length:
        raise OffbeatError(
            f"the server's model has {visit.length} parameters, the terms are for {terms.length}: ask the "
            "helper's operator for the run's terms.json"
        )
    if visit.payload != terms.payload or visit.plan.compression is not None:
        raise OffbeatError(
            f"the server asks for a {visit.payload} or for compression, but the terms are for a {terms.payload} "
            "without compression: ask its operator"
        )
    if visit.needs_loss or visit.corrects_gradients:
        raise OffbeatError(
            "the server asks for losses or corrects gradients, which would reveal more than sums: ask its operator"
        )
    if visit.urgent.is_set():
        raise OffbeatError(URGENT)
    try:
        terms.local.check(visit.plan, visit.version)
    except ValueError as error:
        raise OffbeatError(f"the server's plan is not the one in the terms: {error}: ask its operator") from None
    if seen.seed not in (None, visit.seed):
        raise OffbeatError(
            f"the server's seed was {seen.seed} and is now {visit.seed}, but a run has only one: ask its operator"
        )
    if visit.number <= seen.visit:
        raise OffbeatError(
            f"the server gives visit {visit.number} after visit {seen.visit}: it was restored from an old copy, and "
            "its private run must begin anew, with other terms"
        )


def check_model(model: Mapping[str, NDArray[np.float32]], version: int, before: int | None) -> None:
    """Raise ``OffbeatError`` if the client does not train from this model.

    ``before`` is the version under which it has trained from the same one; None for none.
    """
    for name, array in model.items():
        if not np.isfinite(array).all():
            raise OffbeatError(f"{name} of the server's version {version} is not finite: ask the server's operator")
    if before not in (None, version):
        raise OffbeatError(
            f"the server sends the model of version {before} again, as version {version}: two updates from one model "
            "would reveal each other by the difference of their sums, so ask the server's operator"
        )


def check_delta(delta: NDArray[np.float32], visit: int, terms: Terms) -> None:
    """Raise ``OffbeatError`` if masks alone do not suffice for this delta.

    With noise it is sent, since taking part must not depend on the client's data.
    """
    if not terms.noise_multiplier and not 0 < norm(delta) < np.inf:
        raise OffbeatError(
            f"visit {visit}: the update is zero or not finite, so it cannot hide other clients' updates in a sum: ask "
            "the server's operator whether the model is broken or lr too large"
        )
