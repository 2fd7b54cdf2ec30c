"""The budget that the benchmark announces before its runs."""

import itertools
from pathlib import Path

import pytest

from offbeat.simulation.simulator import Simulation
from offbeat.simulation.training_queue import DivergedError
from offbeat_studies.benchmark import protocol
from offbeat_studies.benchmark.catalogue import read_entries
from offbeat_studies.benchmark.protocol import Plan
from offbeat_studies.benchmark.world import read_world

TINY = Path(__file__).with_name("tiny_world.toml")


@pytest.fixture
def plan(tmp_path):
    """Return a function that makes the plan of FedBuff in the tiny world, tuned over some learning rates."""

    def make(rates):
        path = tmp_path / "own.toml"
        text = TINY.read_text(encoding="utf-8").replace("space = {", f"space = {{ 'local.lr' = '{rates}',")
        path.write_text(text.replace('"softmax"', '"mlp"\nhidden = [4]'), encoding="utf-8")
        world = read_world(str(path))
        return Plan(world, read_entries(world, ["fedbuff"], []), [1], tmp_path)

    return make


@pytest.fixture
def closed(monkeypatch):
    """The simulations that were closed."""
    found = []
    monkeypatch.setattr(Simulation, "close", lambda self: found.append(self))
    return found


@pytest.mark.parametrize("rates", ["0.1,0.2", "1e29,1e30"])
def test_a_short_run_that_diverges_measures_too(rates, plan, closed):
    assert plan(rates).expected_seconds(str) > 0
    assert len(closed) == 1


def test_the_time_of_a_short_run_is_scaled_by_the_share_that_it_reached(plan, closed, monkeypatch):
    def diverge(self):
        self._now = 1.0
        raise DivergedError("diverged")

    monkeypatch.setattr(Simulation, "step", diverge)
    monkeypatch.setattr(protocol.time, "process_time", itertools.count().__next__)
    # The start takes a second, and so does 1 s of the world's 40 s: its 3 trials of 20 s and a run of 40 s.
    assert plan("0.1,0.2").expected_seconds(str) == pytest.approx((3 + 1) * 1 + (3 * 0.5 + 1) * 40)
