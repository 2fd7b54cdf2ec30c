import math

import numpy as np
import pytest

from offbeat_studies.papers.theory import Row
from offbeat_studies.papers.theory.measured_bound import row


def test_a_row_by_hand():
    line = row("whose", "where", np.array([1.0, 2.0, 3.0]), 4.0)
    assert line == Row("whose", "where", 2.0, pytest.approx(1.96 / math.sqrt(3)), 4.0)
    assert line.ratio == 0.5
    assert row("whose", "where", 5.0, 4.0) == Row("whose", "where", 5.0, 0.0, 4.0)


@pytest.mark.parametrize(
    ("measured", "half_width", "holds", "fails"),
    [(2, 1, True, False), (4, 0, True, False), (3.5, 1, False, False), (4.5, 1, False, False), (6, 1, False, True)],
)
def test_a_row_is_as_expected_only_beyond_chance(measured, half_width, holds, fails):
    assert Row("", "", measured, half_width, 4.0).as_expected is holds
    assert Row("", "", measured, half_width, 4.0, should_hold=False).as_expected is fails
    assert Row("", "", measured, half_width, 4.0).verdict == ("holds" if holds else "UNEXPECTED")
    counter = Row("", "", measured, half_width, 4.0, should_hold=False)
    assert counter.verdict == ("broken, as expected" if fails else "UNEXPECTED")
