"""Hooks that a user's model has, and that not every trainer runs."""

from torch import nn


def parameter_with_hook(module: nn.Module) -> str | None:
    """Return the name of a trainable parameter that has a hook; None if none has.

    Such hooks belong to the tensor itself: neither ``torch.func``, which takes other tensors in its place, nor pickle
    keeps them.
    """
    for name, parameter in module.named_parameters():
        hooks = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)  # pyright: ignore[reportPrivateUsage]
        if parameter.requires_grad and any(hooks):
            return name
    return None


def layer_with_backward_hook(module: nn.Module) -> str | None:
    """Return the name of a layer that has a backward hook, "" for the module itself; None if none has."""
    for name, layer in module.named_modules():
        if layer._backward_hooks or layer._backward_pre_hooks:  # pyright: ignore[reportPrivateUsage]
            return name
    return None


def has_forward_hook(layer: nn.Module) -> bool:
    """Return whether a layer, apart from the layers in it, has a forward hook or a ``forward`` of its own."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    return bool(hooks) or "forward" in vars(layer)


def gradient_hook(module: nn.Module) -> str | None:
    """Return in a few words where a module has a hook on its gradients; None if it has none."""
    parameter = parameter_with_hook(module)
    if parameter is not None:
        return f"its parameter {parameter} has a hook"
    layer = layer_with_backward_hook(module)
    if layer is not None:
        return f"its layer {layer} has a backward hook" if layer else "the model has a backward hook"
    return None
