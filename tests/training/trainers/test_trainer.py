import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.training.trainers.loop import sgd_step
from offbeat.training.trainers.trainer import normaliser, result_vector


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


def plan(**changes: object) -> LocalPlan:
    return LocalPlan(**{"steps": 10, "batch_size": 1, "lr": 0.1, **changes})


class TestNormaliser:
    """The normaliser is how far a visit goes, in units of lr, if the gradient is 1 in each step."""

    @pytest.mark.parametrize("steps", [1, 2, 7, 100])
    @pytest.mark.parametrize("rho", [0.0, 0.1, 0.5, 0.9, 0.99])
    def test_momentum_equals_the_closed_form(self, steps, rho):
        weight = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        assert normaliser(plan(steps=steps, momentum=rho)) == pytest.approx(weight, rel=1e-9)

    @pytest.mark.parametrize("steps", [1, 2, 7, 100])
    @pytest.mark.parametrize("mu", [0.001, 0.1, 1.0, 5.0, 10.0, 15.0])
    def test_a_proximal_term_equals_the_closed_form(self, steps, mu):
        weight = (1 - (1 - 0.1 * mu) ** steps) / (0.1 * mu)
        assert normaliser(plan(steps=steps, lr=0.1, mu=mu)) == pytest.approx(weight, rel=1e-9)

    @pytest.mark.parametrize("changes", [{"momentum": 0.9}, {"mu": 0.7}, {}])
    def test_the_trainers_own_steps_go_that_far(self, changes):
        here = plan(**changes)
        start, w, velocity = torch.full((3,), 2.0), torch.full((3,), 2.0), torch.zeros(3)
        for step in range(here.steps):
            sgd_step(w, torch.ones(3), velocity if here.momentum else None, start, here, step)
        assert ((start - w) / here.lr).tolist() == pytest.approx([normaliser(here)] * 3, rel=1e-5)

    @pytest.mark.parametrize("changes", [{"lr": tuple([0.1] * 9 + [0.2])}, {"weight_decay": 0.1}, {"clip_norm": 0.1}])
    def test_plain_sgd_counts_its_steps(self, changes):
        assert normaliser(plan(**changes)) == pytest.approx(10.0)

    def test_momentum_goes_with_step_sizes_that_change(self):
        rates = tuple([0.1] * 10)
        assert normaliser(plan(lr=rates, momentum=0.5)) == pytest.approx(normaliser(plan(momentum=0.5)))

    def test_step_sizes_that_change_weigh_each_gradient_by_its_own(self):
        # Momentum ½: 0.1·1 + 0.3·(1 + ½), over the mean 0.2. Proximal term 1: 0.1·(1 − 0.3) + 0.3, over 0.2.
        two = {"steps": 2, "lr": (0.1, 0.3)}
        assert normaliser(plan(**two, momentum=0.5)) == pytest.approx(0.55 / 0.2)
        assert normaliser(plan(**two, mu=1.0)) == pytest.approx(0.37 / 0.2)

    @pytest.mark.parametrize("mu", [1e-9, 1e-12, 1e-16, 1e-300, 1e-323])
    def test_a_tiny_proximal_term_is_nearly_none(self, mu):
        # 1 − steps·lr·mu/2 is 1 to 1e-8; the formula taken literally cancels.
        assert normaliser(plan(mu=mu)) == pytest.approx(10.0, rel=1e-7)
