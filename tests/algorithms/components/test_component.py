import dataclasses

import pytest

from offbeat.algorithms.components import RunFacts
from offbeat.algorithms.components.component import Component


def test_a_run_is_frozen_and_has_no_data_weights_unless_given():
    run = RunFacts(3, 7)
    assert (run.length, run.clients, run.data_weights) == (3, 7, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.clients = 8


def test_a_component_must_start_and_be_saved_and_may_fit_every_run():
    class Stateless(Component):
        def start(self, run):
            pass

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    assert Stateless().check_run(RunFacts(3, 7)) is None
    with pytest.raises(TypeError, match="abstract methods load_state_dict, start, state_dict"):
        Component()
