"""The workload on which models are compared: W1 with few clients, without chance.

Every step takes all examples of its client, so that the order in which a program draws them does not matter.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from workloads import W1, train

WORKLOAD = replace(W1, clients=20, examples=60, batch_size=60)
CONCURRENCY = 8
BUFFER = 5
MIXING = 0.6
UPDATES = 200


def trained(start: Tensor, client: int) -> Tensor:
    """Return the parameters at the end of a client's steps."""
    torch.set_num_threads(1)
    model = WORKLOAD.make()
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    inputs, labels = WORKLOAD.client(client)
    train(WORKLOAD, model, inputs, labels, torch.arange(len(labels)))
    return nn.utils.parameters_to_vector(model.parameters()).detach()
