"""Holm's correction, by hand."""

import pytest

from offbeat.statistics.holm import holm


def test_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1 are 0.04, 0.06, 0.06, 0.04, and the last is raised to 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_an_adjusted_p_value_is_at_most_1():
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
