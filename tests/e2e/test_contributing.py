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
FOLDERS = ("src", "tests", "tools", "docs", "experiments", "papers")


def block(title):
    found = re.findall(rf'^ *```\w+ title="{re.escape(title)}"\n(.*?)^ *```', PAGE.read_text("utf-8"), re.S | re.M)
    assert len(found) == 1, f"{title} must be on the page once"
    return textwrap.dedent(found[0])


def run(folder, *command):
    # Below the make that runs the tests, the recipe's make would print its folders.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    environment = {**inherited, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def passes(folder, *arguments):
    done = run(folder, sys.executable, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of the checkout in which the recipe was followed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "Makefile", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    # The environment is there, and is used as it is.
    (folder / ".venv").symlink_to(sys.prefix)
    os.utime(folder / "pyproject.toml", (0, 0))

    (command, shown) = re.search(
        r"^ *\$ (make algorithm [^\n]*)\n(.*?)^ *```", PAGE.read_text("utf-8"), re.S | re.M
    ).groups()
    made = run(folder, *command.split())
    assert made.returncode == 0, made.stderr
    assert made.stdout == textwrap.dedent(shown)
    return folder


def test_the_skeleton_passes_and_then_the_recipe_does(copy):
    passes(copy, "-m", "ruff", "check")
    passes(copy, "-m", "ruff", "format", "--check")
    passes(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST)

    (copy / ALGORITHM).write_text(block(ALGORITHM), "utf-8")
    (copy / TEST).write_text(block(TEST), "utf-8")
    passes(copy, "-m", "ruff", "check")
    passes(copy, "-m", "ruff", "format", "--check")
    passes(copy, "tools/algorithms.py", "exports")
    passes(copy, "docs/make_reference.py")
    assert "`server_lr = 0.1`" in next(
        line for line in (copy / "docs/reference.md").read_text("utf-8").splitlines() if line.startswith("| `fedplain`")
    )
    passes(
        copy, "-c", "from offbeat.testing import *; from offbeat.algorithms import FedPlain; check_algorithm(FedPlain)"
    )
    assert "fedplain: no page, docs/algorithms/fedplain.md" in passes(copy, "tools/algorithms.py", "missing")

    listed = passes(copy, "-m", "offbeat", "algorithms")
    assert "fedplain" in listed
    assert "server_lr = 0.1" in listed


def test_all_tests_of_algorithms_pass_with_it(copy):
    (copy / ALGORITHM).write_text(block(ALGORITHM), "utf-8")
    (copy / TEST).write_text(block(TEST), "utf-8")
    passed = passes(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "tests/algorithms")
    assert int(re.search(r"(\d+) passed", passed)[1]) > 1000

    # The test sees it if the code is wrong.
    text = (copy / ALGORITHM).read_text("utf-8")
    (copy / ALGORITHM).write_text(text.replace("model - self", "model + self"), "utf-8")
    failed = run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST)
    assert failed.returncode == 1
    assert "test_arrivals_by_hand" in failed.stdout
    (copy / ALGORITHM).write_text(text, "utf-8")


def test_a_class_that_is_not_re_exported_fails_the_lint(copy):
    package = copy / "src/offbeat/algorithms/__init__.py"
    text = package.read_text("utf-8")
    package.write_text(text.replace("from offbeat.algorithms.fedplain import FedPlain\n", ""), "utf-8")
    done = run(copy, sys.executable, "tools/algorithms.py", "exports")
    package.write_text(text, "utf-8")
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "does not re-export FedPlain" in done.stdout
