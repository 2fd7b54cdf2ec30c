"""The wrappers that ``[server]`` puts around an algorithm's buffer and step."""

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components.buffers.robust import robust
from offbeat.algorithms.components.buffers.wrappers import clip, limit
from offbeat.config.experiment_sections import ServerSection


def wrap_buffer(algorithm: Algorithm, server: ServerSection) -> None:
    """Put the section's wrappers around the algorithm's buffer, before it is started."""
    is_robust = server.aggregate not in (None, "mean")
    keys = ("update_clip_norm", "max_update_norm", "max_step_norm")
    used = [key for key in keys if getattr(server, key) is not None] + ["aggregate"] * is_robust
    if used and type(algorithm).receive is not Algorithm.receive:
        raise ValueError(f"server.{used[0]} does not go with {algorithm.name}, which has a receive of its own")
    if is_robust and server.aggregate is not None:
        algorithm.wrap(robust(server.aggregate))
    if server.update_clip_norm is not None:
        algorithm.wrap(clip(server.update_clip_norm))
    if server.max_update_norm is not None:
        algorithm.wrap(limit(server.max_update_norm))  # outermost: it limits the norm before clipping
    if server.max_step_norm is not None:
        algorithm.max_step_norm = server.max_step_norm
