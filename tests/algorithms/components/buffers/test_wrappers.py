import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedAsync, FedAvg, FedBuff, FedLaAvg
from offbeat.algorithms.components import UpdateRefusedError
from offbeat.algorithms.components.buffers.wrappers import clip, limit
from offbeat.algorithms.components.weights import constant


@pytest.fixture
def fedbuff(plan):
    """Returns a function that starts a wrapped FedBuff with three clients at work."""

    def start(*wrappers, size=2):
        algorithm = FedBuff(buffer_size=size, staleness=constant())
        for wrapper in wrappers:
            algorithm.wrap(wrapper)
        algorithm.start(torch.zeros(2), clients=3)
        for client in range(3):
            algorithm.assign(client, plan)
        return algorithm

    return start


def test_a_long_update_is_scaled_down_to_the_norm_and_a_short_one_is_not(fedbuff, upload):
    algorithm = fedbuff(clip(5.0))
    algorithm.receive(upload(0, 0, 6, 8))  # norm 10: halved
    algorithm.receive(upload(1, 0, 3, 4))  # norm 5
    assert algorithm.model.tolist() == [-3, -4]


def test_a_promise_is_clipped_when_it_is_kept(fedbuff, upload, deferred, vector):
    algorithm = fedbuff(clip(5.0), size=1)
    promise = deferred(vector(6, 8))
    algorithm.receive(upload(0, 0, 0, 0)._replace(vector=promise))
    assert promise.resolved == 0
    assert algorithm.model.tolist() == [-3, -4]
    assert promise.resolved == 1


def test_a_clipped_update_keeps_its_direction_where_squares_overflow(fedbuff, upload):
    algorithm = fedbuff(clip(1.0), size=1)
    algorithm.receive(upload(0, 0, 3e30, 4e30))
    torch.testing.assert_close(algorithm.model, torch.tensor([-0.6, -0.8]))


def test_an_update_that_is_too_long_is_refused_and_changes_nothing(fedbuff, upload, same_state):
    algorithm = fedbuff(limit(5.0))
    before = algorithm.state_dict()
    with pytest.raises(UpdateRefusedError, match=r"the update's norm is 10, allowed is at most 5"):
        algorithm.receive(upload(0, 0, 6, 8))
    assert same_state(algorithm.state_dict(), before)
    algorithm.receive(upload(0, 0, 3, 4))
    algorithm.receive(upload(1, 0, 3, 4))
    assert algorithm.model.tolist() == [-3, -4]


def test_the_limit_is_on_the_length_before_clipping(fedbuff, upload):
    algorithm = fedbuff(clip(1.0), limit(5.0))
    with pytest.raises(UpdateRefusedError):
        algorithm.receive(upload(0, 0, 6, 8))


def test_a_round_that_refuses_an_update_ends_with_the_others(plan, upload):
    algorithm = FedAvg(cohort=2, weighting="uniform")
    algorithm.wrap(limit(5.0))
    algorithm.start(torch.zeros(2), clients=2)
    for client in (0, 1):
        algorithm.assign(client, plan)
    with pytest.raises(UpdateRefusedError):
        algorithm.receive(upload(0, 0, 6, 8))
    assert algorithm.drop(0, 0) is False
    assert algorithm.receive(upload(1, 0, 3, 4)) is True
    assert algorithm.model.tolist() == [-3, -4]


@pytest.mark.parametrize(
    ("algorithm", "wrapper", "message"),
    [
        (FedAsync(), clip(1.0), "update_clip_norm does not go with fedasync: its clients upload whole models"),
        (FedAsync(), limit(1.0), "max_update_norm does not go with fedasync: its clients upload whole models"),
        (FedLaAvg(), clip(1.0), "update_clip_norm does not go with fedlaavg: its clients would remember"),
        (SCAFFOLD(cohort=2), clip(1.0), "update_clip_norm does not go with scaffold: its clients would remember"),
    ],
)
def test_wrappers_that_do_not_go_with_an_algorithm_are_refused(algorithm, wrapper, message):
    with pytest.raises(ValueError, match=message):
        algorithm.wrap(wrapper)
