"""The recipe for a new algorithm works as written, in a copy of the package."""

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
REGISTER, CASES = "src/offbeat/algorithms/__init__.py", "tests/algorithms/conftest.py"
CONTRACT = ("tests/algorithms/test_contract.py", "tests/algorithms/test_contract_basics.py")


def block(title):
    found = re.findall(rf'^ *```\w+ title="{re.escape(title)}"\n(.*?)^ *```', PAGE.read_text("utf-8"), re.S | re.M)
    assert len(found) == 1, f"{title} must be on the page once"
    return textwrap.dedent(found[0])


def edit(path, pattern, replacement):
    text, count = re.subn(pattern, replacement, path.read_text("utf-8"), count=1)
    assert count == 1, f"{path.name}: the recipe names something that is not there"
    path.write_text(text, "utf-8")


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository in which the recipe was followed."""
    for folder in ("src/offbeat", "tests/algorithms"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / ALGORITHM).write_text(block(ALGORITHM), "utf-8")
    (tmp_path / TEST).write_text(block(TEST), "utf-8")
    the_import = block(REGISTER)
    edit(tmp_path / REGISTER, r"\nALGORITHMS", rf"{the_import}\nALGORITHMS")
    edit(tmp_path / REGISTER, r"for algorithm in \(", "for algorithm in (FedPlain, ")
    edit(tmp_path / REGISTER, r'    "FedBuff",', '    "FedBuff",\n    "FedPlain",')
    where, line = block(CASES).splitlines()
    edit(tmp_path / CASES, r"(?m)^from offbeat\.algorithms import", "from offbeat.algorithms import FedPlain\n\\g<0>")
    edit(tmp_path / CASES, rf"(?m)^{re.escape(where.strip())}$", rf"\g<0>\n{line.removeprefix('+')}")
    return tmp_path


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_an_algorithm_is_one_file_and_one_test(copy):
    chosen = "fedplain or FedPlain or by_hand or out_of_range or every_algorithm"
    arguments = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen, TEST, *CONTRACT)
    passed = python(copy, "-m", "pytest", *arguments)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    number = int(re.search(r"(\d+) passed", passed.stdout)[1])
    assert number > 15  # 3 of its own, the rest under contract

    listed = python(copy, "-m", "offbeat", "algorithms")
    assert listed.returncode == 0, listed.stderr
    assert "fedplain" in listed.stdout
    assert "server_lr = 0.1" in listed.stdout

    styled = python(copy, "-m", "ruff", "check", ALGORITHM, TEST)
    assert styled.returncode == 0, styled.stdout

    # The test sees it if the code is wrong.
    edit(copy / ALGORITHM, "model - self.server_lr", "model + self.server_lr")
    failed = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST)
    assert failed.returncode == 1
    assert "test_arrivals_by_hand" in failed.stdout
