"""The cross-entropies that a loss computes, and the targets that they count."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss
from torch.overrides import TorchFunctionMode

_ROUNDING = 1e-4  # relative, of sums in another order


class CrossEntropyCall(NamedTuple):
    """A call of torch's ``cross_entropy`` or ``nll_loss``."""

    outputs: Tensor  # (n, classes, …)
    targets: Tensor  # class numbers (n, …), or probabilities like the outputs
    weight: Tensor | None  # (classes,)
    ignored: int
    value: Tensor
    divisor: Tensor  # what a mean divides by, (): the weights of the targets that are not ignored

    @property
    def has_classes(self) -> bool:
        """True if the targets are class numbers, not probabilities."""
        return not self.targets.is_floating_point()

    def is_over_targets_of(self, other: "CrossEntropyCall") -> bool:
        """Return whether both are means over the same targets, with the same weights."""
        return (
            self.targets is other.targets
            and self.weight is other.weight
            and (self.ignored == other.ignored or not self.has_classes)
        )


class CrossEntropyCalls(TorchFunctionMode):
    """A context that notes the cross-entropies in it.

    Also those of modules, and of losses that models compute themselves.

    Attributes:
        means: The calls that returned means, in order.
        sums: The calls that returned sums, or a value for each target.
    """

    def __init__(self) -> None:
        super().__init__()
        self.means: list[CrossEntropyCall] = []
        self.sums: list[CrossEntropyCall] = []

    @property
    def shown(self) -> Sequence[CrossEntropyCall]:
        """The calls whose targets are those of the loss: the means, or else the sums."""
        return self.means or self.sums

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        value = func(*args, **kwargs or {})
        if func in (cross_entropy, nll_loss):  # these pass their defaults explicitly
            self._note(value, *args, **kwargs or {})
        return value

    def _note(
        self,
        value: Tensor,
        outputs: Tensor,
        targets: Tensor,
        *,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        size_average: bool | None,
        reduce: bool | None,
        **_: Any,
    ) -> None:
        is_mean = reduction == "mean" and size_average is not False and reduce is not False
        calls = self.means if is_mean else self.sums
        calls.append(
            CrossEntropyCall(outputs, targets, weight, ignore_index, value, _divisor(targets, weight, ignore_index))
        )

    def divisor(self) -> Tensor | None:
        """Return what the loss divides by, ``()``.

        None without calls, or if they divide by different numbers.
        """
        if not self.means or not all(call.is_over_targets_of(self.means[0]) for call in self.means):
            return None
        return self.means[0].divisor

    def divisor_of_sums(self, loss: Tensor) -> Tensor | None:
        """Return what a loss divides the sum of its cross-entropies by.

        None where that is not the number of their targets.
        """
        if self.means or len(self.sums) != 1:
            return None
        ((*_, value, divisor),) = self.sums
        is_ratio = torch.isclose(value.sum().float(), (loss * divisor).float(), rtol=_ROUNDING)
        return divisor if divisor == 0 or is_ratio else None

    def is_result(self, loss: Tensor) -> bool:
        """Return whether a loss is the value of the only call."""
        return len(self.means) == 1 and self.means[0].value is loss


def _divisor(targets: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    if targets.is_floating_point():
        classes = targets.shape[min(1, targets.ndim - 1)]
        return torch.full((), targets.numel() // classes, device=targets.device)
    is_counted = targets != ignored
    return is_counted.sum() if weight is None else (weight[targets.where(is_counted, 0)] * is_counted).sum()
