"""Training of one client at a time, whose gradients are replayed as CUDA graphs."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from offbeat_core.user_code_errors import error_line
from torch import Tensor

from offbeat.model_inputs import Inputs, map_inputs
from offbeat.training.fresh_copies import has_state
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.hooks import has_hooks
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.workload import Workload

_log = logging.getLogger(__name__)

Step = tuple[Tensor, Tensor | None]
Compute = Callable[[], Step]
Record = Callable[[Compute], Compute]
"""Maps a computation to a function that repeats it, on the same tensors."""
Differentiate = Callable[[Inputs[Tensor], Tensor], Step]

_WARM_UP = 3  # libraries choose kernels and allocate workspaces in the first runs
_MAX_GRAPHS = 16  # each keeps its activations


def record_cuda_graph(compute: Compute) -> Compute:
    """Return a function that repeats a computation by one launch, a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Step:
        graph.replay()
        return result

    return replay


def make_loop(workload: Workload) -> LoopBackend:
    """Return the backend that trains one client at a time."""
    return GraphBackend(workload) if workload.accelerator.is_cuda else LoopBackend(workload)


class GraphBackend(LoopBackend):
    """The loop on a GPU: a step's kernels are recorded once and launched together.

    A GPU takes longer to launch the kernels of a small step one by one than to compute them. There is a graph for each
    size of a minibatch, of its forward and backward pass. A model that cannot be recorded, for instance because it
    reads an entry of a tensor, is trained without a graph. So is a model with hooks or a loss with state, whose Python
    a graph would not run.
    """

    def __init__(self, workload: Workload, record: Record = record_cuda_graph) -> None:
        super().__init__(workload)
        self._record = record
        self._has_python = has_hooks(workload.model.module) or has_state(workload.objective.loss)
        self._graphs: dict[int, Differentiate | None] = {}  # by the size of the minibatch

    @property
    def kernel(self) -> str:
        """``graph``, or ``loop`` if the model cannot be recorded."""
        return "graph" if self._may_record else "loop"

    @property
    def _may_record(self) -> bool:
        return not self.notes and not self._has_python

    def _train(self, job: Job) -> tuple[Tensor, Tensor]:
        size = min(job.plan.batch_size, self.workload.examples(job.client))
        # Before the trainer sets the model and the generators, both of which a recording changes.
        if self._may_record and size not in self._graphs and len(self._graphs) < _MAX_GRAPHS:
            self._graphs[size] = self._try_to_record(self._shards[job.client][:size])
        return super()._train(job)

    def _try_to_record(self, chosen: Tensor) -> Differentiate | None:
        inputs, labels = self.workload.minibatch(chosen)
        try:
            replay = self._record(lambda: super(GraphBackend, self)._differentiate(inputs, labels))
        except Exception as error:  # a user's code can raise any type
            reason = f"the model's step cannot be recorded as a CUDA graph ({error_line(error)})"
            self.notes = [f"{reason}: its kernels are launched one by one"]
            _log.warning("%s", self.notes[0])
            return None

        def differentiate(others: Inputs[Tensor], other_labels: Tensor) -> Step:
            map_inputs(Tensor.copy_, inputs, others)
            labels.copy_(other_labels)
            loss, count = replay()  # the next replay overwrites them
            return loss.clone(), None if count is None else count.clone()

        return differentiate

    def _differentiate(self, inputs: Inputs[Tensor], labels: Tensor) -> Step:
        return (self._graphs.get(len(labels)) or super()._differentiate)(inputs, labels)
