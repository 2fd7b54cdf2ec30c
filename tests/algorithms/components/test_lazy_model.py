import math
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch

from offbeat.algorithms.components import NotFiniteError, WrongStepError
from offbeat.algorithms.components.lazy_model import LazyModel


def test_the_initial_model_is_copied(vector):
    initial = vector(1, 2)
    model = LazyModel(initial)
    initial.zero_()
    assert model.read().tolist() == [1, 2]
    assert model.length == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(2, 2), "shape"),
        (torch.tensor([0.0, math.nan]), "NaN"),
    ],
)
def test_an_initial_model_must_be_a_finite_float32_vector(wrong, message):
    with pytest.raises(ValueError, match=message):
        LazyModel(wrong)


def test_steps_wait_for_a_reader_and_are_taken_once_in_order(vector):
    model, taken = LazyModel(vector(3)), []

    def note(name, rule):
        def step(weights):
            taken.append(name)
            return rule(weights)

        model.step(step)

    note("double", lambda weights: weights * 2)
    note("add one", lambda weights: weights + 1)
    assert taken == []
    assert model.read().tolist() == [7]
    assert model.read() is model.read()
    assert taken == ["double", "add one"]


def test_a_step_that_fails_is_taken_again_and_those_before_it_are_not(vector):
    model, broken = LazyModel(vector(1)), [True]

    def fragile(weights):
        if broken:
            raise RuntimeError("no power")
        return weights * 10

    model.step(lambda weights: weights + 1)
    model.step(fragile)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            model.read()
    broken.clear()
    assert model.read().tolist() == [20]


def test_an_older_model_is_not_changed(vector):
    model = LazyModel(vector(1))
    before = model.read()
    model.step(lambda weights: weights + 1)
    assert (model.read().tolist(), before.tolist()) == ([2], [1])


@pytest.mark.parametrize(
    ("max_step_norm", "expected"),
    [(math.inf, [4, 6]), (5.0, [4, 6]), (2.5, [2.5, 4]), (0.0, [1, 2])],
)
def test_a_step_that_is_too_long_is_shortened_in_its_direction(max_step_norm, expected, vector):
    model = LazyModel(vector(1, 2), max_step_norm)
    model.step(lambda weights: vector(4, 6))
    assert model.read().tolist() == expected


@pytest.mark.parametrize(
    ("proposed", "found"),
    [
        (None, "None"),
        (torch.ones(2, dtype=torch.float64), r"float64 of shape \(2,\)"),
        (torch.ones(2, 1), r"float32 of shape \(2, 1\)"),
    ],
)
def test_a_model_of_another_type_or_shape_is_an_error(proposed, found, vector):
    model = LazyModel(vector(1, 2))
    model.step(lambda weights: proposed)
    with pytest.raises(WrongStepError, match=rf"must return float32 of shape \(2,\), it returned {found}"):
        model.read()


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e20])
def test_a_step_to_a_model_that_is_not_finite_is_refused(entry, vector):
    model = LazyModel(vector(1, 2))
    model.step(lambda weights: vector(0, entry), 3)
    model.step(lambda weights: weights + 1, 4)
    assert model.read().tolist() == [2, 3]
    assert list(model.refused_steps) == [3]
    assert "the new model is not finite" in model.refused_steps[3]


def test_a_rule_may_refuse_a_sum_that_is_not_finite(vector):
    def refuse(weights):
        raise NotFiniteError("the sum")

    model = LazyModel(vector(1))
    model.step(refuse)
    assert (model.read().tolist(), model.refused_steps) == ([1], {0: "the sum"})


def test_a_model_of_a_version_is_read_before_the_later_ones(vector):
    model = LazyModel(vector(1))
    for version in range(3):
        model.step(lambda weights: weights * 2, version)
    with model.at(1) as is_in_time:
        assert is_in_time
        model.step(lambda weights: weights * 2, 3)
        assert [model.read().item() for _ in range(2)] == [2, 2]
    assert model.version == 1
    with model.at(2):
        assert model.read().item() == 4
    assert (model.read().item(), model.version) == (16, 4)
    with model.at(3) as is_in_time:
        assert not is_in_time
    assert model.read().item() == 16


def test_another_thread_waits_while_a_version_is_read(vector):
    model = LazyModel(vector(1))
    model.step(lambda weights: weights * 2, 0)
    with ThreadPoolExecutor(1) as pool:
        with model.at(0):
            other = pool.submit(model.read)
            assert wait([other], 0.05).not_done
            assert model.read().item() == 1
        assert other.result(10).item() == 2
