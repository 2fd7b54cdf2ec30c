import math

import pytest

from offbeat.algorithms import FedFa
from offbeat.algorithms.components.server_optimizer import adam


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 0}, "window must be a whole number of at least 1, got 0"),
        ({"window": 2.0}, "window"),
        ({"transmit": "gradient"}, "transmit must be 'delta' or 'params', got 'gradient'"),
        ({"server_lr": 0.0}, "server_lr must be greater than 0"),
        ({"server_lr": math.inf}, "server_lr"),
        ({"release_every": 0}, "release_every must be a whole number of at least 1"),
        ({"window": 3, "release_every": 4}, "release_every must be at most the window, 3, got 4"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1"),
        ({"transmit": "params", "server_lr": 0.5}, "are for transmit = 'delta'"),
        ({"transmit": "params", "normalise": True}, "are for transmit = 'delta'"),
        ({"transmit": "params", "server_optimizer": adam()}, "are for transmit = 'delta'"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedFa(**parameters)


def test_defaults():
    algorithm = FedFa()
    assert (algorithm.window, algorithm.transmit, algorithm.server_lr) == (5, "delta", 1.0)
    assert (algorithm.release_every, algorithm.concurrency, algorithm.normalise) == (1, 10, False)
    assert algorithm.server_optimizer is None


@pytest.mark.parametrize("transmit", ["delta", "params"])
def test_transmit_is_the_payload(transmit):
    algorithm = FedFa(transmit=transmit)
    assert (algorithm.name, algorithm.payload, algorithm.buffer.linear) == ("fedfa", transmit, True)


@pytest.mark.parametrize(("window", "every", "releases"), [(5, 1, 5), (5, 2, 3), (5, 5, 1), (1, 1, 1), (6, 3, 2)])
def test_a_vector_takes_part_in_as_many_released_sums_as_the_window_is_long(window, every, releases):
    assert FedFa(window=window, release_every=every).buffer.releases == releases
