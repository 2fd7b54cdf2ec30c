"""examples/clients: each script as a process, beside three built-in clients on the same examples."""

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedAvg, LocalPlan
from offbeat.client import LocalSGD, run_client
from tests.service.conftest import running

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "clients"
LAYOUT = [("weight", (2, 8)), ("bias", (2,))]
PLAN = LocalPlan(steps=3, batch_size=60, lr=0.5)  # all examples in each step: no minibatches are drawn


def readings(shard):
    spec = importlib.util.spec_from_file_location("softmax", SCRIPTS / "softmax.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.readings(shard)


def script(name, shard, served, folder):
    program = ["bash"] if name.endswith(".sh") else [sys.executable]
    words = [SCRIPTS / name, served.url, served.folder / "enrolment-token", folder / str(shard), str(shard)]
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}/packages/client"}
    done = subprocess.run(program + words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built_in(shard, served, folder):
    client = LocalSGD(nn.Linear(8, 2), cross_entropy, readings(shard))
    token = served.enrolment_token
    return run_client(served.url, lambda _: client, folder / str(shard), enrolment_token=token)


def federation(folder, clients):
    make = lambda: FedAvg(cohort=len(clients))  # noqa: E731
    folder.mkdir()
    options = {"clients": len(clients), "plan": PLAN, "model": torch.zeros(18), "layout": LAYOUT, "stop_versions": 3}
    with running(folder / "server", make, **options) as served, ThreadPoolExecutor() as pool:
        ends = [pool.submit(client, shard, served, folder) for shard, client in enumerate(clients)]
        said = [end.result(180) for end in ends]
        return served.service.engine.coordinator.algorithm.model.clone(), said


def scripts(*names):
    return [lambda *words, name=name: script(name, *words) for name in names]


def test_clients_in_numpy_torch_jax_and_curl_reach_the_model_of_built_in_ones(tmp_path):
    names = ["numpy_client.py", "torch_client.py", "jax_client.py", "curl_client.sh"]
    mixed, said = federation(tmp_path / "mixed", scripts(*names))
    assert said[:3] == ["3 updates counted\n"] * 3
    assert said[3].count('"counted":true') == 3, said[3]
    expected, counted = federation(tmp_path / "built-in", [built_in] * 4)
    assert counted == [3] * 4
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-6)


def test_clients_in_scikit_learn_come_near_that_model(tmp_path):
    model, said = federation(tmp_path / "sklearn", scripts("sklearn_client.py"))
    assert said == ["3 updates counted\n"]
    expected, _ = federation(tmp_path / "built-in", [built_in])
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(model, expected, rtol=0.15, atol=0.02)
