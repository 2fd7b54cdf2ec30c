import dataclasses

import pytest

from offbeat.algorithms import ALGORITHMS
from offbeat.algorithms.components import RunFacts


def test_a_run_is_frozen_and_has_no_data_weights_unless_given():
    run = RunFacts(3, 7)
    assert (run.length, run.clients, run.data_weights) == (3, 7, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.clients = 8


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_parts_of_every_algorithm_resume_from_their_state(name, same_state):
    """Every component goes through the life that the driver gives it."""
    algorithm, run = ALGORITHMS[name](), RunFacts(3, 5)
    parts = {key: part for key, part in vars(algorithm).items() if hasattr(part, "check_run")}
    assert {"schedule", "buffer"} <= set(parts)
    for part in parts.values():
        part.start(run)
        state = part.state_dict()
        part.start(run)
        part.load_state_dict(state)
        assert same_state(part.state_dict(), state)
