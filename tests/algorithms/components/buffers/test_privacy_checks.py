import pytest

from offbeat.algorithms import ALGORITHMS, FedAvg, FedBuff
from offbeat.algorithms.components import Sum
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.wrappers import clip

PRIVATE = {"fedbuff", "fednova"}
REASONS = {
    "fedasync": "looks at single updates",
    "fedavg": "weighs by examples, which the sum would tell: set weighting = 'uniform'",
    "fedfa": "puts an update into several sums, whose differences would show it",
    "fedlaavg": "adds up differences, so a client is in all later sums",
    "fedluck": "plans by measured speed",
    "async_comm_sgd": "makes a version from any number of updates",
    "mifa": "adds up differences, so a client is in all later sums",
    "port": "looks at single updates",
    "scaffold": "keeps what it learned from a client",
    "sequential_sgd": "looks at single updates",
}


def test_each_algorithm_is_either_private_or_has_a_reason():
    assert {*PRIVATE, *REASONS} == set(ALGORITHMS)


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_sums_of_updates_may_be_private(name):
    algorithm = ALGORITHMS[name]()
    assert check_private_sum(algorithm) is algorithm.buffer


@pytest.mark.parametrize(("name", "reason"), sorted(REASONS.items()))
def test_others_are_refused_in_one_line_with_the_reason(name, reason):
    with pytest.raises(ValueError, match=rf"^\[privacy\] does not go with {name}: it {reason}"):
        check_private_sum(ALGORITHMS[name]())


def test_fedavg_is_private_with_uniform_weights():
    assert isinstance(check_private_sum(FedAvg(weighting="uniform")), Sum)


def test_other_wrappers_look_at_norms():
    algorithm = FedBuff()
    algorithm.wrap(clip(1.0))
    with pytest.raises(ValueError, match=r"^\[privacy\] does not go with server.aggregate or limits on norms"):
        check_private_sum(algorithm)


class Curious(FedBuff):
    needs_loss = True


def test_losses_would_steer_the_schedule_by_clients_data():
    with pytest.raises(ValueError, match=r"^\[privacy\] does not go with fedbuff: it asks for losses"):
        check_private_sum(Curious())
