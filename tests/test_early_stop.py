import math

import pytest

from offbeat.early_stop import EarlyStop


def ended_at(stop, values, versions=None):
    """Return the number of evaluations after which a run ends; None if it does not."""
    for number, value in enumerate(values, start=1):
        version = number if versions is None else versions[number - 1]
        stop.note(version, {"accuracy": value, "loss": 1.0})
        if stop.is_reached:
            return number
    return None


@pytest.mark.parametrize(
    ("lower", "target", "values", "end"),
    [
        (False, 0.8, [0.1, 0.79, 0.8, 0.7], 3),
        (False, 0.8, [0.1, 0.79], None),
        (True, 0.2, [0.9, 0.3, 0.2], 3),
        (True, 0.2, [0.3], None),
        (False, 0.0, [0.0], 1),
    ],
)
def test_the_target_is_reached(lower, target, values, end):
    assert ended_at(EarlyStop("accuracy", lower_is_better=lower, target=target), values) == end


@pytest.mark.parametrize(
    ("lower", "values", "end"),
    [
        (False, [0.5, 0.4, 0.5], 3),  # an equal value is not better
        (False, [0.5, 0.4, 0.6, 0.5, 0.6], 5),
        (False, [0.1, 0.2, 0.3, 0.4], None),
        (True, [0.5, 0.6, 0.4, 0.4, 0.4], 5),
        (True, [0.5, 0.4, 0.3], None),
    ],
)
def test_two_evaluations_without_a_better_value(lower, values, end):
    assert ended_at(EarlyStop("accuracy", lower_is_better=lower, patience=2), values) == end


def test_a_version_counts_once():
    stop = EarlyStop("accuracy", lower_is_better=False, patience=2)
    assert ended_at(stop, [0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4], [0, 0, 0, 1, 1, 1, 3]) == 7


def test_evaluations_without_the_metric_do_not_count():
    stop = EarlyStop("client_accuracy", lower_is_better=False, target=0.9, patience=1)
    for version, values in enumerate(({"accuracy": 1.0}, {"client_accuracy": math.nan}, {"client_accuracy": math.inf})):
        stop.note(version, values)
    assert not stop.is_reached
    stop.note(5, {"client_accuracy": 0.9})
    assert stop.is_reached


def test_whichever_comes_first():
    assert ended_at(EarlyStop("accuracy", lower_is_better=False, target=0.9, patience=2), [0.1, 0.1, 0.95]) == 3
    assert ended_at(EarlyStop("accuracy", lower_is_better=False, target=0.9, patience=1), [0.1, 0.1, 0.95]) == 2


def test_it_resumes():
    values = [0.5, 0.4, 0.6, 0.5, 0.6]
    for cut in range(5):
        one, other = (EarlyStop("accuracy", lower_is_better=False, patience=2) for _ in range(2))
        assert ended_at(one, values[:cut]) is None
        other.load_state_dict(one.state_dict())
        assert ended_at(other, values[cut:], range(cut + 1, 6)) == 5 - cut
