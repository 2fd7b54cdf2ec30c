import math

import pytest
from offbeat_private.masks.scale import check_scale


@pytest.mark.parametrize("scale", [0.125, 0.5, 1.0])
def test_an_eighth_to_one_is_accepted(scale):
    check_scale(scale)


@pytest.mark.parametrize("scale", [0.1249, 1.0001, 0.0, -0.5, math.nan, math.inf])
def test_anything_else_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale must be in 0\.125 … 1, got"):
        check_scale(scale)
