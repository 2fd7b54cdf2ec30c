"""Models of NVFlare's FedBuff, with the arrivals that led to them.

``python outcome_of_nvflare.py``, in NVFlare's environment, prints one line of JSON for each setting, for
``outcome.py``. It calls the classes that a server of ``nvflare.edge`` runs, in its process and in the order of the
arrivals: ``ModelUpdateAssessor`` with ``BuffModelManager`` and ``BuffDeviceManager``.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import json
import logging
import random
from typing import Any

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.edge.assessors.buff_device_manager import BuffDeviceManager
from nvflare.edge.assessors.buff_model_manager import BuffModelManager
from nvflare.edge.assessors.model_update import ModelUpdateAssessor
from nvflare.edge.mud import Device, ModelUpdate, StateUpdateReport
from outcome_workload import BUFFER, CONCURRENCY, UPDATES, WORKLOAD, trained
from torch import nn


class CountingManager(BuffModelManager):
    """NVFlare's manager, which also counts the updates that its models contain."""

    counted = 0

    def generate_new_model(self, fl_ctx: FLContext) -> None:
        """Make a version, and count."""
        self.counted += self.waiting()
        super().generate_new_model(fl_ctx)

    def waiting(self) -> int:
        """Return the updates that the next model will contain."""
        return sum(state.aggregator.count for state in self.updates.values())


def outcome(buffer_size: int, staleness_weight: bool) -> dict[str, Any]:
    """Return a run's events, its last model and the share of lost updates."""
    random.seed(1)
    context = FLContext()
    assessor = ModelUpdateAssessor("persistor", "models", "devices", max_model_version=10**6)
    assessor.model_manager = models = CountingManager(buffer_size, None, 1.0, staleness_weight)
    assessor.device_manager = BuffDeviceManager(CONCURRENCY)
    start = nn.utils.parameters_to_vector(WORKLOAD.make().parameters()).detach()
    models.initialize_model(DXO(DataKind.WEIGHTS, data={"w": start.numpy()}), context)
    devices = {str(index): Device(str(index), "leaf", 0.0) for index in range(WORKLOAD.clients)}

    events: list[tuple[str, int]] = []
    working: dict[str, tuple[float, int, torch.Tensor]] = {}

    def report(updates: dict[int, ModelUpdate] | None, now: float) -> None:
        """Send a report, and assign work to devices that are selected since."""
        report = StateUpdateReport(models.current_model_version, 0, updates, None if updates else devices)
        accepted, _ = assessor.process_child_update(report.to_shareable(), context)
        assert accepted
        for name, version in assessor.device_manager.get_selection(context).items():
            if name not in working:
                events.append(("assign", int(name)))
                model = torch.tensor(models.current_model.data["w"], dtype=torch.float32)
                working[name] = now + random.uniform(0.5, 1.5), version, model

    report(None, 0.0)
    for _ in range(UPDATES):
        name, (now, version, model) = min(working.items(), key=lambda item: item[1][0])
        del working[name]
        events.append(("receive", int(name)))
        change = (trained(model, int(name)) - model).numpy().astype(np.float64)
        update = DXO(DataKind.WEIGHT_DIFF, data={"dict": {"w": change}, "count": 1}).to_shareable()
        report({version: ModelUpdate(version, update, {name: now})}, now)
    lost = UPDATES - models.counted - models.waiting()
    return {"events": events, "model": np.asarray(models.current_model.data["w"]).tolist(), "lost": lost / UPDATES}


def main() -> None:
    """Print the outcomes."""
    logging.disable(logging.CRITICAL)
    for buffer_size, weigh in [(1, False), (BUFFER, False), (BUFFER, True)]:
        row = {"algorithm": "fedbuff", "settings": f"K = {buffer_size}, staleness_weight = {weigh}"}
        staleness = {"buffer_size": buffer_size, "staleness": "polynomial" if weigh else "constant"}
        print(json.dumps(row | staleness | outcome(buffer_size, weigh)), flush=True)


if __name__ == "__main__":
    main()
