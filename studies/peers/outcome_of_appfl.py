"""Models of APPFL's FedAsync and FedBuff, with the arrivals that led to them.

``python outcome_of_appfl.py``, in APPFL's environment, prints one line of JSON for each setting, for ``outcome.py``.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import json
import logging
import os
from typing import Any

import on_appfl
from outcome_workload import BUFFER, CONCURRENCY, MIXING, UPDATES, WORKLOAD
from torch import nn

N = WORKLOAD.clients


class RecordingDriver(on_appfl.AsyncSimDriver):
    """APPFL's driver, which also lists what is assigned and what arrives."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.events: list[tuple[str, int]] = []
        super().__init__(*arguments, **options)

    def _handle_train_start(self, cid: str, dispatch_time: float) -> None:
        self.events.append(("assign", int(cid)))
        super()._handle_train_start(cid, dispatch_time)

    def _handle_train_complete(self, cid: str, completion_time: float) -> None:
        self.events.append(("receive", int(cid)))
        super()._handle_train_complete(cid, completion_time)


def outcome(aggregator: str, options: dict[str, Any], train: dict[str, Any]) -> dict[str, Any]:
    """Return the events of a run and its last model."""
    server, clients = on_appfl.agents(WORKLOAD, on_appfl.server_of(aggregator, options, UPDATES), train)
    driver = RecordingDriver(
        server,
        clients,
        on_appfl.profiles(WORKLOAD),
        max_in_flight=CONCURRENCY,
        base_step_time=1.0,
        logger=logging.getLogger("appfl"),
    )
    driver.run()
    model = nn.utils.parameters_to_vector(server.model.parameters())
    return {"events": driver.events, "model": model.tolist()}


def main() -> None:
    """Print the outcomes."""
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        for algorithm, settings, aggregator, options, train in [
            ("fedasync", f"alpha = {MIXING}", "FedAsyncAggregator", {"alpha": MIXING}, {}),
            ("fedasync", f"alpha = {MIXING} N", "FedAsyncAggregator", {"alpha": MIXING * N}, {}),
            ("fedbuff", f"K = {BUFFER}, alpha = 1", "FedBuffAggregator", {"K": BUFFER, "alpha": 1.0}, {}),
            ("fedbuff", f"K = {BUFFER}, alpha = N / K", "FedBuffAggregator", {"K": BUFFER, "alpha": N / BUFFER}, {}),
            (
                "fedbuff",
                f"K = {BUFFER}, alpha = N / K, send_gradient",
                "FedBuffAggregator",
                {"K": BUFFER, "alpha": N / BUFFER},
                {"send_gradient": True},
            ),
        ]:
            row = {"algorithm": algorithm, "settings": settings, "buffer_size": BUFFER, "staleness": "polynomial"}
            print(json.dumps(row | outcome(aggregator, options, train)), file=output, flush=True)


if __name__ == "__main__":
    main()
