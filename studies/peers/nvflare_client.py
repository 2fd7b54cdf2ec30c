"""A client of NVFlare's simulator: its local steps, and when they ended."""

# pyright: reportMissingImports=false

import sys
import time
from pathlib import Path

import nvflare.client as flare
import torch
from nvflare.app_common.abstract.fl_model import ParamsType

name, peers, ends = sys.argv[1:]
sys.path.append(peers)

from workloads import WORKLOADS, train  # noqa: E402 - NVFlare runs this file from elsewhere

torch.set_num_threads(1)
workload = WORKLOADS[name]
flare.init()
inputs, labels = workload.client(int(flare.get_site_name().removeprefix("site-")) - 1)
while flare.is_running():
    received = flare.receive()
    if received is None:
        break
    model = workload.make()
    model.load_state_dict({key: torch.as_tensor(value) for key, value in received.params.items()})
    train(workload, model, inputs, labels, torch.arange(len(labels)))
    with Path(ends).open("a") as file:
        file.write(f"{received.current_round} {time.time()}\n")
    flare.send(flare.FLModel(params=model.state_dict(), params_type=ParamsType.FULL))
