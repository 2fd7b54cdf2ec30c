import pytest

from offbeat.algorithms import MIFA, AsyncCommSGD, FedAsync, FedAvg, FedBuff, FedLaAvg, FedLuck
from offbeat.algorithms.components.buffers.secret import SecretByRound, SecretLatestOfEach, SecretSum, secret


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        (FedBuff(), SecretSum),
        (FedAvg(weighting="uniform"), SecretSum),
        (FedLaAvg(weighting="uniform"), SecretLatestOfEach),
        (MIFA(weighting="uniform"), SecretLatestOfEach),
        (AsyncCommSGD(weighting="uniform"), SecretByRound),
        (FedLuck(), SecretSum),
    ],
)
def test_a_buffer_of_masked_updates_stands_for_the_algorithms_own(algorithm, kind):
    algorithm.wrap(secret(step=0.5, bound=7, least=3))
    buffer = algorithm.buffer
    assert type(buffer) is kind
    assert (buffer.step, buffer.bound, buffer.least) == (0.5, 7, 3)


def test_what_cannot_be_masked_is_refused():
    with pytest.raises(ValueError, match="fedasync: it looks at single updates"):
        FedAsync().wrap(secret(step=0.5, bound=7, least=3))
