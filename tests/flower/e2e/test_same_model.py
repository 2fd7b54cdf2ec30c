"""The same app gives the same model under ``offbeat join`` and in Flower's simulation."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import torch

from offbeat.flower.model_arrays import ModelArrays
from offbeat.service.store.store import Store
from tests.flower.e2e import simulated_arrivals
from tests.service.conftest import running

ROOT = Path(__file__).parents[3]
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}


def test_with_the_same_arrivals_it_is_the_same_model(tmp_path, examples):
    from digits_app.task import make_model

    model = ModelArrays(make_model())
    layout = list(model.shapes.items())
    environment = {
        **os.environ,
        **QUIET,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "packages/client", examples, ROOT))),
    }
    with running(
        tmp_path / "server",
        simulated_arrivals.make_algorithm,
        clients=simulated_arrivals.CLIENTS,
        plan=simulated_arrivals.PLAN,
        model=model.vector,
        layout=layout,
        stop_versions=6,
    ) as server:
        join = [sys.executable, "-m", "offbeat", "join", server.url, "--token", server.enrolment_token]
        join += ["--flower", "digits_app.client_app:app", "--node-config", "num-partitions=3"]
        clients = [
            subprocess.Popen([*join, "--folder", tmp_path / f"client-{number}"], cwd=examples, env=environment)
            for number in range(simulated_arrivals.CLIENTS)
        ]
        assert [client.wait(timeout=300) for client in clients] == [0, 0, 0]
        served = server.service.engine.coordinator
        expected, statistics = served.algorithm.model.clone(), served.statistics
    with closing(Store(tmp_path / "server")) as store:
        rows = asyncio.run(store.log.read(0, 10_000))
    counted = [(row.name, row.values) for row in rows if row.name in ("assign", "receive")]
    for _, arguments in counted:
        arguments.pop("outcome", None)
    last = max(number for number, (name, _) in enumerate(counted) if name == "receive")
    (tmp_path / "calls.json").write_text(json.dumps(counted[: last + 1]))
    assert statistics.counted == 12
    simulate = [sys.executable, simulated_arrivals.__file__, tmp_path / "calls.json", tmp_path / "model.pt"]
    subprocess.run(simulate, env=environment, check=True, timeout=300)
    simulated = torch.load(tmp_path / "model.pt")
    assert not torch.equal(expected, model.vector)
    torch.testing.assert_close(simulated, expected, rtol=0.0, atol=1e-6)
    # It depends on the order in which updates arrive.
    assert statistics.staleness_max > 0
