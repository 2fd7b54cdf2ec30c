"""Attacks of a server on masks alone: each makes one client's update known, unless the others refuse."""

from dataclasses import replace

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import normaliser
from offbeat_private.helper.helper_refusal import HelperRefusal

from tests.offbeat_client.deviating_server import LENGTH, PLAN, DeviatingServer

VICTIM, OTHERS = 0, (1, 2)
MODEL = np.linspace(-1, 1, LENGTH).astype(np.float32)


@pytest.fixture
def attack(tmp_path, server, quick):
    made = DeviatingServer(tmp_path, server, quick, clients=3)
    yield made
    made.close()


def tell(attack, what):
    """Fail with how well the server knows the victim's update."""
    truth = attack.clients[VICTIM].update(MODEL)
    pytest.fail(f"the server knows the update to {np.linalg.norm(what - truth) / np.linalg.norm(truth):.0e}")


def refusal_of(give):
    try:
        give()
    except OffbeatError as error:
        return str(error)
    return None


def check_refused(attack, message, model=MODEL, plan=PLAN, **values):
    """Check that the others refuse what they are given in the victim's sum."""
    attack.visit(VICTIM, 0, MODEL)
    refusals = [refusal_of(lambda other=other: attack.visit(other, 0, model, plan, **values)) for other in OTHERS]
    if refusals == [None, None]:
        tell(attack, attack.open([VICTIM, *OTHERS]))
    for refusal in refusals:
        assert message in refusal
        assert "\n" not in refusal
    assert attack.came() == {VICTIM}
    with pytest.raises(HelperRefusal, match="this run opens 2 or more"):
        attack.open([VICTIM])


def test_without_an_attack_the_sum_is_that_of_all(attack):
    for client in (VICTIM, *OTHERS):
        attack.visit(client, 0, MODEL)
    expected = np.sum([client.update(MODEL) for client in attack.clients], axis=0)
    assert np.abs(attack.open([VICTIM, *OTHERS]) - expected).max() < 1e-3


def test_a_model_that_is_not_finite_for_the_others(attack):
    nan = np.full(LENGTH, np.nan, np.float32)
    check_refused(attack, "weight of the server's version 0 is not finite", nan)


def test_the_same_model_under_two_versions(attack):
    for client in (VICTIM, *OTHERS):
        attack.visit(client, 0, MODEL)
    three = attack.open([VICTIM, *OTHERS])
    refusals = [refusal_of(lambda other=other: attack.visit(other, 1, MODEL)) for other in OTHERS]
    if refusals == [None, None]:
        tell(attack, three - attack.open(OTHERS))
    for refusal in refusals:
        assert "the model of version 0 again, as version 1" in refusal
    assert attack.came() == set()


MILLIONS = {"steps": 3000, "momentum": 0.9999999}


@pytest.mark.parametrize(
    ("changes", "values", "message"),
    [
        ({"lr": 1e-30}, {}, "lr is 1e-30 at version 0, the terms say 0.1"),
        ({"mu": 2e30, "lr": 5e-31}, {}, "mu is 2e+30"),
        ({"optimizer": "adamw", "lr": 1e-30}, {}, "optimizer is adamw"),
        # A plan whose divisor is millions, and that is cut short.
        (MILLIONS, {"divisor": normaliser(replace(PLAN, **MILLIONS)), "urgent": True}, "before its last step"),
        (MILLIONS, {"divisor": normaliser(replace(PLAN, **MILLIONS))}, "momentum is 0.9999999, the terms say 0.0"),
    ],
)
def test_other_plans_for_the_others(attack, changes, values, message):
    check_refused(attack, message, plan=replace(PLAN, **changes), **values)


def test_a_model_for_the_victim_and_one_for_the_others_under_one_version(attack):
    """They train from it, and the server would know the result; the helper sees two digests."""
    attack.visit(VICTIM, 0, MODEL)
    for other in OTHERS:
        attack.visit(other, 0, 2 * MODEL)
    with pytest.raises(HelperRefusal, match="trained from another model as version 0 than others"):
        attack.open([VICTIM, *OTHERS])
