import pytest
import torch

from offbeat.training.trainers.trainer import result_vector


class TestResultVector:
    def test_a_delta_goes_from_the_end_to_the_start(self):
        assert result_vector("delta", torch.tensor([3.0, 1.0]), torch.tensor([2.0, 5.0])).tolist() == [1.0, -4.0]

    def test_params_are_the_end(self):
        assert result_vector("params", torch.tensor([3.0, 1.0]), torch.tensor([2.0, 5.0])).tolist() == [2.0, 5.0]

    def test_a_difference_is_made_of_the_delta_later(self):
        assert result_vector("difference", torch.tensor([3.0, 1.0]), torch.tensor([2.0, 5.0])).tolist() == [1.0, -4.0]

    @pytest.mark.parametrize("payload", ["delta", "params", "difference"])
    def test_it_is_a_tensor_of_its_own(self, payload):
        start, end = torch.tensor([3.0]), torch.tensor([2.0])
        result_vector(payload, start, end).fill_(9.0)
        assert (start.item(), end.item()) == (3.0, 2.0)

    @pytest.mark.parametrize("payload", ["gradient", ""])
    def test_another_payload_is_refused(self, payload):
        with pytest.raises(ValueError, match=repr(payload)):
            result_vector(payload, torch.zeros(1), torch.ones(1))
