import torch

from offbeat.algorithms import FedAvg, FedBuff, LocalPlan
from offbeat.coordinator.algorithm_checks import same_bits
from offbeat.coordinator.script_play import ScriptPlay, ScriptWorld, random_script

PLAN = LocalPlan(2, 1, 0.1)


def world(factory, clients=6):
    return ScriptWorld(factory, clients, 3, PLAN, seed=1)


def test_a_seed_makes_one_script_of_every_kind_of_call():
    script = random_script("0 1", 200)
    assert script == random_script("0 1", 200)
    assert script != random_script("0 2", 200)
    assert len(script) == 200
    assert {kind for kind, _, _ in script} == {"assign", "arrive", "drop", "duplicate", "lapse", "tick", "restart"}


def test_a_script_by_hand():
    play = ScriptPlay(world(lambda: FedBuff(buffer_size=2, concurrency=2)))
    play.play([("arrive", 0, 0), ("assign", 0, 0), ("arrive", 0, 3), ("duplicate", 0, 0), ("arrive", 0, 5)])
    answers = [answer for _, answer, *_ in play.trace]
    assert answers[0] is None  # nobody is at work
    assert [plan for _, _, plan in answers[1]] == [PLAN, PLAN]
    assert answers[2] == (True, 0, False)
    assert answers[3] is False  # a duplicate
    assert answers[4] == (True, 0, True)
    assert [version for _, _, version, *_ in play.trace] == [0, 0, 0, 0, 1]
    vectors = world(FedBuff).vectors
    expected = torch.ones(3) - (vectors[3] + vectors[5]) / 2
    torch.testing.assert_close(play.outcome()["model"], expected)


def test_every_way_to_play_a_script_comes_to_the_same_model():
    script = random_script("7", 120)
    settings = ({}, {"reads": True}, {"promises": True}, {"restarts": True})
    plays = [ScriptPlay(world(lambda: FedAvg(cohort=3)), **each) for each in settings]
    for play in plays:
        play.play(script)
    assert plays[0].algorithm.version > 3
    assert all(play.trace == plays[0].trace for play in plays)
    assert all(same_bits(play.outcome()["model"], plays[0].outcome()["model"]) for play in plays)
    assert plays[3].suspects == []
