"""Hooks of a user's model that some trainers do not run."""

from torch import nn


def parameter_with_hook(module: nn.Module) -> str | None:
    """Return the first trainable parameter with a hook, or None.

    Such hooks belong to the tensor: ``torch.func``, which replaces the tensor, and pickle both lose them.
    """
    for name, parameter in module.named_parameters():
        hooks = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)  # pyright: ignore[reportPrivateUsage]
        if parameter.requires_grad and any(hooks):
            return name
    return None


def has_forward_hook(layer: nn.Module) -> bool:
    """Return whether a layer itself has a forward hook or its own ``forward``."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    return bool(hooks) or "forward" in vars(layer)


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module, a layer or a parameter of it has any hook."""
    return gradient_hook(module) is not None or any(map(has_forward_hook, module.modules()))


def gradient_hook(module: nn.Module) -> str | None:
    """Return a clause that names a hook on a module's gradients, or None."""
    parameter = parameter_with_hook(module)
    if parameter is not None:
        return f"its parameter {parameter} has a hook"
    for name, layer in module.named_modules():
        if layer._backward_hooks or layer._backward_pre_hooks:  # pyright: ignore[reportPrivateUsage]
            return f"its layer {name} has a backward hook" if name else "the model has a backward hook"
    return None
