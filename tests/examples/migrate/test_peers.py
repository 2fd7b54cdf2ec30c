"""The same project on other frameworks: ``make test-peers`` runs their own halves in environments of their own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "migrate"
PEERS = {"flower": "flower_app.py", "nvflare": "nvflare_job.py", "appfl": "appfl_run.py"}

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


def ours(folder, python, *options):
    output = folder / "ours"
    finished(
        folder, python, "-m", "offbeat", "run", "experiment.toml", "--algorithm", "fedavg", "--output", output, *options
    )
    return pq.read_table(output / "fedavg-seed1" / "history.parquet")["accuracy"].to_pylist()


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the example, in which frameworks leave their files."""
    return shutil.copytree(EXAMPLE, tmp_path / "project")


@pytest.mark.parametrize("peer", PEERS)
def test_both_forms_come_to_a_similar_accuracy(peer, folder):
    python = ROOT / "build" / peer / "bin" / "python"
    said = finished(folder, python, "-c", PROGRAM, PEERS[peer])
    theirs = float(re.search(r"^accuracy (\S+)$", said, re.MULTILINE)[1])
    accuracies = [ours(folder, sys.executable)]
    if peer == "flower":  # its app itself, too
        shutil.rmtree(folder / "ours")
        accuracies.append(ours(folder, python, "--flower", "flower_app:client_app"))
    print(f"{peer}: {theirs}, ours: {[history[-1] for history in accuracies]}")
    for history in accuracies:
        assert history[0] < 0.3
        assert theirs > 0.8
        assert history[-1] == pytest.approx(theirs, abs=0.05)
