"""The recipe for a new algorithm works as written, in a copy of the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contributing.md").read_text("utf-8")
ALGORITHM, TEST = "src/offbeat/algorithms/fedplain.py", "tests/algorithms/test_fedplain.py"
FOLDERS = ("src", "tests", "tools", "docs", "experiments", "packages")

# In one process, since each would import torch.
STEPS = """
import runpy, sys

check = sys.argv[1]

def script(path, *arguments):
    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        assert not error.code

script("tools/algorithms.py", "exports")
script("docs/make_reference.py")
exec(check)
script("tools/algorithms.py", "missing")
from offbeat.cli.main import main
sys.argv = ["offbeat", "algorithms"]
main()
"""


# Runs pytest for each line of arguments, in a fork, since only the first would have to import torch.
TESTER = """
import json, os, sys
import pytest, torch

for line in sys.stdin:
    child = os.fork()
    if not child:
        output = os.open("tested.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = pytest.main(["-q", "-p", "no:cacheprovider", *json.loads(line)])
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def block(title):
    found = re.findall(rf'^ *```\w+ title="{re.escape(title)}"\n(.*?)^ *```', PAGE, re.S | re.M)
    assert len(found) == 1, f"{title} must be on the page once"
    return textwrap.dedent(found[0])


def environment(folder):
    # Below the make that runs the tests, the recipe's make would print its folders.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    return {**inherited, "PYTHONPATH": f"{folder}/src{os.pathsep}{folder}/packages/client"}


def run(folder, *command):
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def passes(folder, *arguments):
    done = run(folder, sys.executable, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def tested(copy):
    """Return a function that runs pytest in the copy; it returns exit code and output."""
    with subprocess.Popen(
        [sys.executable, "-c", TESTER], cwd=copy, env=environment(copy), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as tester:  # fmt: skip

        def run(*arguments):
            print(json.dumps(arguments), file=tester.stdin, flush=True)
            code = int(tester.stdout.readline())
            return code, (copy / "tested.txt").read_text("utf-8")

        yield run
        tester.stdin.close()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of the checkout, with an environment that is ready."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (folder / "studies").mkdir(exist_ok=True)
    for name in ("pyproject.toml", "Makefile", "CHANGELOG.md", "studies/pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("pyproject.toml", "packages/client/pyproject.toml", "studies/pyproject.toml"):
        os.utime(folder / name, (0, 0))
    return folder


def test_every_folder_has_its_place_in_the_table():
    rows = "".join(line for line in PAGE.splitlines() if (line.startswith("| `") and "/` |" in line) or "/`, `" in line)
    for package in ("src/offbeat", "packages/client"):
        for path in (ROOT / package).glob("*/__init__.py"):
            assert f"`{path.parent.name}/`" in rows, path.parent
    service = next(line for line in PAGE.splitlines() if line.startswith("| `service/`"))
    for path in (ROOT / "src/offbeat/service").glob("*/__init__.py"):
        assert f"`{path.parent.name}/`" in service, path.parent


@pytest.mark.long
def test_the_skeleton_and_then_the_recipe_pass(copy, tested):
    command, shown = re.search(r"^ *\$ (make algorithm [^\n]*)\n(.*?)^ *```", PAGE, re.S | re.M).groups()
    made = run(copy, *command.split())
    assert made.returncode == 0, made.stderr
    assert made.stdout == textwrap.dedent(shown)
    passes(copy, "-m", "ruff", "check")
    passes(copy, "-m", "ruff", "format", "--check")
    code, output = tested(TEST)
    assert code == 0, output

    (copy / ALGORITHM).write_text(block(ALGORITHM), "utf-8")
    (copy / TEST).write_text(block(TEST), "utf-8")
    passes(copy, "-m", "ruff", "check")
    passes(copy, "-m", "ruff", "format", "--check")
    # With the contract tests, whose ids name the algorithm.
    code, passed = tested("-k", "fedplain", "tests/algorithms")
    assert code == 0, passed
    assert int(re.search(r"(\d+) passed", passed)[1]) > 15

    (check,) = re.findall(r'`python -c "(.*?)"`', PAGE)
    listed = passes(copy, "-c", STEPS, check)
    assert "fedplain: no page, docs/algorithms/fedplain.md" in listed
    assert "server_lr = 0.1" in listed.partition("fedplain  ")[2]
    reference = (copy / "docs/reference.md").read_text("utf-8")
    (row,) = (line for line in reference.splitlines() if line.startswith("| `fedplain`"))
    assert "`server_lr = 0.1`" in row

    # The test notices a wrong formula.
    (copy / ALGORITHM).write_text(block(ALGORITHM).replace("model - self", "model + self"), "utf-8")
    code, failed = tested(TEST)
    assert code == 1
    assert "test_arrivals_by_hand" in failed
