"""A client in PyTorch; it needs ``offbeat-client`` and torch.

python examples/clients/torch_client.py URL TOKEN-FILE FOLDER SHARD [CA]
"""

import sys
from pathlib import Path
from typing import Any

import offbeat_client
import torch
from softmax import Model, readings
from torch import nn


def main(url: str, token_file: str, folder: str, shard: str, ca: str | None = None) -> None:
    """Take part in the run with one shard of the examples."""
    inputs, labels = map(torch.from_numpy, readings(int(shard)))
    net = nn.Linear(8, 2)

    def fit(model: Model, visit: Any) -> tuple[Model, int]:
        net.load_state_dict({name: torch.from_numpy(array) for name, array in model.items()})
        optimizer = torch.optim.SGD(net.parameters(), visit.plan.lr)
        for _ in range(visit.plan.steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        return {name: value.detach().numpy() for name, value in net.named_parameters()}, len(labels)

    token = Path(token_file).read_text(encoding="ascii").strip()
    print(offbeat_client.run(url, fit, folder, enrolment_token=token, ca=ca), "updates counted")


if __name__ == "__main__":
    main(*sys.argv[1:])
