"""Date, machine and commit of a finished run."""

import os
import subprocess
from datetime import UTC, datetime, timedelta

from offbeat.runs.provenance import provenance


def test_date_and_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = provenance()
    assert abs(datetime.fromisoformat(found["finished"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert f"{os.cpu_count()} cores" in found["machine"]
    assert "commit" not in found  # not a repository


def test_the_commit_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert provenance()["commit"] == head[:12]
