"""The algorithms whose sums may be masked or noisy."""

from typing import TYPE_CHECKING, Any

from offbeat.algorithms.components.buffers.aggregate import Aggregate, Sum
from offbeat.algorithms.components.buffers.by_round import ByRound
from offbeat.algorithms.components.buffers.latest_of_each import LatestOfEach
from offbeat.algorithms.components.buffers.wrappers import Wrapper

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm


def check_private_sum(algorithm: "Algorithm[Any]", *, is_masked: bool, is_noisy: bool = False) -> Aggregate:
    """Return the algorithm's buffer if its sums can be private.

    Args:
        algorithm: Not wrapped yet.
        is_masked: Whether clients clip and mask their updates; else the server clips them.
        is_noisy: Whether sums get noise.

    Raises:
        ValueError: They cannot; the line says why.
    """
    buffer, reason = algorithm.buffer, None
    if isinstance(buffer, Wrapper):
        raise ValueError(
            "[privacy] does not work with server.aggregate, update_clip_norm and max_update_norm, which look at single "
            "updates: leave them out; privacy.clip_norm limits updates"
        )
    if not buffer.linear:
        reason = "looks at single updates"
    elif buffer.releases > 1:
        reason = "puts an update into several sums, whose differences would show it"
    elif algorithm.payload == "params":
        reason = "uploads whole models, but only deltas can be clipped"
    elif algorithm.corrects_gradients:
        reason = "keeps what it learned from a client in all later versions"
    elif algorithm.needs_loss:
        reason = "asks for losses, which depend on a client's data"
    elif algorithm.payload == "difference" and is_noisy:
        reason = "keeps each update, and would keep all noise, in all later sums: set noise_multiplier = 0"
    elif algorithm.payload == "difference" and not is_masked:
        reason = "needs clients to clip their updates and to remember them: set privacy.helper"
    elif isinstance(buffer, ByRound) and not is_masked:
        reason = "cannot hold updates back when too few clients have reported: set privacy.helper"
    elif not isinstance(buffer, (Sum, LatestOfEach, ByRound)):
        reason = "sums updates in a buffer of its own"
    elif getattr(algorithm, "average", False):
        reason = "averages a model for each round, but a round with too few clients has none: leave average out"
    elif getattr(algorithm, "weighting", None) == "examples":
        reason = "weighs by examples, and sums would reveal how many a client has: set weighting = 'uniform'"
    if reason is not None:
        raise ValueError(f"[privacy] does not work with {algorithm.name}: it {reason}")
    return buffer
