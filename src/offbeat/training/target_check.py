"""A check of the targets of cross-entropies, before the first run."""

from collections.abc import Iterator, Mapping

from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.training.loss_modules import ignored_target, name_of_loss
from offbeat.training.objectives import Loss

_BLOCK = 2**20  # targets checked together


def number_of_targets(loss: Loss, parts: Mapping[str, Tensor]) -> int | None:
    """Return one more than the largest class number in the labels of all parts.

    None where the loss is not a cross-entropy of class numbers.

    Raises:
        OffbeatError: A class number is below 0 and not ignored, or a part has none that is not ignored.
    """
    if name_of_loss(loss) not in ("cross_entropy", "nll_loss"):
        return None
    if any(labels.is_floating_point() for labels in parts.values()):
        return None
    ignored, largest = ignored_target(loss), -1
    for part, labels in parts.items():
        is_empty = True
        for first, block in _blocks(labels):
            counted = block != ignored
            wrong = (block < 0) & counted
            if wrong.any():
                example = int(wrong.flatten(1).any(dim=1).int().argmax())
                raise OffbeatError(
                    f"labels out of range: {part} example {first + example} has {int(block[wrong][0])}, but the loss "
                    f"takes classes from 0, and ignores {ignored}"
                )
            if counted.any():
                is_empty = False
                largest = max(largest, int(block[counted].max()))
        if is_empty:
            raise OffbeatError(f"the {part} set has no target: its labels are all {ignored}, which the loss ignores")
    return largest + 1


def _blocks(labels: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield parts of the labels ``(n, …)``, each with the number of its first example."""
    examples = max(1, _BLOCK // max(1, labels[0].numel()))
    for first in range(0, len(labels), examples):
        yield first, labels[first : first + examples].reshape(-1, max(1, labels[0].numel()))
