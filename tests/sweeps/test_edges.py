import pytest

from offbeat.sweeps.edges import edge
from offbeat.sweeps.search_space import Choices, Numbers


@pytest.mark.parametrize(
    ("values", "best", "end"),
    [
        (Choices((0.0, 0.5, 1.0)), 0.0, "lower"),
        (Choices((0.0, 1.0, 0.5)), 1.0, "upper"),
        (Choices((0.0, 0.5, 1.0)), 0.5, ""),
        (Choices((1, 2)), 2, ""),  # one of two is always at an end
        (Choices(("a", "b", "c")), "a", ""),
        (Numbers(2, 8, False, whole=True), 8, "upper"),
        (Numbers(2, 8, False, whole=True), 7, ""),
        (Numbers(0.0, 1.0, False), 0.96, "upper"),
        (Numbers(0.0, 1.0, False), 0.06, ""),
        (Numbers(0.01, 1.0, True), 0.012, "lower"),  # log(1.2) / log(100) = 0.04
        (Numbers(0.01, 1.0, True), 0.02, ""),  # log(2) / log(100) = 0.15
    ],
)
def test_a_best_value_lies_at_an_end_or_within(values, best, end):
    assert edge(values, best) == end
