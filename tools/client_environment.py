"""The size and import time of ``offbeat-client`` alone, from its wheel.

``python tools/client_environment.py WHEEL`` installs it into an empty environment in ``build/client``, then with the
extra ``helper``, where it enrols and serves a helper. It fails if the environment has torch, if the import takes 0.3 s
or more, or if the helper does not serve.
"""

import re
import ssl
import subprocess
import sys
import tempfile
import urllib.request
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
NO_TORCH = "import importlib.util as i, sys; sys.exit(i.find_spec('torch') is not None and 'the environment has torch')"
KEY = """
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_private.masks.signing_key import public_text
print(public_text(Ed25519PrivateKey.generate()))
"""
TERMS = """[terms]
length = 6
buffer = 2
min_clients = 2
clip_norm = 1.0
noise_multiplier = 3.0
max_participations = 10
delta = 1e-6

[local]
steps = 10
batch_size = 32
lr = 0.1

[clients]
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
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{Path(wheel).resolve()}[helper]"], check=True)
    subprocess.run([python, "-c", NO_TORCH], check=True)
    _serve_a_helper()
    print(f"offbeat-client[helper]: {(_bytes(packages) - before) / 1e6:.0f} MB; a helper was enrolled and served")


def _serve_a_helper() -> None:
    """Enrol a helper, serve it, and ask it whether it is alive."""
    program = ENVIRONMENT / "bin" / "offbeat-helper"
    subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
    keys = [subprocess.check_output([ENVIRONMENT / "bin" / "python", "-c", KEY], text=True).strip() for _ in range(2)]
    with tempfile.TemporaryDirectory() as name:
        folder, roster = Path(name, "helper"), Path(name, "roster.toml")
        roster.write_text(TERMS + "".join(f'client-{number} = "{key}"\n' for number, key in enumerate(keys)))
        subprocess.run([program, "enrol", roster, "--folder", folder], check=True, stdout=subprocess.DEVNULL)
        command = [program, "serve", "--folder", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as helper:
            try:
                assert helper.stdout is not None
                line = helper.stdout.readline()
                url = re.fullmatch(r"Listening at (https://\S+)\n", line)
                if url is None:
                    sys.exit(f"the helper does not serve: {line}")
                trusted = ssl.create_default_context(cafile=folder / "tls" / "ca.pem")
                urllib.request.urlopen(f"{url[1]}/healthz", timeout=10, context=trusted).close()
            finally:
                helper.terminate()
                helper.communicate(timeout=60)
        if helper.returncode:
            sys.exit(f"the helper ended with {helper.returncode}")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(sys.argv[1])
