import pytest
from offbeat_core.local_steps import Epochs


@pytest.mark.parametrize(
    ("epochs", "examples", "batch_size", "steps"),
    [
        (1, 10, 5, 2),
        (1, 11, 5, 3),  # 5 + 5 + 1
        (2, 11, 5, 6),
        (2, 3, 5, 2),  # all examples at once
        (1, 1, 1, 1),
        (0.5, 20, 5, 2),
        (0.5, 11, 5, 2),  # 1.5 minibatches
        (1.5, 11, 5, 5),  # 4.5
        (0.4, 11, 5, 1),  # 1.2
        (0.01, 11, 5, 1),  # never none
        (0.07, 500, 5, 7),  # 0.07 · 100 is 7.000000000000001
        (1_000_000, 5, 5, 1_000_000),
    ],
)
def test_steps_of_epochs_by_hand(epochs, examples, batch_size, steps):
    assert Epochs(epochs)(examples, batch_size) == steps


def test_too_many_epochs_are_refused():
    line = r"^local\.epochs = 2 is 2,000,000 steps for 2,000,000 examples: at most 1,000,000 are possible$"
    with pytest.raises(ValueError, match=line):
        Epochs(2)(2_000_000, 2)
    for epochs in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^epochs must be "):
            Epochs(epochs)
