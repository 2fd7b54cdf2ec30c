import pytest
import torch

from offbeat.training.trainers.local_step import AdamW

RATES = (0.01, 0.3, 0.0, 0.02)
SCALES = (1.0, 1e-6, 1e3, 0.0, 1e-12)  # of the gradients, step by step


def gradients(*shape):
    random = torch.Generator().manual_seed(2)
    return [scale * torch.randn(shape, generator=random) for scale in SCALES]


def steps_of_torch(weights, weight_decay, rate, steps=5):
    """Return the weights after steps of ``torch.optim.AdamW`` with its defaults."""
    parameter = weights.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=weight_decay)
    for gradient in gradients(*weights.shape)[:steps]:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_of_one_model_are_bit_equal_to_torchs(weight_decay):
    start = torch.linspace(-1, 1, 37)
    weights, adamw = start.clone(), AdamW(start)
    for taken, gradient in enumerate(gradients(37), 1):
        adamw.step(weights, gradient.clone(), 0.05, weight_decay)
        assert torch.equal(weights, steps_of_torch(start, weight_decay, 0.05, taken))
    assert torch.equal(start, torch.linspace(-1, 1, 37))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_stacked_models_have_a_step_size_each(weight_decay):
    start = torch.linspace(-1, 1, 4 * 15).view(4, 5, 3)
    weights, adamw = start.clone(), AdamW(start)
    slopes = gradients(5, 3)
    for gradient in slopes:
        adamw.step(weights, gradient.repeat(4, 1, 1), torch.tensor(RATES).view(4, 1, 1), weight_decay)
    for model, rate in enumerate(RATES):
        expected = steps_of_torch(start[model], weight_decay, rate)
        torch.testing.assert_close(weights[model], expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(weights[2], start[2])


def test_models_that_have_finished_are_left_out():
    start = torch.linspace(-1, 1, 6).view(3, 2)
    weights, adamw = start.clone(), AdamW(start)
    for active, gradient in zip((3, 3, 2, 1), gradients(2), strict=False):
        adamw.step(weights[:active], gradient.repeat(active, 1), torch.full((active, 1), 0.05), 0.1)
    for model, steps in enumerate((4, 3, 2)):
        torch.testing.assert_close(weights[model], steps_of_torch(start[model], 0.1, 0.05, steps))


@pytest.mark.parametrize("shape", [(), (3,), (7, 5), (31, 33)])
def test_last_bits_do_not_depend_on_the_other_models(shape):
    start, slopes = torch.sin(torch.arange(11.0)).view(11, *[1] * len(shape)).repeat(1, *shape), gradients(11, *shape)
    rates = torch.linspace(0.01, 0.1, 11).view(11, *[1] * len(shape))

    def trained(models):
        weights = start[models].clone()
        adamw = AdamW(weights)
        for gradient in slopes:
            adamw.step(weights, gradient[models], rates[models], 0.1)
        return weights

    for size in (2, 3, 7):
        parts = [trained(slice(first, first + size)) for first in range(0, 11, size)]
        assert torch.equal(torch.cat(parts), trained(slice(None)))
