import pytest

from offbeat.model_inputs import divide_inputs, find_inputs, map_inputs, name_inputs, token_numbers


def test_a_function_is_mapped_over_one_or_several():
    assert map_inputs(abs, -1) == 1
    assert map_inputs(abs, {"a": -1, "b": 2}) == {"a": 1, "b": 2}


def test_others_are_found_by_their_names():
    assert map_inputs(divmod, 7, 2) == (3, 1)
    assert map_inputs(divmod, {"a": 7, "b": 8}, {"b": 3, "a": 2}) == {"a": (3, 1), "b": (2, 2)}


def test_each_part_has_all_names():
    assert divide_inputs(iter, "xy") == ["x", "y"]
    assert divide_inputs(iter, {"a": "xy", "b": "zw"}) == [{"a": "x", "b": "z"}, {"a": "y", "b": "w"}]
    with pytest.raises(ValueError, match="zip"):
        divide_inputs(iter, {"a": "xy", "b": "z"})


@pytest.mark.parametrize("inputs", [1, {"a": 1, "b.c": 2}])
def test_flat_names_lead_back(inputs):
    flat = name_inputs("inputs", inputs)
    assert find_inputs("inputs", {"labels": 3, **flat, "inputs2": 4}) == inputs
    assert list(flat) == (["inputs"] if inputs == 1 else ["inputs.a", "inputs.b.c"])


def test_token_numbers_are_the_only_input_or_input_ids():
    assert token_numbers(1) == 1
    assert token_numbers({"attention_mask": 1, "input_ids": 2}) == 2
    assert token_numbers({"attention_mask": 1}) is None
