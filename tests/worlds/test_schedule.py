"""A schedule has the events of the run, whatever is learnt."""

import pytest

from offbeat.worlds.schedule import ScheduleWorld
from offbeat.worlds.simulation import build_simulation

# Clients come and go and lose work; devices and links differ; some updates come too late.
WORLD = (
    "model={ name = 'mlp', hidden = [4] }",
    "population.clients=12",
    "population.availability={ name = 'alternating', period_seconds = 9.0 }",
    "population.step_seconds={ distribution = 'lognormal', median = 0.4, sigma = 1.0 }",
    "population.up_bytes_per_second={ distribution = 'lognormal', median = 2000.0, sigma = 0.5 }",
    "population.lossy={ fraction = 0.5, probability = 0.3 }",
    "server={ lease_seconds = 15.0 }",
    "stop={ virtual_seconds = 90.0 }",
    "evaluate={ every_seconds = 30.0 }",
    "local={ steps = 3, batch_size = 5, lr = 0.05 }",
)
ALGORITHMS = {
    "fedavg": "{ cohort = 3, over_selection = 1.4 }",
    "scaffold": "{ cohort = 3 }",
    "fedlaavg": "{ cohort = 3 }",
    "fedasync": "{ concurrency = 5 }",
    "fedbuff": "{ buffer_size = 2, concurrency = 5, local = { compression = { name = 'top_k', share = 0.2 } } }",
    "ringmaster": "{ delay_bound = 3, concurrency = 5, server_lr = 0.1 }",
    "port": "{ min_clients = 2, staleness_bound = 2, concurrency = 5 }",
    "async_comm_sgd": "{ period = 2.0 }",
    "fedluck": "{ period = 3.0, steps = [1, 8], compression = [0.05, 1.0] }",
    "fedcompass": "{ steps = [2, 6] }",
    "area": "{ buffer_size = 1, concurrency = 5 }",
}


def played(simulation):
    while not simulation.finished:
        simulation.step()
    return simulation


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_visit_is_that_of_the_run(name, experiment, digits):
    late = ["server.max_staleness=6"] if name in ("area", "fedasync", "fedbuff") else []
    here = experiment(*WORLD, *late, f"algorithms={{ {name} = {ALGORITHMS[name]} }}")
    run, schedule = (played(build_simulation(here, name, 3, digits, **kind)) for kind in ({}, {"kind": ScheduleWorld}))
    assert schedule.ended == run.ended
    assert schedule.coordinator.statistics == run.coordinator.statistics
    assert schedule.coordinator.algorithm.version == run.coordinator.algorithm.version > 0
    assert (schedule.bytes_moved, schedule.client_time) == (run.bytes_moved, run.client_time)
    assert {visit.outcome for visit in run.ended} >= {"counted", "lost"}
    assert len(schedule.model) < len(run.model)


def test_masks_and_their_bytes_are_those_of_the_run(experiment, digits):
    here = experiment(
        *WORLD[:4],
        "server={ lease_seconds = 15.0 }",
        "stop={ versions = 6 }",
        "evaluate={ every_versions = 3 }",
        "algorithms={ fedbuff = { buffer_size = 3, concurrency = 5 } }",
        "privacy={ helper = 'here', clip_norm = 0.5, min_clients = 2, bits = 20 }",
    )
    run, schedule = (
        played(build_simulation(here, "fedbuff", 1, digits, **kind)) for kind in ({}, {"kind": ScheduleWorld})
    )
    assert schedule.ended == run.ended
    assert schedule.bytes_moved == run.bytes_moved


def test_early_stops_are_ignored(experiment, digits):
    end = "{ virtual_seconds = 60.0, target = 5.0, metric = 'loss' }"
    here = experiment(f"stop={end}", "evaluate={ every_seconds = 5.0 }")
    assert played(build_simulation(here, "fedbuff", 1, digits)).now == 0
    assert played(build_simulation(here, "fedbuff", 1, digits, kind=ScheduleWorld)).now == 60


def test_an_algorithm_of_ones_own_gets_models_of_the_real_length(experiment, digits, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from offbeat.algorithms import FedBuff\n"
        "class Mine(FedBuff):\n"
        "    def next_model(self, model, closed):\n"
        "        assert len(model) == 650\n"
        "        return super().next_model(model, closed)\n",
        encoding="utf-8",
    )
    here = experiment(
        "model={ name = 'softmax' }", "algorithms={ mine = { algorithm = 'mine.py:Mine', buffer_size = 2 } }"
    )
    schedule = played(build_simulation(here, "mine", 1, digits, kind=ScheduleWorld))
    assert schedule.coordinator.algorithm.version > 2
