"""A Flower ClientApp as the backend of a simulation's trainer."""

from collections.abc import Sequence

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, integer
from offbeat_core.user_code_errors import user_code
from torch import Tensor

from offbeat.flower.client_app import FlowerApp
from offbeat.training.trainers.backend import Backend, Job, Result, result_vector
from offbeat.training.workload import Workload


class FlowerBackend(Backend):
    """Local training by an app, one client after the other, in this process.

    Torch's generators are seeded for each visit; an app that draws from others has to seed them itself.

    Args:
        workload: Names and shapes of the parameters, and the seed; the app has data of its own.
        app: The app.
        needs_loss: Whether a reply has to have the training loss.
    """

    name = "flower"
    batch_limit = 1
    keeps_states = True

    def __init__(self, workload: Workload, app: FlowerApp, *, needs_loss: bool = False) -> None:
        self.workload = workload
        self._app = app
        self._needs_loss = needs_loss

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Let the app train each job, in order.

        Raises ``OffbeatError`` if it fails, or its reply is not a training result.
        """
        with self.workload.accelerator.forked_randomness():
            return [self._train(job) for job in jobs]

    def _train(self, job: Job) -> Result:
        model, accelerator = self.workload.model, self.workload.accelerator
        accelerator.seed(integer(self.workload.seed, Purpose.LAYERS, job.client, job.visit))
        arrays = {name: tensor.cpu().numpy() for name, tensor in model.named(job.start).items()}
        what = f"client {job.client}, visit {job.visit}: the Flower app failed"
        with user_code(what):
            result = self._app.train(job.client, arrays, job.plan, job.version, job.state)
        if self._needs_loss and result.loss is None:
            raise OffbeatError(f"{what}: the algorithm needs the loss: return train_loss in a MetricRecord")
        end = torch.cat([_flat(array) for array in result.model.values()]).to(job.start.device)
        loss = 0.0 if result.loss is None else result.loss  # nobody reads it
        vector = result_vector(job.payload, job.start, end)
        return Result(vector, loss, state=result.state, examples=result.examples)


def _flat(array: object) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float32).reshape(-1)
