import numpy as np
import pytest
import torch

from offbeat.algorithms.components import RunFacts, Sum
from offbeat.algorithms.components.component import prefixed, restored, saved, under


def test_parts_go_into_a_flat_dict_and_come_out_again():
    flat = {"version": 3, **prefixed("sum", {"total": 1}), **prefixed("step", {"total": 2, "exp.avg": 4})}
    assert flat == {"version": 3, "sum.total": 1, "step.total": 2, "step.exp.avg": 4}
    assert under("sum", flat) == {"total": 1}
    assert under("step", flat) == {"total": 2, "exp.avg": 4}


def test_a_key_that_only_begins_alike_is_not_under_the_prefix():
    assert under("step", {"steps": 1, "step": 2, "steps.a": 3, "my.step.a": 4}) == {}


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (torch.ones(2), {"x"}),
        (3, {"x"}),
        ("word", {"x"}),
        (None, {"x"}),
        ({4: 0.5, 1: 2.0}, {"x.keys", "x.values"}),
        ({}, {"x.keys", "x.values"}),
    ],
)
def test_a_value_that_was_saved_is_restored(value, keys, same_state):
    state = saved("x", value)
    assert set(state) == keys
    found = restored("x", value, state)
    assert same_state({"x": found}, {"x": value})
    assert list(found) == list(value) if isinstance(value, dict) else True


def test_a_tensor_is_copied_both_ways():
    value = torch.ones(2)
    state = saved("x", value)
    found = restored("x", value, state)
    value.zero_()
    assert (state["x"].tolist(), found.tolist()) == ([1, 1], [1, 1])
    found.zero_()
    assert state["x"].tolist() == [1, 1]


def test_a_component_is_saved_under_its_name_and_loaded_in_place():
    component = Sum()
    component.start(RunFacts(2, 3))
    state = saved("buffer", component)
    assert {"buffer.count", "buffer.oldest", "buffer.weight", "buffer.sum"} == set(state)
    assert restored("buffer", component, state | {"buffer.count": 7}) is component
    assert component.count == 7


@pytest.mark.parametrize("value", [[1], {1}, (1,), object(), np.zeros(2), np.float64(1).dtype])
def test_anything_else_cannot_be_saved(value):
    with pytest.raises(TypeError, match=f"^x = {type(value).__name__} cannot be saved"):
        saved("x", value)


@pytest.mark.parametrize("value", [{"a": 1}, {1: "a"}, {1: None}, {1: [2]}, {True: 1}])
def test_a_dict_has_numbers_for_keys_and_values(value):
    with pytest.raises(TypeError, match=r"^x cannot be saved: a dict"):
        saved("x", value)
