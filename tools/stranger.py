"""The tutorial and a first server as a newcomer follows them, each step timed.

``make stranger``, or ``python tools/stranger.py [tutorial|service]``: builds the wheels, installs them into an empty
environment in ``build/stranger``, and carries out docs/tutorial.md from top to bottom in an empty folder: it writes the
files and runs the commands as they stand there. Runs go to MLflow, into a local database. Then it follows the README of
a new folder of the template ``service``, as ``stranger_service`` says. It ends at the first command that fails.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from stranger_service import Federation

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "stranger"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)


def timed(command: str, folder: Path, variables: dict[str, str]) -> float:
    """Run a command; print how long it took, and return that."""
    began = time.monotonic()
    done = subprocess.run(
        command, shell=True, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    seconds = time.monotonic() - began
    print(f"{seconds:7.1f} s  {command}", flush=True)
    if done.returncode:
        sys.exit(done.stdout.decode())
    return seconds


def install() -> tuple[dict[str, str], float]:
    """Install the wheels; return the environment's variables and the seconds."""
    # Left where they are, setuptools would pack modules that are no longer there.
    for stale in (BUILD, ROOT / "build/lib", ROOT / "packages/client/build"):
        shutil.rmtree(stale, ignore_errors=True)
    BUILD.mkdir(parents=True)
    venv.create(BUILD / "environment", with_pip=True)
    path = f"{BUILD / 'environment' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"PATH": path, "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    timed(f"python -m pip wheel --quiet --no-deps --wheel-dir {BUILD} {ROOT} {ROOT}/packages/client", BUILD, variables)
    wheels = " ".join(wheel.name for wheel in BUILD.glob("*.whl"))
    return variables, timed(f"python -m pip install --quiet {wheels}", BUILD, variables)


def follow_tutorial(variables: dict[str, str], total: float) -> None:
    """Follow the tutorial."""
    total += timed("python -m pip install --quiet mlflow", BUILD, variables)
    folder = BUILD
    for language, title, text in BLOCK.findall((ROOT / "docs/tutorial.md").read_text(encoding="utf-8")):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
        for command in COMMAND.findall(text) if language == "console" else ():
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
            else:
                total += timed(command, folder, variables)
    report = folder / "runs/experiment/report.html"
    print(f"{total:7.1f} s  from the wheel to {report.relative_to(ROOT)} and MLflow")


def follow_service(variables: dict[str, str], total: float) -> None:
    """Follow the README of a server with three sites."""
    total += timed("offbeat new trial --template service", BUILD, variables)
    with Federation(BUILD / "trial", variables) as federation:
        federation.follow()
    print(f"{total + federation.seconds:7.1f} s  from the wheel to a restored server")


def main() -> None:
    """Follow both, or one of them."""
    parts = {"tutorial": follow_tutorial, "service": follow_service}
    variables, seconds = install()
    for name in sys.argv[1:] or parts:
        parts[name](variables, seconds)


if __name__ == "__main__":
    main()
