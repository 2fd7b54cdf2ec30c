"""A check that a model, a loss and the data fit together, before the first run."""

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.user_code_errors import failure, user_code
from torch import Tensor, nn

from offbeat.model_inputs import Inputs, map_inputs, token_numbers
from offbeat.training.accelerator import CPU, Accelerator, explained
from offbeat.training.flat_model import FlatModel
from offbeat.training.fresh_copies import fresh
from offbeat.training.loss_modules import ignored_target, name_of_loss
from offbeat.training.objectives import LOSSES, Loss, Objective, model_loss, predictions

_log = logging.getLogger(__name__)


def check_fit(
    model: FlatModel,
    loss: Loss,
    inputs: Inputs[Tensor],
    labels: Tensor,
    *,
    classes: int | None = None,
    tokens: int | None = None,
    accelerator: Accelerator = CPU,
) -> None:
    """Raise ``OffbeatError`` if a model, a loss and the data do not fit together.

    A forward and a backward pass are tried on a few examples ``(n, …)``, preferably of the smallest client, since a
    layer that normalises by the minibatch may refuse a single example; also a forward pass in evaluation mode. All data
    have that many ``classes`` and ``tokens``, if the labels are class numbers and the inputs token numbers.

    The model's values and gradients, its training mode and torch's own generator do not change; its buffers are reset
    to their initial values, as before each visit. Buffers that change in training are logged.
    """
    if tokens is not None:
        # An embedding that is too small fails on the largest token.
        inputs = _with_token(inputs, tokens - 1)
    _check_labels(loss, labels, classes)
    vector, mode = model.vector.clone(), model.module.training
    hooks = [
        layer.register_forward_pre_hook(partial(_check_embedding, name))
        for name, layer in model.module.named_modules()
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
    ]
    try:
        with accelerator.forked_randomness(), torch.enable_grad(), accelerator.autocast():
            objective = Objective(fresh(loss, training=True))
            before = _buffer_versions(model.module)
            _try_training(model, objective, inputs, labels, classes)
            after = _buffer_versions(model.module)
            _warn_of_resets(tuple(name for name in after if after[name] != before.get(name)))
            model.load(model.vector.clone())
            what = f"the model cannot take inputs {_describe(inputs)} in evaluation mode"
            with user_code(what), torch.inference_mode():
                objective.apply(model.module.eval(), _copy(inputs), labels.clone())
            _refuse_new_parameters(model)
    except OffbeatError as error:
        raise explained(error, model.module, accelerator) from error.__cause__
    finally:
        for hook in hooks:
            hook.remove()
        model.load(vector)
        model.module.train(mode)


def _try_training(
    model: FlatModel, objective: Objective, inputs: Inputs[Tensor], labels: Tensor, classes: int | None
) -> None:
    loss, hint = objective.loss, _hint(model.module, objective.loss)
    with user_code(f"the model cannot take inputs {_describe(inputs)}{hint}"):
        returned = objective.apply(model.module.train(), _copy(inputs), labels.clone())
    if returned is None:
        raise OffbeatError("the model's forward returns None: has it forgotten its return?")
    outputs = predictions(returned)
    if isinstance(outputs, Tensor):
        if name_of_loss(loss) == "cross_entropy":
            _check_classes(outputs, labels, classes)
        elif loss not in LOSSES.values():
            _refuse_broadcasting(loss, outputs, labels)
    with user_code(f"the loss cannot take outputs {_describe(outputs)} with labels {_describe(labels)}{hint}"):
        value = objective.loss_of(returned, labels.clone())
    has_targets = labels.is_floating_point() or bool((labels != ignored_target(loss)).any())
    if not value.isfinite() and has_targets:
        why = ", and does a label count in it" if value.isnan() else ""
        raise OffbeatError(f"the loss of the initial model is {value.item()}: are the inputs and labels scaled{why}?")
    parameters = {name: p for name, p in model.module.named_parameters() if p.requires_grad}
    unreached = "no gradient of the loss reaches any parameter: does the model or the loss detach it?"
    if not value.requires_grad:
        raise OffbeatError(unreached)
    try:
        # Not backward(), which would add to the existing gradients.
        gradients = list[Tensor | None](torch.autograd.grad(value, list(parameters.values()), allow_unused=True))
    except Exception as error:
        raise failure("the loss cannot be differentiated", error) from error
    if all(gradient is None for gradient in gradients):
        raise OffbeatError(unreached)
    _refuse_other_leaves(value, model.module)
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and not gradient.to_dense().isfinite().all():
            raise OffbeatError(f"the gradient of the initial model's parameter {name} is not finite")


def _buffer_versions(module: nn.Module) -> dict[str, Any]:
    """Return by name what changes when a buffer is written, resized or replaced."""
    return {name: (id(buffer), buffer._version, buffer.shape) for name, buffer in module.named_buffers()}


@cache  # the runs of a comparison have one model
def _warn_of_resets(names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        message = (
            "the model's buffers change in training (%s): each visit and evaluation begins with their first values"
        )
        _log.warning(message, shown)


def _refuse_new_parameters(model: FlatModel) -> None:
    known = {id(parameter) for parameter in model.parameters}
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and id(parameter) not in known:
            raise OffbeatError(
                f"the model makes its parameter {name} while it computes, so it would not be trained: make it in "
                "__init__, and set requires_grad there"
            )


def _refuse_other_leaves(value: Tensor, module: nn.Module) -> None:
    """Refuse trainable tensors that are not parameters of the model."""
    known = {id(parameter) for parameter in module.parameters()}
    nodes, seen = [value.grad_fn], set[Any]()
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            raise OffbeatError(
                f"the loss has a gradient by a tensor of shape {tuple(leaf.shape)} that is not a parameter of the "
                "model, so it would not be trained: make it one, or set requires_grad = False"
            )
        nodes += [before for before, _ in node.next_functions]


def _check_labels(loss: Callable[[Tensor, Tensor], Tensor], labels: Tensor, classes: int | None) -> None:
    if loss is LOSSES["bce"]:
        smallest, largest = labels.amin().item(), labels.amax().item()
        if classes is not None:
            largest = max(largest, classes - 1)
        if smallest < 0 or largest > 1:
            raise OffbeatError(f"bce needs labels from 0 to 1, but they go from {smallest:g} to {largest:g}")


def _refuse_broadcasting(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, labels: Tensor) -> None:
    """Refuse a user's loss that torch broadcasts: each output with each label."""
    n = len(labels)
    if n == 1 or labels.shape != (n,) or outputs.shape != (n, 1):
        return
    with torch.no_grad():
        try:
            intended = loss(outputs.squeeze(1).clone(), labels.clone())
            is_same = torch.allclose(intended, loss(outputs.clone(), labels.clone()), rtol=1e-3)
        except Exception:  # a loss that squeezes the outputs itself cannot do so twice
            return
    if not is_same:
        raise OffbeatError(
            f"your own loss gets outputs of shape ({n}, 1) and labels of shape ({n},), which torch broadcasts to "
            f"({n}, {n}): squeeze the outputs, as in outputs.squeeze(1)"
        )


def _check_classes(outputs: Tensor, labels: Tensor, classes: int | None) -> None:
    if labels.is_floating_point() and (outputs.shape != labels.shape or outputs.shape[1:] in [(), (1,)]):
        raise OffbeatError(
            "the labels are floats, but cross_entropy needs classes, or a probability for each output: "
            f'set {setting("model.loss")} = "mse" if the labels are targets of a regression'
        )
    if outputs.ndim < 2:
        raise OffbeatError(
            f"cross_entropy needs outputs of shape (n, classes), but the model's have shape {tuple(outputs.shape)}"
        )
    found = outputs.shape[1]
    if not labels.is_floating_point():
        largest = classes - 1 if classes else int(labels.max())
        if largest >= found:
            raise OffbeatError(
                f"the labels go up to {largest}, but the model has {found} output{'s' if found > 1 else ''}: "
                f"number the classes from 0 or give the model {largest + 1} outputs"
            )
    if found == 1:
        raise OffbeatError(
            "cross_entropy of one output is always 0: give the model an output for each class, or use bce"
        )


def _check_embedding(name: str, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
    assert isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
    if arguments and isinstance(arguments[0], Tensor):
        largest = int(arguments[0].max())
        if largest >= layer.num_embeddings:
            raise OffbeatError(
                f"the model's embedding {name or 'layer'} has entries 0 to {layer.num_embeddings - 1}, "
                f"but is called with index {largest}: give it as many entries as the data has tokens"
            )


def _with_token(inputs: Inputs[Tensor], token: int) -> Inputs[Tensor]:
    """Return a copy of the inputs in which the first token is another."""
    inputs = _copy(inputs)
    numbers = token_numbers(inputs)
    assert numbers is not None
    numbers[(0,) * numbers.ndim] = token
    return inputs


def _copy(inputs: Inputs[Tensor]) -> Inputs[Tensor]:
    return map_inputs(Tensor.clone, inputs)


def _hint(module: nn.Module, loss: Loss) -> str:
    """Return the end of a message for models that compute a loss themselves."""
    takes_labels = "labels" in inspect.signature(module.forward).parameters
    hint = f', or set {setting("model.loss")} = "model" to use its own loss'
    return hint if takes_labels and loss is not model_loss else ""


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_describe(part)}" for name, part in value.items())
    if not isinstance(value, Tensor):
        return f"of type {type(value).__name__}"
    return f"of shape {tuple(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
