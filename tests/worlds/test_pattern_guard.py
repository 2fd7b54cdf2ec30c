import copy
from pathlib import Path
from typing import Any

import pytest

from offbeat.algorithms.components.schedules.patterns import own, round_robin
from offbeat.worlds.pattern_guard import guarded
from tests.error_line import error_line


def every_third(client: int, last: int, clients: int) -> int:
    return last + 3 - (last - client) % 3


def test_a_correct_rule_is_followed() -> None:
    pattern = guarded(own(every_third, 3, "mine.py:every_third"))
    rounds = [0]
    for _ in range(4):
        rounds.append(pattern.next_round(1, rounds[-1], 5))
    assert rounds == [0, 1, 4, 7, 10]
    assert (pattern.name, pattern.parameters, pattern.longest_gap(5)) == ("mine.py:every_third", {"longest_gap": 3}, 3)


def test_a_built_in_one_is_itself() -> None:
    pattern = round_robin(k=3)
    assert guarded(pattern) is pattern


def test_it_can_be_copied() -> None:
    assert copy.deepcopy(guarded(own(every_third, 3))).next_round(1, 4, 5) == 7


def fails(client: int, last: int, clients: int) -> int:
    raise KeyError("first\nsecond")


def leaves(client: int, last: int, clients: int) -> int:
    raise SystemExit(7)


def with_two(client: int, last: int) -> int:
    return last + 1


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        (fails, ["failed for client 3 after round 4: KeyError", f"{Path(__file__)}:"]),
        (leaves, ["failed for client 3 after round 4: SystemExit: 7"]),
        (with_two, ["failed for client 3 after round 4: TypeError", "with_two() takes 2"]),
        (lambda *_: 5.0, ["client 3 is to talk next in round 5.0, which must be a whole number greater than 4"]),
        (lambda *_: 4, ["client 3 is to talk next in round 4, which must be a whole number greater than 4"]),
        (lambda *_: 12, ["client 3 is to talk next in round 12, 8 after round 4, but longest_gap is 7"]),
        (lambda *_: 10**30, ["but longest_gap is 7"]),
    ],
)
def test_a_wrong_rule_is_one_line_with_pattern_and_client(rule: Any, parts: list[str]) -> None:
    line = error_line(guarded(own(rule, 7, "mine.py:rule")).next_round, 3, 4, 5)
    assert line.startswith("pattern mine.py:rule")
    for part in parts:
        assert part in line


def test_the_longest_gap_itself_is_allowed() -> None:
    assert guarded(own(lambda *_: 11, 7)).next_round(3, 4, 5) == 11


def test_ctrl_c_within_the_rule_is_ctrl_c() -> None:
    def interrupted(client: int, last: int, clients: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(own(interrupted, 7)).next_round(3, 4, 5)
