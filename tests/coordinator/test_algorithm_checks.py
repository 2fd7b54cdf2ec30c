import copy

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import SCAFFOLD, FedBuff
from offbeat.algorithms.components import WrongStepError
from offbeat.coordinator.algorithm_checks import (
    FaultError,
    answered,
    attempt,
    check_declarations,
    check_down,
    check_failed_start,
    check_model,
    check_restart,
    differing_attributes,
    differing_entries,
    errors_named,
    same_bits,
)


def started(kind=FedBuff, **settings):
    algorithm = kind(**settings)
    algorithm.start(torch.ones(2), clients=3)
    return algorithm


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("payload", "detla", "payload = 'detla': .*delta"),
        ("corrects_gradients", True, None),
        ("selection", "unifrom", "selection = 'unifrom': .*uniform"),
        ("selection", lambda clients, seed: None, None),
    ],
)
def test_declarations(name, value, message):
    algorithm = FedBuff()
    setattr(algorithm, name, value)
    if message is None:
        check_declarations(algorithm)
        return
    with pytest.raises(FaultError, match=message):
        check_declarations(algorithm)


def test_only_deltas_can_be_of_corrected_gradients():
    algorithm = FedBuff()
    algorithm.corrects_gradients, algorithm.payload = True, "params"
    with pytest.raises(FaultError, match="corrects_gradients = True needs payload = 'delta', it is 'params'"):
        check_declarations(algorithm)


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_an_answer_is_true_or_false(answer):
    assert answered("drop", lambda version: version > 1, 2) is True
    with pytest.raises(FaultError, match=f"drop must return True or False.*returned {answer!r}"):
        answered("drop", lambda: answer)


def test_an_error_becomes_a_fault_but_faults_and_wrong_steps_pass():
    def raises(error):
        raise error

    assert attempt("adding", lambda a, b: a + b, 1, b=2) == 3
    with pytest.raises(FaultError, match="adding failed: KeyError: 'x'") as caught:
        attempt("adding", raises, KeyError("x"))
    assert isinstance(caught.value.__cause__, KeyError)
    for error in (FaultError("mine"), WrongStepError("mine")):
        with pytest.raises(type(error), match=r"^mine$"):
            attempt("adding", raises, error)


class Weighing(FedBuff):
    def weigh(self, update):
        return update()


def test_an_error_in_a_method_of_ones_own_is_one_line_of_the_run():
    def raises(error):
        raise error

    algorithm = Weighing()
    with (
        pytest.raises(OffbeatError, match=r"^mine, seed 1: weigh failed: KeyError: 'x' \(.*_checks.py:\d+\)$"),
        errors_named("mine, seed 1"),
    ):
        algorithm.weigh(lambda: raises(KeyError("x")))
    with pytest.raises(OffbeatError, match=r"^already one line$"), errors_named("mine"):
        algorithm.weigh(lambda: raises(OffbeatError("already one line")))
    with pytest.raises(OffbeatError, match=r"^mine: a wrong step$"), errors_named("mine"):
        raise WrongStepError("a wrong step")


def test_other_errors_keep_their_tracebacks():
    algorithm = FedBuff()
    with pytest.raises(KeyError), errors_named("mine"):
        raise KeyError("x")
    with pytest.raises(AttributeError), errors_named("mine"):
        algorithm.age(None)  # a method that is built in


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (torch.ones(2), None),
        ([1.0, 1.0], "of type list"),
        (torch.ones(2, dtype=torch.float64), "float64"),
        (torch.ones(3), r"\(3,\)"),
    ],
)
def test_a_model_is_a_float32_vector(model, message):
    if message is None:
        check_model(model, 2)
    else:
        with pytest.raises(FaultError, match=message):
            check_model(model, 2)


@pytest.mark.parametrize(
    ("kind", "down", "message"),
    [
        (FedBuff, None, None),
        (FedBuff, torch.ones(2), "clients do not use"),
        (SCAFFOLD, torch.ones(2), None),
        (SCAFFOLD, torch.ones(3), r"it returned float32 of shape \(3,\)"),
        (SCAFFOLD, None, "it returned NoneType"),
    ],
)
def test_a_vector_goes_down_where_clients_correct_gradients(kind, down, message):
    algorithm = kind()
    algorithm.down = lambda: down
    if message is None:
        check_down(algorithm, 2)
    else:
        with pytest.raises(FaultError, match=message):
            check_down(algorithm, 2)


class Forgetful(FedBuff):
    """Saves itself, but for one attribute."""

    seen = 0

    def state_dict(self):
        return super().state_dict()


class Changing(FedBuff):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "version": state["version"] + 1})


def test_a_restart_keeps_every_attribute():
    check_restart(started(), FedBuff())
    with pytest.raises(FaultError, match="a restart changes 'version'"):
        check_restart(started(Changing), Changing())
    algorithm = started(Forgetful)
    algorithm.__dict__["seen"] = 3
    algorithm._known = {*algorithm._known, "seen"}
    with pytest.raises(FaultError, match="a restart forgets the attribute 'seen'"):
        check_restart(algorithm, Forgetful())
    algorithm.__dict__["_cached_sum"] = algorithm.__dict__.pop("seen")
    algorithm._known = {*algorithm._known, "_cached_sum"}
    check_restart(algorithm, Forgetful())


def test_a_start_that_fails_changes_nothing():
    class Half(FedBuff):
        def start(self, model, clients, data_weights=None):
            if clients == 1:
                self._version = 7
                raise ValueError("too few")
            super().start(model, clients, data_weights)

    check_failed_start(started(), torch.full((2,), float("nan")), 3)
    check_failed_start(started(), torch.ones(2), 1)  # which does not fail
    with pytest.raises(FaultError, match=r"start is not atomic: it failed, but changed the state \(version\)"):
        check_failed_start(started(Half), torch.ones(2), 1)


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        (1, 1, True),
        (1, 2, False),
        (float("nan"), float("nan"), True),
        ({"a": [1, torch.ones(1)]}, {"a": [1, torch.ones(1)]}, True),
        ({"a": [1, torch.ones(1)]}, {"a": [1, torch.zeros(1)]}, False),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1.0]), [1.0], False),
        (torch.ones(1), 1.0, False),
        (object(), object(), True),  # cannot be compared
    ],
)
def test_values_are_compared_bit_for_bit(one, other, is_equal):
    assert list(differing_entries({"x": one}, {"x": other})) == ([] if is_equal else ["x"])


def test_bits_are_of_one_type_and_shape():
    zero = torch.zeros(1)
    assert same_bits(zero, zero.clone())
    assert not same_bits(zero, -zero)
    assert not same_bits(zero, zero.to(torch.int32))
    assert not same_bits(zero, torch.zeros(1, 1))


def test_attributes_that_differ_are_named_but_for_the_time():
    one = started()
    other = copy.deepcopy(one)
    other.now, other._version = 5.0, 1
    assert list(differing_attributes(one, other)) == ["_version"]
