import pytest

from offbeat.algorithms import (
    ACE,
    ALGORITHMS,
    CA2FL,
    FADAS,
    MIFA,
    AsyncCommSGD,
    FedAvg,
    FedBuff,
    FedLaAvg,
    FedLuck,
    FedNova,
    RingmasterASGD,
)
from offbeat.algorithms.components import Aggregate
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.wrappers import clip

ANY_SUM = [FADAS, RingmasterASGD, FedBuff, FedNova, FedLuck, lambda: FedAvg(weighting="uniform")]
MASKS_ALONE = [lambda kind=kind: kind(weighting="uniform") for kind in (ACE, CA2FL, FedLaAvg, MIFA)]
EXAMPLES = "weighs by examples, and sums would reveal how many a client has: set weighting = 'uniform'"
REASONS = {
    "ace": EXAMPLES,
    "area": "looks at single updates",
    "ca2fl": EXAMPLES,
    "fadas": None,
    "fedasync": "looks at single updates",
    "fedavg": EXAMPLES,
    "fedbuff": None,
    "fedcompass": "looks at single updates",
    "feddyn": "keeps what it learned from a client",
    "fedfa": "puts an update into several sums, whose differences would show it",
    "fedlaavg": EXAMPLES,
    "fedluck": None,
    "fednova": None,
    "async_comm_sgd": EXAMPLES,
    "mifa": EXAMPLES,
    "port": "looks at single updates",
    "ringleader": "looks at single updates",
    "ringmaster": None,
    "scaffold": "keeps what it learned from a client",
    "sequential_sgd": "looks at single updates",
}


def test_each_algorithm_is_either_private_or_has_a_reason():
    assert set(REASONS) == set(ALGORITHMS)


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("make", ANY_SUM)
def test_sums_of_updates_may_be_masked_and_noisy(make, is_masked):
    algorithm = make()
    assert check_private_sum(algorithm, is_masked=is_masked, is_noisy=True) is algorithm.buffer


@pytest.mark.parametrize("make", MASKS_ALONE)
def test_differences_may_be_masked_and_have_no_noise(make):
    algorithm = make()
    assert check_private_sum(algorithm, is_masked=True) is algorithm.buffer
    for is_masked in (True, False):
        with pytest.raises(ValueError, match=r"would keep all noise, in all later sums: set noise_multiplier = 0$"):
            check_private_sum(algorithm, is_masked=is_masked, is_noisy=True)
    with pytest.raises(ValueError, match=r"needs clients to clip .*: set privacy\.helper$"):
        check_private_sum(algorithm, is_masked=False)


@pytest.mark.parametrize(("name", "reason"), [pair for pair in sorted(REASONS.items()) if pair[1]])
def test_others_are_refused_in_one_line_with_the_reason(name, reason):
    with pytest.raises(ValueError, match=rf"^\[privacy\] does not work with {name}: it {reason}"):
        check_private_sum(ALGORITHMS[name](), is_masked=True)


def test_updates_that_the_server_keeps_are_not_private():
    for kind in (ACE, CA2FL, FedLaAvg, MIFA):
        with pytest.raises(ValueError, match="looks at single updates"):
            check_private_sum(kind(weighting="uniform", server_keeps_updates=True), is_masked=True)


class Own(Aggregate):
    """A linear buffer of somebody else's."""

    add = release = state_dict = load_state_dict = None


def test_a_buffer_that_masks_do_not_know_is_refused():
    algorithm = FedBuff()
    algorithm.buffer = Own()
    with pytest.raises(ValueError, match="sums updates in a buffer of its own"):
        check_private_sum(algorithm, is_masked=True)


def test_sums_by_round_need_masks_and_no_model_for_each_round():
    algorithm = AsyncCommSGD(weighting="uniform")
    assert check_private_sum(algorithm, is_masked=True, is_noisy=True) is algorithm.buffer
    with pytest.raises(ValueError, match=r"when too few clients have reported: set privacy\.helper$"):
        check_private_sum(algorithm, is_masked=False)
    with pytest.raises(ValueError, match=r"averages a model for each round, .*: leave average out$"):
        check_private_sum(AsyncCommSGD(weighting="uniform", average=True), is_masked=True)


def test_other_wrappers_look_at_norms():
    algorithm = FedBuff()
    algorithm.wrap(clip(1.0))
    with pytest.raises(ValueError, match=r"^\[privacy\] does not work with server.aggregate, update_clip_norm and"):
        check_private_sum(algorithm, is_masked=True)


class Curious(FedBuff):
    needs_loss = True


def test_losses_would_steer_the_schedule_by_clients_data():
    with pytest.raises(ValueError, match=r"^\[privacy\] does not work with fedbuff: it asks for losses"):
        check_private_sum(Curious(), is_masked=True)
