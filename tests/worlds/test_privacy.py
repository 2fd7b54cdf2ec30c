import math

import numpy as np
import pytest
import torch
from offbeat_private.noise.correlated_noise import sensitivity

from offbeat.algorithms import MIFA, FedAvg, FedBuff, FedLaAvg, FedLuck, FedNova, Port
from offbeat.algorithms.components import Update
from offbeat.config.privacy_section import PrivacySection
from offbeat.worlds.privacy import protection

NOISY = {"noise_multiplier": 2.0, "max_participations": 4}
SECRET = bytes(range(32))


def asked(algorithm=None, length=1000, clients=100, **keys):
    return protection(PrivacySection(**{"clip_norm": 1.0} | keys), algorithm or FedBuff(), clients, length)


def test_a_whole_number_is_worth_the_clip_norm_over_the_largest():
    made = asked(clip_norm=3.0, bits=8)
    assert (made.grid.largest, made.grid.step) == (127, 3.0 / 127)


def test_limits_become_the_coordinators():
    participation = asked(**NOISY, min_separation=3).participation()
    assert (participation.limit, participation.separation, len(participation.counts())) == (4, 3, 100)
    assert asked().participation().limit == math.inf


@pytest.mark.parametrize("keys", [{}, {"helper": "a", "min_clients": 2}])
def test_clients_are_not_asked_for_speeds(keys):
    """They may depend on clients' data."""
    algorithm = FedLuck()
    asked(algorithm, **keys).wrap(algorithm, None, SECRET)
    assert not algorithm.measures


def test_a_sum_may_have_those_of_one_that_was_too_small():
    assert asked(FedAvg(cohort=10, weighting="uniform"), helper="a", min_clients=4).places == 13
    assert asked(FedBuff(buffer_size=10), helper="a", min_clients=4).places == 13


def test_a_sum_has_each_client_once_at_most():
    assert asked(FedAvg(cohort=10, weighting="uniform"), helper="a", min_clients=4, clients=11).places == 11
    assert asked(MIFA(weighting="uniform"), helper="a", min_clients=4).places == 100


def test_a_difference_takes_a_bit_more():
    keys = {"helper": "a", "min_clients": 2, "bits": 20}
    for algorithm, factor in ((FedAvg(cohort=9, weighting="uniform"), 1), (FedLaAvg(cohort=9, weighting="uniform"), 2)):
        made = asked(algorithm, **keys)
        made.wrap(algorithm, None, SECRET)
        assert algorithm.buffer.bound == 10 * factor * (2**19 - 1)
    # 1,024 · 2 · (2¹⁹ − 1) is just below 2³⁰.
    for clients, fits in ((1024, True), (1025, False)):
        algorithm = MIFA(weighting="uniform")
        made = asked(algorithm, clients=clients, delta=1e-4, **keys)
        if fits:
            made.wrap(algorithm, None, SECRET)
        else:
            with pytest.raises(ValueError, match="a sum of 1025 updates of 20 bits and its noise could overflow"):
                made.wrap(algorithm, None, SECRET)


@pytest.mark.parametrize("mechanism", ["independent", "banded"])
def test_noise_is_made_for_the_largest_update_and_all_participations(mechanism):
    made = asked(**NOISY, min_separation=5, mechanism=mechanism, helper="a", min_clients=2, bits=6, length=50_000)
    row = made.noise(SECRET).noise(1, [bytes(32)])  # a single row
    bands = 5 if mechanism == "banded" else 1
    expected = 2.0 * (31 + math.sqrt(50_000)) * sensitivity(4, 5, bands) / 2  # in steps
    assert row.std() == pytest.approx(expected, rel=0.02)
    in_the_clear = asked(**NOISY, min_separation=5, mechanism=mechanism, bits=6, length=50_000)
    assert np.array_equal(in_the_clear.noise(SECRET).noise(1, [bytes(32)]), row)


def test_a_sum_has_room_for_ten_deviations_of_noise():
    made = asked(**NOISY, helper="a", min_clients=2, length=100)
    algorithm = FedBuff()
    made.wrap(algorithm, made.noise(SECRET), SECRET)
    largest = 2**19 - 1
    assert algorithm.buffer.bound == 11 * largest + math.ceil(10 * 2.0 * (largest + 10))


class OwnReceive(FedBuff):
    def receive(self, update):
        return False


class Urgent(FedBuff):
    def urgent(self):
        return ()


class OwnDivisor(FedBuff):
    def divisor(self, plan):
        return 2.0


@pytest.mark.parametrize(
    ("algorithm", "keys", "message"),
    [
        (OwnReceive(), {}, r"^\[privacy\] does not work with fedbuff, which replaces Algorithm\.receive"),
        (Port(), {}, r"^\[privacy\] does not work with port: it looks at single updates"),
        (
            MIFA(weighting="uniform"),
            {"helper": "a", "min_clients": 2, "min_separation": 2},
            r"^mifa may have all clients in one sum, .*: leave it out$",
        ),
        (FedBuff(), {"min_clients": 11}, r"privacy\.min_clients must be at most 10"),
        (
            FedBuff(),
            {"delta": 0.02},
            r"privacy\.delta must be at most 1/100, one over the number of clients, got 0\.02",
        ),
    ],
)
def test_what_does_not_fit_is_refused(algorithm, keys, message):
    with pytest.raises(ValueError, match=message):
        asked(algorithm, **keys)


def test_partial_updates_do_not_go_with_masks():
    made = asked(helper="a", min_clients=2)
    with pytest.raises(ValueError, match="it asks for partial updates"):
        made.wrap(Urgent(), None, SECRET)
    with pytest.raises(ValueError, match="may only be divided by 1 or by FedNova's normaliser"):
        made.wrap(OwnDivisor(), None, SECRET)
    asked(FedNova(), helper="a", min_clients=2).wrap(FedNova(), None, SECRET)


def test_a_servers_rounding_is_made_of_secret_client_and_start_alone():
    algorithm = FedBuff(buffer_size=1, concurrency=9)
    made = asked(clip_norm=1.0, length=64)
    made.wrap(algorithm, None, SECRET)
    whole = algorithm.buffer._whole
    half = torch.full((64,), 0.5 * made.grid.step)

    def numbers(client, version, whole=whole, **changes):
        return whole(Update(client, version, half, 1, 1, 1.0)._replace(**changes), 1.0, 1.0).resolve()

    first = numbers(3, 5)
    assert set(first.tolist()) == {0, 1}
    assert torch.equal(first, numbers(3, 5, examples=9, steps=7, loss=1.0))
    assert torch.equal(first[:32], numbers(3, 5, vector=torch.cat([half[:32], -half[32:]]))[:32])
    other = FedBuff(buffer_size=1, concurrency=9)
    made.wrap(other, None, bytes(32))
    for one in (numbers(4, 5), numbers(3, 6), numbers(3, 5, whole=other.buffer._whole)):
        assert not torch.equal(one, first)
