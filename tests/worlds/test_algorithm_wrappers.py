import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedAsync, FedBuff, FedNova, LocalPlan, Update
from offbeat.algorithms.components.buffers.robust import Robust
from offbeat.algorithms.components.buffers.wrappers import Clip, Limit
from offbeat.algorithms.components.schedules.patterns import own, round_robin
from offbeat.config.experiment_sections import ServerSection
from offbeat.worlds.algorithm_setup import guarded, wrap_buffer
from offbeat.worlds.simulation import build_simulation
from tests.error_line import error_line


class ByItself(FedBuff):
    """An algorithm that receives updates without the driver's buffer."""

    def receive(self, update):
        return False


def test_by_default_nothing_is_wrapped():
    algorithm = FedBuff()
    buffer = algorithm.buffer
    wrap_buffer(algorithm, ServerSection(aggregate="mean"))
    assert algorithm.buffer is buffer


def test_the_limit_is_outermost_and_the_robust_mean_innermost():
    algorithm = FedBuff()
    section = ServerSection(update_clip_norm=1.0, max_update_norm=2.0, max_step_norm=3.0, aggregate="krum")
    wrap_buffer(algorithm, section)
    outer = algorithm.buffer
    assert isinstance(outer, Limit)
    assert outer.max_norm == 2
    assert isinstance(outer.inner, Clip)
    assert outer.inner.max_norm == 1
    assert isinstance(outer.inner.inner, Robust)
    assert algorithm.max_step_norm == 3


@pytest.mark.parametrize(
    ("algorithm", "keys", "message"),
    [
        (FedAsync(), {"update_clip_norm": 1.0}, "update_clip_norm does not go with fedasync"),
        (FedNova(), {"aggregate": "krum"}, "aggregate = 'krum' does not go with fednova"),
        (
            ByItself(),
            {"max_step_norm": 1.0},
            "server.max_step_norm does not go with fedbuff, which has a receive of its own",
        ),
        (ByItself(), {"aggregate": "trimmed_mean"}, "server.aggregate does not go with fedbuff"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(algorithm, keys, message):
    with pytest.raises(ValueError, match=message):
        wrap_buffer(algorithm, ServerSection(**keys))


def test_keys_of_a_file_that_contradict_each_other_are_one_line(experiment, digits):
    here = experiment("server.update_clip_norm=1.0", "algorithms={ mine = { algorithm = 'fedasync' } }")
    with pytest.raises(OffbeatError, match=r"^algorithms\.mine: update_clip_norm does not go with fedasync"):
        build_simulation(here, "mine", 1, digits)


def test_steps_stay_below_their_norm():
    algorithm = FedBuff(buffer_size=1)
    wrap_buffer(algorithm, ServerSection(max_step_norm=5.0))
    algorithm.start(torch.zeros(2), clients=1)
    algorithm.assign(0, LocalPlan(steps=1, batch_size=1, lr=0.1))
    algorithm.receive(Update(0, 0, torch.tensor([6.0, 8.0]), examples=1, steps=1, normaliser=1.0))
    torch.testing.assert_close(algorithm.model, torch.tensor([-3.0, -4.0]))


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
