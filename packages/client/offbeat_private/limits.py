"""Limits of private runs: schedules, bands, and weights by staleness."""

from offbeat_core.errors import OffbeatError

LARGEST_BANDS = 10_000
"""The most bands: a batch's noise takes as many rows, and the sensitivity their square in time."""


def check_schedule(
    *, clients: int, participations: int, separation: int, buffer: int, versions: int, concurrency: int = 1
) -> None:
    """Raise ``OffbeatError`` if no schedule keeps both promises to clients.

    The error names the number to change.

    n versions of K clients are n · K participations, and N clients give at most N · k. A client of a version waits for
    the next b versions, so K · b clients wait. Enough others for all places at work must be left.

    Args:
        clients: N ≥ 1.
        participations: k, the most versions that may take the same client, ≥ 1.
        separation: b, the least difference between two of their numbers, ≥ 1.
        buffer: K, clients that a version takes, ≥ 1.
        versions: n ≥ 1.
        concurrency: Clients at work at the same time, ≥ 1.
    """
    if versions * buffer > clients * participations:
        enough = -(-versions * buffer // clients)
        possible = clients * participations // buffer
        advice = f"lower the versions to {possible:,} or " if possible else ""
        raise OffbeatError(
            f"{_counted(versions, 'version')} × {_counted(buffer, 'client')} are more than the "
            f"{_counted(clients * participations, 'participation')} of {_counted(clients, 'client')} × "
            f"{participations:,}: {advice}raise the participations to {enough:,}"
        )
    if most_at_work(clients=clients, separation=separation, buffer=buffer) < concurrency:
        needed = buffer * separation + concurrency
        possible = (clients - concurrency) // buffer
        advice = f"lower the separation to {possible:,}" if possible > 0 else "lower the buffer"
        raise OffbeatError(
            f"{_counted(buffer * separation, 'client')} must wait ({buffer:,} a version, for "
            f"{_counted(separation, 'version')}) and {concurrency:,} must work, but there are {clients:,}: {advice} or "
            f"raise the clients to {needed:,}"
        )


def most_at_work(*, clients: int, separation: int, buffer: int) -> int:
    """Return how many clients can be at work while others wait: N − K · b."""
    return clients - buffer * separation


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


SMALLEST_SCALE = 1 / 8
"""The smallest weight by staleness; a smaller one would tell the client's share of a sum apart."""


def check_scale(scale: float) -> None:
    """Raise ``ValueError`` unless a client accepts the scale: 1/8 … 1."""
    if not SMALLEST_SCALE <= scale <= 1:
        raise ValueError(f"scale must be in {SMALLEST_SCALE} … 1, got {scale}")
