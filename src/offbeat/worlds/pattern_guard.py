"""A communication pattern of the user's own: what its rule does wrong is one line for the user."""

from dataclasses import replace

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components import Periodic
from offbeat.algorithms.components.patterns import Pattern
from offbeat.errors import OffbeatError
from offbeat_client.user_code_errors import failure


def guard_pattern(algorithm: Algorithm) -> None:
    """Guard the pattern of an algorithm that has one."""
    schedule = getattr(algorithm, "schedule", None)  # an algorithm of the user's own may have none
    if isinstance(schedule, Periodic) and schedule.pattern is not None:
        schedule.pattern = guarded(schedule.pattern)


def guarded(pattern: Pattern) -> Pattern:
    """Return the pattern; one of the user's own raises an ``OffbeatError`` where its rule fails or breaks its word."""
    rule = pattern.own
    if rule is None:
        return pattern

    def next_round(client: int, last: int, clients: int) -> int:
        try:
            following = rule(client, last, clients)
        except (Exception, SystemExit) as error:
            raise failure(f"pattern {pattern.name} failed for client {client} after round {last}", error) from error
        try:
            number = replace(pattern, own=lambda *_: following).next_round(client, last, clients)
        except ValueError as error:
            raise OffbeatError(str(error)) from None
        longest = pattern.longest_gap(clients)
        if number - last > longest:
            raise OffbeatError(
                f"pattern {pattern.name}: client {client} is to talk next in round {number}, {number - last} after "
                f"round {last}, but longest_gap is {longest}"
            )
        return number

    return replace(pattern, own=next_round)
