import pytest
import torch

from offbeat.training.trainers.backend import result_vector


@pytest.mark.parametrize(
    ("payload", "vector"), [("delta", [1.0, -4.0]), ("params", [2.0, 5.0]), ("difference", [1.0, -4.0])]
)
def test_the_vector_of_a_payload_is_a_new_tensor(payload, vector):
    start, end = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 5.0])
    result = result_vector(payload, start, end)
    assert result.tolist() == vector
    result.fill_(9.0)
    assert (start.tolist(), end.tolist()) == ([3.0, 1.0], [2.0, 5.0])


@pytest.mark.parametrize("payload", ["gradient", ""])
def test_another_payload_is_refused(payload):
    with pytest.raises(ValueError, match=repr(payload)):
        result_vector(payload, torch.zeros(1), torch.ones(1))
