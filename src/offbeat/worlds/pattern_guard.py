"""Checks of a user's communication pattern during a run."""

from dataclasses import replace

from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import failure

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components import Periodic
from offbeat.algorithms.components.schedules.patterns import Pattern


def guard_pattern(algorithm: Algorithm) -> None:
    """Guard the algorithm's pattern, if it has one."""
    schedule = getattr(algorithm, "schedule", None)  # a user's algorithm may have none
    if isinstance(schedule, Periodic) and schedule.pattern is not None:
        schedule.pattern = guarded(schedule.pattern)


def guarded(pattern: Pattern) -> Pattern:
    """Return the pattern with checks of the user's rule.

    ``next_round`` then raises ``OffbeatError`` where the rule fails or exceeds its ``longest_gap``.
    """
    rule = pattern.own
    if rule is None:
        return pattern

    def call_rule(client: int, last: int, clients: int) -> int:
        try:
            return rule(client, last, clients)
        except (Exception, SystemExit) as error:
            raise failure(f"pattern {pattern.name} failed for client {client} after round {last}", error) from error

    called = replace(pattern, own=call_rule)

    def next_round(client: int, last: int, clients: int) -> int:
        try:
            number = called.next_round(client, last, clients)
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
