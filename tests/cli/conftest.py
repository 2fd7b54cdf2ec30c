import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Outcome = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def run_process() -> Callable[..., Outcome]:
    """Return a function that runs ``offbeat`` in a process; it returns exit code, output and errors."""

    def run(*arguments: str) -> Outcome:
        command = [sys.executable, "-W", "error", "-m", "offbeat", *arguments]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    return run
