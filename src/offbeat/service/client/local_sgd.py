"""The built-in client: local SGD on its own examples by the simulator's trainer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offbeat.data.user_examples import read_examples
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.inputs import map_inputs, name_inputs
from offbeat.training.accelerator import Accelerator, choose_device
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import LOSSES, Loss, Objective
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.trainer import Job, Result
from offbeat.training.workload import Examples, Workload
from offbeat_client.visit import Fitted, Visit


class LocalSGD:
    """A client that trains a module by the visit's plan.

    Its result equals that of the simulator's loop trainer on the same examples, bit for bit.

    Args:
        module: Its trainable parameters are those of the server's model, by name and shape; it is changed.
        loss: Maps (outputs, labels) to the mean loss of a minibatch; or a built-in loss's name, such as ``model``.
        data: The client's inputs and labels, ``(n, …)`` each, as a tuple of tensors or arrays; a dict of inputs is
            keyword arguments. Or a map-style data set of examples of one shape, PyTorch's or Hugging Face's.
        device: Where it trains: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Raises:
        OffbeatError: The module cannot be trained this way, or the numbers of inputs and labels differ.
    """

    corrects_gradients = True

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | str,
        data: Any,
        *,
        device: str = "cpu",
    ) -> None:
        self._model = FlatModel(module)
        if isinstance(loss, str) and loss not in LOSSES:
            raise OffbeatError(f"loss = {loss!r}: {did_you_mean(loss, LOSSES)}, or pass a function")
        self._loss = LOSSES[loss] if isinstance(loss, str) else loss
        inputs, labels = data if isinstance(data, tuple) and len(data) == 2 else read_examples(data, "data")
        inputs = map_inputs(torch.as_tensor, dict(inputs) if isinstance(inputs, Mapping) else inputs)
        self._data = Examples(inputs, torch.as_tensor(labels))
        for name, part in name_inputs("inputs", inputs).items():
            if not 1 <= len(part) == len(labels):
                raise OffbeatError(
                    f"a client needs examples, a label for each: got {len(part)} {name}, {len(labels)} labels"
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
        return len(self._data.labels)

    def fit(self, model: dict[str, Tensor], visit: Visit) -> Fitted:
        """Train, in an urgent visit only to the end of the step that it is at.

        Raises:
            OffbeatError: The server's model is another than the module; or the module or the loss fails.
        """
        self._check(model)
        start = self._vector(model)
        offset = None if visit.offset is None else self._vector(visit.offset)
        objective = _UntilUrgent(self._loss, visit=visit)
        # The trainer finds the examples by the client's number, which the random numbers depend on too.
        shards = [np.arange(self.examples)] * (visit.client + 1)
        trainer = LoopTrainer(
            Workload(self._model, objective, self._data, shards, visit.seed, accelerator=self._accelerator)
        )
        job = Job(visit.client, visit.number, visit.version, start, visit.plan, "params", offset)
        try:
            with self._accelerator.numerics():
                result = trainer.collect([job])[0]
        except _UrgentError:
            result = Result(self._model.vector.clone(), torch.stack(objective.values).float().mean().item())
        return Fitted(self._model.named(result.vector), self.examples, len(objective.values), loss=result.loss)

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


@dataclass(frozen=True, kw_only=True)
class _UntilUrgent(Objective):
    """A loss that ends an urgent visit where a step would begin."""

    visit: Visit
    values: list[Tensor] = field(default_factory=list)

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        if self.values and self.visit.urgent.is_set():
            raise _UrgentError
        loss = super().loss_of(outputs, labels)
        self.values.append(loss.detach())
        return loss
