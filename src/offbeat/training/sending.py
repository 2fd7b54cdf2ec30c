"""``offbeat_client.sending`` for torch tensors.

With it, simulated clients send what real clients send.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat_client import sending
from offbeat_client.local_plan import LocalPlan, Payload


def send(
    payload: Payload, vector: Tensor, memory: Tensor | None, plan: LocalPlan, seed: int
) -> tuple[Tensor, Tensor | None]:
    """Return the update as the server reads it, and the client's new memory.

    The client keeps the memory once the update counts. See ``offbeat_client.sending.send``; a vector that is sent
    unchanged is returned itself.
    """
    if sending.is_plain(payload, plan):  # the most frequent case, without the cost of a conversion
        return vector, None
    array = vector.numpy()

    def tensor(result: NDArray[np.float32]) -> Tensor:
        return vector if result is array else torch.from_numpy(result)

    sent = sending.send(payload, array, None if memory is None else memory.numpy(), plan, seed)
    return tensor(sent.vector), None if sent.memory is None else tensor(sent.memory)


def control_variate(delta: Tensor, offset: Tensor, plan: LocalPlan) -> Tensor:
    """Return a client's memory of a visit with corrected gradients.

    See ``offbeat_client.sending``.
    """
    return torch.from_numpy(sending.control_variate(delta.numpy(), offset.numpy(), plan))
