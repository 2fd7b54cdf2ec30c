"""Changes that concern the tests of studies/."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "src/offbeat/__init__.py": "",
    "src/offbeat/used.py": "def f():\n    from offbeat.cli.main import app",
    "src/offbeat/deep.py": "",
    "src/offbeat/cli/main.py": "import offbeat.service",
    "src/offbeat/service.py": "",
    "packages/client/offbeat_core/errors.py": "",
    "studies/offbeat_studies/one.py": "from offbeat import used",
    "studies/tests/test_one.py": "import tests.helper",
    "tests/helper.py": "from offbeat_core.errors import OffbeatError\nimport offbeat.deep as deep",
    "tests/test_service.py": "",
    "docs/results/index.md": "",
    "docs/index.md": "",
}


@pytest.fixture
def git(tmp_path):
    """Return a function that calls git in a small checkout with one commit on ``main``."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for tool in ("check.py", "studies_due.py"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / tool).write_bytes((ROOT / "tools" / tool).read_bytes())

    def call(*arguments):
        identity = ("-c", "user.name=n", "-c", "user.email=e@localhost")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    call("init", "--initial-branch", "main")
    call("add", ".")
    call("commit", "--message", "first")
    return call


@pytest.fixture
def due(git, tmp_path):
    """Return a function that returns whether the tests are due after a commit that changes a file."""

    def after(name):
        (tmp_path / name).write_text("changed = 1\n")
        git("add", ".")
        git("commit", "--message", name)
        return run(tmp_path)

    return after


def run(folder):
    command = [sys.executable, "tools/studies_due.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0, done.stdout


def test_what_studies_import_concerns_them_and_other_files_do_not(due):
    """On ``main`` only the last commit counts."""
    for name in ("src/offbeat/service.py", "tests/test_service.py", "docs/index.md"):
        assert due(name) == (False, "tests of studies/: nothing has changed\n")
    concerned = [
        "src/offbeat/__init__.py",
        "src/offbeat/used.py",
        "src/offbeat/deep.py",
        "packages/client/offbeat_core/errors.py",
        "studies/offbeat_studies/one.py",
        "studies/offbeat_studies/new.toml",
        "tests/helper.py",
        "docs/results/index.md",
    ]
    for name in concerned:
        assert due(name) == (True, f"tests of studies/: due, since {name} has changed\n")


def test_all_commits_of_a_branch_count(git, due):
    git("switch", "--create", "branch")
    assert due("src/offbeat/used.py")[0]
    assert due("src/offbeat/service.py")[0]


def test_a_clone_without_the_commit_before_runs_them(git, tmp_path):
    assert run(tmp_path) == (True, "tests of studies/: due, since there is no commit HEAD^\n")
