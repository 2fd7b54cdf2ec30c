"""The built-in client: local SGD on its own examples by the simulator's trainer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offbeat.errors import OffbeatError
from offbeat.training.accelerator import Accelerator, choose_device
from offbeat.training.evaluation import check_scalar
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.trainer import Job, Result
from offbeat.training.workload import Examples, Objective, Workload
from offbeat_client.visit import Fitted, Visit


class LocalSGD:
    """A client that trains a module by the visit's plan.

    Its result equals that of the simulator's loop trainer on the same examples, bit for bit.

    Args:
        module: Its trainable parameters are those of the server's model, by name and shape; it is changed.
        loss: Maps (outputs, labels) to the mean loss of a minibatch.
        data: The client's inputs and labels, ``(n, …)`` each: tensors or arrays.
        device: Where it trains: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Raises:
        OffbeatError: The module cannot be trained this way, or the numbers of inputs and labels differ.
    """

    corrects_gradients = True

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        data: tuple[Any, Any],
        *,
        device: str = "cpu",
    ) -> None:
        self._model = FlatModel(module)
        self._loss = loss
        inputs, labels = self._data = Examples(*(torch.as_tensor(part) for part in data))
        if not 1 <= len(inputs) == len(labels):
            raise OffbeatError(
                f"a client needs examples, a label for each: got {len(inputs)} inputs, {len(labels)} labels"
            )
        self.to(device)

    def to(self, device: str) -> None:
        """Train on another device from the next visit on.

        Raises ``OffbeatError`` if it is not there.
        """
        self._accelerator = Accelerator(choose_device(device))
        self._model = self._model.to(self._accelerator.device)
        self._data = self._data.to(self._accelerator.device)

    @property
    def examples(self) -> int:
        """The number of examples that the client holds."""
        return len(self._data.inputs)

    def fit(self, model: dict[str, Tensor], visit: Visit) -> Fitted:
        """Train, in an urgent visit only to the end of the step that it is at.

        Raises:
            OffbeatError: The server's model is another than the module; or the module or the loss fails.
        """
        self._check(model)
        start = self._vector(model)
        offset = None if visit.offset is None else self._vector(visit.offset)
        loss = _UntilUrgent(self._loss, visit)
        # The trainer finds the examples by the client's number, which the random numbers depend on too.
        shards = [np.arange(self.examples)] * (visit.client + 1)
        trainer = LoopTrainer(
            Workload(self._model, Objective(loss), self._data, shards, visit.seed, accelerator=self._accelerator)
        )
        job = Job(visit.client, visit.number, visit.version, start, visit.plan, "params", offset)
        try:
            with self._accelerator.numerics():
                result = trainer.collect([job])[0]
        except _UrgentError:
            result = Result(self._model.vector.clone(), torch.stack(loss.values).float().mean().item())
        return Fitted(self._model.named(result.vector), self.examples, len(loss.values), loss=result.loss)

    def _vector(self, named: dict[str, Tensor]) -> Tensor:
        vector = torch.cat([named[name].reshape(-1) for name in self._model.named(self._model.vector)])
        return vector.to(self._accelerator.device)

    def _check(self, model: dict[str, Tensor]) -> None:
        own = self._model.named(self._model.vector)
        shapes, given = ({name: tuple(value.shape) for name, value in part.items()} for part in (own, model))
        if shapes != given:
            name = min(name for name in {*shapes, *given} if shapes.get(name) != given.get(name))
            raise OffbeatError(
                f"the server's model is another than this module: {name} has shape {given.get(name, 'none')} there "
                f"and {shapes.get(name, 'none')} here"
            )


class _UrgentError(OffbeatError):
    """The visit became urgent after at least one step; the trainer lets it through."""


class _UntilUrgent:
    """A loss that ends an urgent visit where a step would begin."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], visit: Visit) -> None:
        self._loss = loss
        self._visit = visit
        self.values: list[Tensor] = []

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.values and self._visit.urgent.is_set():
            raise _UrgentError
        loss = check_scalar(self._loss(outputs, labels))
        self.values.append(loss.detach())
        return loss
