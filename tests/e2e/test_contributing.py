"""The recipe for a new algorithm works as written, in a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/contributing.md"
ALGORITHM, TEST = "src/offbeat/algorithms/fedplain.py", "tests/algorithms/test_fedplain.py"
CONTRACT = ("tests/algorithms/test_contract.py", "tests/algorithms/test_contract_basics.py")


def block(title):
    found = re.findall(rf'^ *```\w+ title="{re.escape(title)}"\n(.*?)^ *```', PAGE.read_text("utf-8"), re.S | re.M)
    assert len(found) == 1, f"{title} must be on the page once"
    return textwrap.dedent(found[0])


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path):
    """A copy of the checkout in which the recipe was followed."""
    for folder in ("src/offbeat", "tests", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert "`make algorithm NAME=fedplain CLASS=FedPlain`" in PAGE.read_text("utf-8")
    begun = python(tmp_path, "tools/algorithms.py", "new", "fedplain", "FedPlain")
    assert begun.returncode == 0, begun.stderr
    for file in (ALGORITHM, TEST):
        assert (tmp_path / file).exists()
        (tmp_path / file).write_text(block(file), "utf-8")
    return tmp_path


def test_an_algorithm_is_one_file_and_one_test(copy):
    passed = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", TEST, *CONTRACT)
    assert passed.returncode == 0, passed.stdout + passed.stderr

    listed = python(copy, "-m", "offbeat", "algorithms")
    assert listed.returncode == 0, listed.stderr
    assert "fedplain" in listed.stdout
    assert "server_lr = 0.1" in listed.stdout

    for command in (("check",), ("format", "--check")):
        styled = python(copy, "-m", "ruff", *command, "src/offbeat/algorithms", TEST)
        assert styled.returncode == 0, styled.stdout

    # The test sees it if the code is wrong.
    wrong = (copy / ALGORITHM).read_text("utf-8").replace("model - self.server_lr", "model + self.server_lr")
    (copy / ALGORITHM).write_text(wrong, "utf-8")
    failed = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST)
    assert failed.returncode == 1
    assert "test_arrivals_by_hand" in failed.stdout
