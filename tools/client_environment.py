"""The size and import time of ``offbeat-client`` alone, from its wheel.

``python tools/client_environment.py WHEEL`` installs it into an empty environment in ``build/client``. It fails if the
environment has torch, or if the import takes 0.3 s or more.
"""

import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENT = Path(__file__).parents[1] / "build" / "client"
MOST_SECONDS = 0.3
MEASURE = """
import importlib.util, sys, time
began = time.perf_counter()
import offbeat_client
imported = time.perf_counter()
offbeat_client.run
print(imported - began, time.perf_counter() - imported)
sys.exit(importlib.util.find_spec("torch") is not None and "the environment has torch")
"""


def main(wheel: str) -> None:
    """Install the wheel, measure, and print a line."""
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    python = ENVIRONMENT / "bin" / "python"
    packages = next((ENVIRONMENT / "lib").glob("python*/site-packages"))
    before = _bytes(packages)
    subprocess.run([python, "-m", "pip", "install", "--quiet", Path(wheel).resolve()], check=True)
    size = (_bytes(packages) - before) / 1e6
    measured = [subprocess.run([python, "-c", MEASURE], check=True, stdout=subprocess.PIPE).stdout for _ in range(6)]
    seconds, more = (min(times) for times in zip(*(map(float, line.split()) for line in measured), strict=True))
    print(f"offbeat-client: {size:.0f} MB with its dependencies; the best of 6: import in {seconds:.2f} s")
    print(f"the modules that run needs are imported when it is first used, in {more:.2f} s")
    if seconds >= MOST_SECONDS:
        sys.exit(f"importing it must take less than {MOST_SECONDS} s")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(sys.argv[1])
