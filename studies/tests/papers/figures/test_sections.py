import pytest

from studies.tests.papers.figures.claims import claim


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantity": "after_updates"}, "updates is required"),
        ({"updates": 5}, "updates is required"),
        ({"quantity": "seconds_to_target", "measure": "loss"}, "leave measure out"),
        ({"than": None, "value": 0.5, "than_panel": "x"}, "than_panel needs than"),
        ({"less": "c"}, "set both less and than_less, or neither"),
        ({"than_less": "c"}, "set both less and than_less, or neither"),
        ({"than": None, "value": 0.5, "than_less": "c"}, "than_less needs than"),
        ({"than": None, "than_mean": ["b", "c"]}, "than_mean is a mean of costs to the target"),
        ({"quantity": "seconds_to_target", "than_mean": ["b", "c"]}, "exactly one of than, than_mean and value"),
        ({"quantity": "seconds_to_target", "than": None, "than_mean": ["b"]}, "than_mean"),
        ({"quantity": "seconds_to_target", "less": "c", "than_less": "d"}, "a target may not be reached"),
        ({"quantity": "seconds_to_target", "margin": 1.0}, "margin is a difference"),
        ({"margin": 0.1, "factor": 2.0}, "margin is a difference"),
        ({"margin": 0.1, "tolerance": 0.1}, "margin is a difference"),
        ({"margin": 0.1, "relation": "close to"}, "margin is a difference"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


@pytest.mark.parametrize(
    ("changes", "is_chosen"),
    [
        ({}, False),
        ({"factor": 0.9}, True),
        ({"tolerance": 0.1}, True),
        ({"margin": 0.1}, True),
        ({"than": None, "value": 0.0}, True),
    ],
)
def test_a_limit_other_than_equality_was_chosen_by_somebody(changes, is_chosen):
    assert claim(**changes).has_chosen_limit is is_chosen


def test_who_chose_the_limit_is_a_text():
    assert claim(factor=0.9, limit_from="paper").inequality() == claim(factor=0.9).inequality()
