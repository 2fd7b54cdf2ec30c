"""Date, machine and commit of a run, for its ``timing.json``."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path


def provenance() -> dict[str, str]:
    """Return the date, the machine and, in a folder of a Git repository, its commit."""
    return {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **_commit(Path.cwd())}


@cache
def machine() -> str:
    """Return the processor, the number of its cores and the system."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    processor = found[1] if found else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}"


@cache
def _commit(folder: Path) -> dict[str, str]:
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(git, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):  # without Git
        return {}
    return {} if done.returncode else {"commit": done.stdout.strip()}
