"""The same project on other frameworks: ``make test-peers`` runs their halves in environments of their own."""

import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.examples.migrate.served import EXAMPLE, ROOT, served

# APPFL imports torchvision, which pip brings for CUDA, and collects garbage at each step, which takes seconds.
PROGRAM = f"""
import gc, runpy, sys
sys.path[:0] = [{str(ROOT / "studies" / "peers")!r}, ""]
if "appfl" in sys.argv[1]:
    import torchvision_operators
    torchvision_operators.define()
    gc.collect = lambda *_: 0
runpy.run_path(sys.argv[1], run_name="__main__")
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("OFFBEAT_PEERS" not in os.environ, reason="make test-peers installs the other frameworks"),
]


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the example, in which frameworks leave their files."""
    return shutil.copytree(EXAMPLE, tmp_path / "project")


def finished(folder, *command):
    environment = os.environ | {
        "FLWR_HOME": str(folder / "flower-home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(folder / "nvflare"),
        "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}/packages/client",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measured(text):
    """Return loss and accuracy of the example's report."""
    found = re.search(r"test loss (\S+), accuracy (\S+)", text)
    print(found[0])
    return tuple(map(float, found.groups()))


def theirs(peer, program, folder):
    loss, accuracy = measured(finished(folder, ROOT / "build" / peer / "bin" / "python", "-c", PROGRAM, program))
    assert accuracy > 0.8
    return loss, accuracy


def simulated(folder, python, *options):
    """Return loss and accuracy of FedAvg in Offbeat's simulator."""
    command = [python, "-m", "offbeat", "run", "experiment.toml", "--algorithm", "fedavg", "--output", "runs", *options]
    finished(folder, *command)
    history = pq.read_table(folder / "runs" / "fedavg-seed1" / "history.parquet")
    return tuple(history[name][-1].as_py() for name in ("loss", "accuracy"))


def test_flower_and_its_app_in_the_simulator_come_to_the_same_model(folder):
    expected = theirs("flower", "flower_app.py", folder)
    python = ROOT / "build" / "flower" / "bin" / "python"
    assert simulated(folder, python, "--flower", "flower_app:client_app") == pytest.approx(expected, abs=0.005)


def test_nvflare_and_our_server_come_to_the_same_model(folder, tmp_path):
    assert measured(served(tmp_path)) == pytest.approx(theirs("nvflare", "nvflare_job.py", folder), abs=0.005)


def test_appfl_and_the_simulator_differ_by_the_order_of_examples_only(folder):
    loss, accuracy = simulated(folder, sys.executable)
    expected = theirs("appfl", "appfl_run.py", folder)
    assert loss == pytest.approx(expected[0], rel=0.2)
    assert accuracy == pytest.approx(expected[1], abs=0.03)
