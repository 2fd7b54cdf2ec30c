"""Explicit gradients of batches of networks of linear layers with ReLU.

``torch.func`` derives the same gradients, but with more overhead than such small layers cost, and keeps all gradients
in memory; here each is added to its weights at once.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training.trainers.hooks import gradient_hook, has_forward_hook
from offbeat.training.workload import Workload


def is_dense(workload: Workload) -> bool:
    """Return whether ``dense_step`` supports a workload's model, loss and examples.

    The inputs must be one tensor. The model must be ``Linear`` layers separated by ``ReLU``, without hooks, which would
    not run here; before them a ``Flatten``, which inputs ``(n, features)`` do not need. The loss must be cross-entropy
    of classes, int64 ``(n,)``, none of which it ignores.
    """
    module, (inputs, labels) = workload.model.module, workload.train
    if (
        type(module) is not nn.Sequential
        or workload.objective.loss is not cross_entropy
        or isinstance(inputs, dict)
        or labels.dtype != torch.int64
        or labels.ndim != 1
        or workload.may_weigh
    ):
        return False
    layers: list[nn.Module] = list(module)
    if layers and type(layers[0]) is nn.Flatten and layers[0].start_dim == 1 and layers[0].end_dim == -1:
        layers = layers[1:]
    elif inputs.ndim != 2:
        return False
    kinds = [type(layer) for layer in layers]
    alternate = kinds[::2] == [nn.Linear] * len(kinds[::2]) and kinds[1::2] == [nn.ReLU] * len(kinds[1::2])
    return (
        len(kinds) % 2 == 1
        and alternate
        and all(isinstance(layer.bias, Tensor) for layer in layers[::2])
        and all(parameter.requires_grad for parameter in module.parameters())
        and len(list(module.parameters())) == 2 * len(kinds[::2])  # no two layers share one
        and gradient_hook(module) is None
        and not any(has_forward_hook(layer) for layer in module.modules())
    )


def dense_step(
    parameters: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    rates: Tensor,
    starts: Sequence[Tensor] = (),
    mu: float = 0.0,
    *,
    shares: Tensor | None = None,
) -> Tensor:
    """Take an SGD step on each model's mean cross-entropy, on its minibatch, in place.

    Args:
        parameters: Weights ``(models, out, in)`` and bias ``(models, out)`` of each layer; changed.
        inputs: ``(models, batch, …)``.
        labels: ``(models, batch)``, int64.
        rates: ``(models,)``, the step sizes.
        starts: Starting parameters in FedProx' proximal term, μ/2 · ‖w − start‖²; not needed for μ = 0.
        mu: The proximal term's μ.
        shares: ``(models, batch)``, the share of each example in the mean of its minibatch; None for equal ones.

    Returns:
        The mean losses before the step, ``(models,)``, without the proximal term.
    """
    weights, biases = parameters[::2], parameters[1::2]
    activations = [inputs.flatten(2)]
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        outputs = torch.baddbmm(bias[:, None], activations[-1], weight.transpose(1, 2))
        activations.append(outputs.relu_() if layer < len(weights) - 1 else outputs)
    log_probabilities = torch.log_softmax(activations.pop(), dim=2)
    chosen = labels[:, :, None]
    each = log_probabilities.gather(2, chosen)
    losses = (each.mean(dim=(1, 2)) if shares is None else each.squeeze(2).mul_(shares).sum(dim=1)).neg_()
    # ∂ loss / ∂ outputs of each layer, from the last to the first, times the step size.
    slope = log_probabilities.exp_()
    # Not reduce="add", which torch refuses on GPUs where only deterministic operations are allowed.
    slope.scatter_(2, chosen, slope.gather(2, chosen).sub_(1.0))
    slope *= (rates / labels.shape[1])[:, None, None] if shares is None else (rates[:, None] * shares)[:, :, None]
    for layer in reversed(range(len(weights))):
        before = activations[layer]
        # Before the weights change.
        below = torch.bmm(slope, weights[layer]).mul_(before > 0) if layer else slope
        if mu:
            for part, start in zip(parameters[2 * layer : 2 * layer + 2], starts[2 * layer :], strict=False):
                part.sub_((part - start).mul_((mu * rates).view(-1, *[1] * (part.dim() - 1))))
        weights[layer].baddbmm_(slope.transpose(1, 2), before, alpha=-1)
        biases[layer].sub_(slope.sum(dim=1))
        slope = below
    return losses
