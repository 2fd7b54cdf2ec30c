"""Checks that a workload can be trained, before the first run."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.algorithms import LocalPlan
from offbeat.data.dataset import Dataset
from offbeat.training.augmentation import check_augmentation
from offbeat.training.fit_check import check_fit
from offbeat.training.loss_modules import ignored_target, name_of_loss
from offbeat.training.objectives import Loss
from offbeat.training.workload import Workload

_BLOCK = 2**20  # targets checked together


def check_workload(workload: Workload, plan: LocalPlan, dataset: Dataset) -> None:
    """Raise ``OffbeatError`` if the model, the loss and the data do not fit together.

    They are tried on the smallest minibatch of all clients: a model that takes it takes the others.
    """
    check_augmentation(workload.augmentation, workload.train.inputs)
    parts = {"train": workload.train.labels}
    if workload.test is not None:
        parts["test"] = workload.test.labels
    classes = number_of_targets(workload.objective.loss, parts) or dataset.classes
    sizes = {number: min(plan.of(number).minibatch_sizes(number)) for number in {*map(len, workload.shards)}}
    client = min(range(len(workload.shards)), key=lambda client: sizes[workload.examples(client)])
    smallest = workload.shards[client][: sizes[workload.examples(client)]]

    def try_minibatch(chosen: NDArray[np.int64]) -> None:
        check_fit(
            workload.model,
            workload.objective.loss,
            *workload.minibatch(torch.from_numpy(chosen)),
            classes=classes,
            tokens=dataset.tokens,
            accelerator=workload.accelerator,
        )

    def takes_two() -> bool:
        others = np.concatenate(workload.shards)
        try:
            try_minibatch(np.array([smallest[0], *others[others != smallest[0]][:1]]))
        except OffbeatError:
            return False
        return True

    try:
        try_minibatch(smallest)
    except OffbeatError as error:
        if len(smallest) > 1 or not takes_two():
            raise
        if workload.examples(client) == 1:
            why, remedy = f"client {client} holds one example", "use another partition"
        elif plan.batch_size == 1:
            why, remedy = "local.batch_size is 1", "make it larger"
        else:
            why, remedy = f"an epoch of client {client} ends with one example", "change local.batch_size"
        raise OffbeatError(
            f"{why}, but the model or the loss needs minibatches of at least two: {remedy}, or GroupNorm in place of "
            f"BatchNorm ({error})"
        ) from error.__cause__


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
                example = int(wrong.any(dim=1).int().argmax())
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
    """Yield parts of the labels as tables, each with the number of its first example."""
    width = max(1, labels[0].numel())
    examples = max(1, _BLOCK // width)
    for first in range(0, len(labels), examples):
        yield first, labels[first : first + examples].reshape(-1, width)
