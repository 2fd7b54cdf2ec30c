import numpy as np
import torch
from offbeat_core.shown_values import cut, short


def test_a_value_is_one_short_line() -> None:
    assert short("3") == "'3'"
    assert short("a\n b") == r"'a\n b'"
    assert short(torch.eye(2)) == "tensor([[1., 0.], [0., 1.]])"
    assert short(np.arange(1000)).count("\n") == 0
    assert cut("x" * 80) == "x" * 80
    assert cut("x" * 81) == "x" * 79 + "…"
