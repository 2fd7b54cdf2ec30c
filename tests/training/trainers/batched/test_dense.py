from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from offbeat.training import models
from offbeat.training.trainers.batched.dense import dense_step, is_dense
from offbeat.training.workload import Examples, Objective, Workload


def frozen() -> nn.Module:
    module = models.mlp((6,), 3, [4])
    next(iter(module.parameters())).requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = models.mlp((6,), 3, [4])
    module[1].register_forward_hook(lambda *_: None)
    return module


def repeated() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


def shared() -> nn.Module:
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    last.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), last)


class Own(nn.Sequential):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(2 * inputs)


CLASSES = torch.zeros(4, dtype=torch.long)


@pytest.fixture(autouse=True)
def seeded():
    with models.initial_randomness(1):
        yield


@pytest.mark.parametrize(
    ("make", "loss", "answer"),
    [
        (lambda: models.softmax_regression((2, 3), 3), cross_entropy, True),
        (lambda: models.mlp((6,), 3, [4, 5]), cross_entropy, True),
        (lambda: nn.Sequential(nn.Linear(6, 3)), cross_entropy, True),
        (lambda: models.mlp((6,), 3, [4]), mse_loss, False),
        (lambda: models.mlp((6,), 3, [4]), lambda outputs, labels: cross_entropy(outputs, labels), False),
        (lambda: nn.Linear(6, 3), cross_entropy, False),
        (lambda: nn.Sequential(), cross_entropy, False),
        (lambda: nn.Sequential(nn.Flatten()), cross_entropy, False),
        (lambda: nn.Sequential(nn.Flatten(0), nn.Linear(6, 3)), cross_entropy, False),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU()), cross_entropy, False),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)), cross_entropy, False),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), cross_entropy, False),
        (lambda: nn.Sequential(nn.Linear(6, 3, bias=False)), cross_entropy, False),
        (lambda: Own(nn.Linear(6, 3)), cross_entropy, False),
        (frozen, cross_entropy, False),
        (hooked, cross_entropy, False),
        (repeated, cross_entropy, False),
        (shared, cross_entropy, False),
    ],
)
def test_the_models_and_losses_with_explicit_gradients(make, loss, answer):
    assert is_dense(workload(make(), loss, torch.zeros(4, 6))) is answer


def test_inputs_by_name_have_no_explicit_gradients():
    model = nn.Sequential(nn.Linear(6, 3))
    assert model(**{"input": torch.zeros(4, 6)}).shape == (4, 3)  # such a call is possible
    assert not is_dense(workload(model, cross_entropy, {"input": torch.zeros(4, 6)}))


@pytest.mark.parametrize("labels", [torch.full((4, 3), 1 / 3), torch.zeros(4, 1, dtype=torch.long)])
def test_only_labels_that_are_classes_have_explicit_gradients(labels):
    assert not is_dense(workload(nn.Sequential(nn.Linear(6, 3)), cross_entropy, torch.zeros(4, 6), labels))


def test_a_linear_layer_along_the_last_of_several_dimensions_has_no_explicit_gradients():
    inputs = torch.zeros(4, 2, 6)
    assert not is_dense(workload(nn.Sequential(nn.Linear(6, 3)), cross_entropy, inputs))
    assert is_dense(workload(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), cross_entropy, inputs))


def workload(module, loss, inputs, labels=CLASSES):
    # Not a FlatModel, which refuses a module without parameters.
    return Workload(SimpleNamespace(module=module), Objective(loss), Examples(inputs, labels), [], 1)


@pytest.mark.parametrize("hidden", [[], [4], [5, 4]])
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_a_step_is_that_of_autograd(hidden, mu):
    batch, rates = 7, torch.tensor([0.1, 0.5, 0.0])
    networks = [models.mlp((2, 3), 3, hidden).double() for _ in rates]
    inputs, labels = torch.randn(3, batch, 2, 3, dtype=torch.float64), torch.randint(0, 3, (3, batch))
    stacked = [torch.stack(same).detach().clone() for same in zip(*(n.parameters() for n in networks), strict=True)]
    starts = [torch.randn_like(values) for values in stacked]
    losses = dense_step(stacked, inputs, labels, rates.double(), starts, mu)
    for number, (network, rate) in enumerate(zip(networks, rates, strict=True)):
        loss = cross_entropy(network(inputs[number]), labels[number])
        away = sum((p - start[number]).square().sum() for p, start in zip(network.parameters(), starts, strict=True))
        (loss + mu / 2 * away).backward()
        assert losses[number].item() == pytest.approx(loss.item(), rel=1e-12)
        for parameter, values in zip(network.parameters(), stacked, strict=True):
            expected = parameter.detach() - rate.double() * parameter.grad
            torch.testing.assert_close(values[number], expected, rtol=1e-10, atol=1e-12)


def test_labels_and_inputs_do_not_change():
    parameters = [parameter[None].detach().clone() for parameter in models.softmax_regression((6,), 3).parameters()]
    inputs, labels = torch.randn(1, 4, 6), torch.randint(0, 3, (1, 4))
    before = inputs.clone(), labels.clone()
    dense_step(parameters, inputs, labels, torch.tensor([0.1]))
    assert torch.equal(inputs, before[0])
    assert torch.equal(labels, before[1])
