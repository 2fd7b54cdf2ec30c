"""The package as a whole, in a fresh interpreter where torch and offbeat cannot be imported."""

import subprocess
import sys
from pathlib import Path

import offbeat_client
import pytest

from tests.service.conftest import LENGTH, running

BLOCKED = "import sys\nfor name in ('torch', 'offbeat'):\n    sys.modules[name] = None  # importing it raises\n"


def run_blocked(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED + script, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported_without_torch():
    script = """
import importlib, pkgutil, offbeat_client, offbeat_core, offbeat_private
names = []
for package in (offbeat_client, offbeat_core, offbeat_private):
    names += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
for name in names:
    importlib.import_module(name)
for name in offbeat_client.__all__:
    getattr(offbeat_client, name)
print(len(names))
"""
    packages = Path(offbeat_client.__file__).parents[1].glob("offbeat_*")
    modules = [path for package in packages for path in package.rglob("*.py") if path.name != "__init__.py"]
    assert int(run_blocked(script)) >= len(modules)


def test_a_numpy_client_takes_part_without_torch_and_the_packages_of_the_helper(tmp_path):
    script = """
import offbeat_core.compression, offbeat_core.local_plan, offbeat_core.sent_update
assert "httpx" not in sys.modules and "pydantic" not in sys.modules
for name in ("click", "fastapi", "granian", "scipy", "starlette"):
    sys.modules[name] = None
import offbeat_client
for name in offbeat_client.__all__:
    getattr(offbeat_client, name)
from offbeat_client import Fitted, run

def fit(model, visit):
    return Fitted({name: 0.5 * array for name, array in model.items()}, examples=7)

url, token, folder = sys.argv[1:]
print(run(url, fit, folder, enrolment_token=token, visits=2))
"""
    with running(tmp_path / "server", clients=1) as served:
        counted = run_blocked(script, served.url, served.enrolment_token, str(tmp_path / "me"))
        assert served.service.engine.coordinator.algorithm.model.shape == (LENGTH,)
    assert int(counted) == 2


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        _ = offbeat_client.unknown
