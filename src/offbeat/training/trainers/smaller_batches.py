"""A trainer that goes on with smaller batches when a GPU's memory runs out."""

import logging
from collections.abc import Sequence

import torch
from offbeat_core.errors import OffbeatError

from offbeat.training.trainers.trainer import Job, Result, Trainer

_log = logging.getLogger(__name__)


class SmallerBatches(Trainer):
    """Another trainer, whose batches are halved for as long as they do not fit.

    The results of smaller batches may differ in their last bits.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.workload = trainer.workload
        self.name = trainer.name
        self.batch_limit = trainer.batch_limit
        self._trainer = trainer
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The other trainer's, and what did not fit."""
        return [*self._trainer.notes, *self._notes]

    @property
    def kernel(self) -> str:
        """The other trainer's."""
        return self._trainer.kernel

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start.

        Raises ``OffbeatError`` if a single job does not fit.
        """
        while True:
            try:
                batches = [jobs[at : at + self.batch_limit] for at in range(0, len(jobs), self.batch_limit)]
                return [result for batch in batches for result in self._trainer.collect(batch)]
            except (OffbeatError, torch.OutOfMemoryError) as error:
                if not isinstance(error, torch.OutOfMemoryError) and not isinstance(
                    error.__cause__, torch.OutOfMemoryError
                ):
                    raise
            self._halve()  # after the exception, which holds on to the tensors of the batch

    def _halve(self) -> None:
        torch.cuda.empty_cache()
        device, limit = self.workload.accelerator.device, self.batch_limit
        if limit == 1:
            raise OffbeatError(f"one client does not fit into the memory of {device}: lower local.batch_size")
        self.batch_limit = self._trainer.batch_limit = limit // 2
        note = f"out of memory with {limit} clients at once: went on with {limit // 2}"
        self._notes.append(note)
        _log.warning("%s: %s", device, note)

    def close(self) -> None:
        """Close the other trainer."""
        self._trainer.close()
