"""A simulation of every algorithm, saved to a file and restored at intervals, ends as an undisturbed one."""

import pytest
import torch

from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.simulation.records import Stop
from tests.algorithms.case import all_cases

CASES = all_cases()
TIMES = [
    [(0, 4.5), (6, 30)],
    [(0, 2), (2.25, 5), (7, 9), (11, 30)],
    [(1, 12), (14, 18)],
    [(0, 30)],
    [(2, 5), (6, 9), (10, 13), (14, 30)],
    [(0, 30)],
]


@pytest.fixture
def world(simulate, intervals):
    def build(case):
        arguments = {
            "step_seconds": (1.0, 1.5, 2.0, 4.0, 0.7, 0.4),
            "down": 16.0,
            "up": 6.0,
            "loss_probability": (0.0, 0.5, 0.0, 0.5, 0.0, 0.0),
            "availability": intervals(*TIMES),
            "when_away": "lose",
            "lease_seconds": 5.0,
        }
        if case.clients == 1:  # all data are in one place
            arguments = {"step_seconds": (0.25,), "down": 1.0, "up": 1.0}
        return simulate(case.make(), every=2.3, stop=Stop(virtual_seconds=24.0), **arguments)

    return build


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_from_a_file(name, world, tmp_path):
    undisturbed, saved = world(CASES[name]), world(CASES[name])
    evaluations, made = list(undisturbed.run()), []
    assert undisturbed.coordinator.statistics.counted > 5
    assert undisturbed.coordinator.algorithm.version > 1
    for step in range(1000):
        if saved.finished:
            break
        if step % 7 == 0:
            write_checkpoint(tmp_path / "checkpoint", saved.state_dict())
            restored = world(CASES[name])
            restored.load_state_dict(read_checkpoint(tmp_path / "checkpoint"))
            restored.ended = [*saved.ended]
            saved = restored
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]
    assert made == evaluations
    assert saved.ended == undisturbed.ended
    assert torch.equal(saved.model, undisturbed.model)
