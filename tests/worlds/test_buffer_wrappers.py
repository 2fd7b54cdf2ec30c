import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedAsync, FedBuff, FedNova, LocalPlan, Update
from offbeat.algorithms.components.buffers.robust import Robust
from offbeat.algorithms.components.buffers.wrappers import Clip, Limit
from offbeat.config.experiment_sections import ServerSection
from offbeat.worlds.buffer_wrappers import wrap_buffer
from offbeat.worlds.simulation import build_simulation


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
