"""The example's app as the clients of a comparison, on the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]

TOML = f"""
[data]
name = "digits"

[model]
name = "{ROOT}/examples/flower/digits_app/task.py:make_model"

[local]
steps = 18
batch_size = 10
lr = 0.05

[population]
clients = 6
step_seconds = {{ distribution = "lognormal", median = 1.0, sigma = 1.0 }}

[stop]
versions = 6

[evaluate]
every_versions = 3

[algorithms.fedbuff]
buffer_size = 2
concurrency = 4
"""


def compare(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "digits.toml").write_text(TOML)
    command = [sys.executable, "-m", "offbeat", "run", folder / "digits.toml", "--flower", "digits_app.client_app:app"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}/packages/client", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "--output", folder / "runs", *options],
        cwd=ROOT / "examples" / "flower",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the folder of a comparison."""
    folder = tmp_path_factory.mktemp("compared")
    done = compare(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_an_app_is_compared(compared):
    (history,) = (compared / "runs").rglob("history.parquet")
    accuracy = pq.read_table(history)["accuracy"].to_pylist()
    assert accuracy[0] < 0.3 < 0.7 < accuracy[-1]


@pytest.mark.long
def test_it_gives_the_same_numbers_again(compared, tmp_path):
    done = compare(tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (load_file(next((folder / "runs").rglob("*.safetensors"))) for folder in (compared, tmp_path))
    assert all(torch.equal(vector, second[name]) for name, vector in first.items())


@pytest.mark.long
def test_a_mistake_in_the_settings_is_one_line(tmp_path):
    done = compare(tmp_path, "--set", "flower.run_config={local-epochs='many'}")
    assert done.returncode == 2
    assert "the Flower app failed: TypeError" in done.stderr
    assert len(done.stderr.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in done.stderr
