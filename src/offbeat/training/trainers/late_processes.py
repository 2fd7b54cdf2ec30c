"""Processes for runs that last: they take seconds to start, in which a short run is over."""

import logging
import time
from collections.abc import Callable, Sequence

from offbeat.errors import OffbeatError
from offbeat.training.trainers.trainer import Job, Result, Trainer

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0  # of training, about what it takes to start processes


class LateProcesses(Trainer):
    """Trains in this process for the first two seconds, and in others from then on.

    When that happens cannot be seen in the results: both are the same to the bit.

    Args:
        here: Trains in this process.
        start: Makes what trains in others.
    """

    name = "loop"
    batch_limit = 1

    def __init__(self, here: Trainer, start: Callable[[], Trainer]) -> None:
        self._here = here
        self._others: Trainer | None = None
        self._start: Callable[[], Trainer] | None = start
        self._seconds = 0.0
        self._expected: dict[int, Job] = {}  # by identity

    def examples(self, client: int) -> int:
        """Return how many examples n_i the client holds."""
        return self._here.examples(client)

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its own start; raises what the plain trainer raises."""
        if self._others is not None:
            try:
                return self._others.train(jobs)
            except OffbeatError as error:
                self._go_on_here(error)
        began = time.monotonic()
        results = self._here.train(jobs)
        self._seconds += time.monotonic() - began
        for job in jobs:
            self._expected.pop(id(job), None)
        if self._start is not None and self._seconds > _PATIENCE_SECONDS:
            self._change_over(self._start)
        return results

    def _change_over(self, start: Callable[[], Trainer]) -> None:
        self._start = None
        try:
            self._others = start()
            for job in self._expected.values():
                self._others.expect(job)
        except OffbeatError as error:
            self._go_on_here(error)
        self._expected.clear()

    def _go_on_here(self, error: OffbeatError) -> None:
        """Do without processes: a loss may not be one that can be sent, or there is no memory for them."""
        _log.warning("one process trains all clients: %s", error)
        self.close()
        self._others = None

    def expect(self, job: Job) -> None:
        """Begin with a job, or remember it until there are processes that can."""
        if self._start is not None:
            self._expected[id(job)] = job
        elif self._others is not None:
            try:
                self._others.expect(job)
            except OffbeatError as error:
                self._go_on_here(error)

    def forget(self, job: Job) -> None:
        """Nobody will ask for this job any more."""
        self._expected.pop(id(job), None)
        if self._others is not None:
            self._others.forget(job)

    def close(self) -> None:
        """End the processes, if there are any."""
        if self._others is not None:
            self._others.close()
