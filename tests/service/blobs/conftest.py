from collections.abc import Callable, Generator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from offbeat.service.blobs.blobs import Blobs
from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.blobs.object_blobs import ObjectBlobs
from offbeat.service.blobs.open_blobs import open_blobs
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.object_store import object_store as object_store

REQUEST_SECONDS = 1.0
MEBIBYTE = 1 << 20

OpenObjects = Callable[..., ObjectBlobs]


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def at(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let the environment name this store."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def open_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenObjects:
    """Open blobs at an address, in a prefix of the test's own."""

    def opened(address: str, cache_bytes: int = 1 << 30, seconds: float = 30, folder: str = "local") -> ObjectBlobs:
        at(monkeypatch, address)
        prefix = f"{tmp_path.parent.name}-{tmp_path.name}".replace("_", "-").lower()
        blobs = open_blobs(f"s3://offbeat/{prefix}", tmp_path / folder, cache_bytes, seconds)
        assert isinstance(blobs, ObjectBlobs)
        return blobs

    return opened


@pytest.fixture(params=["folder", "objects"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return FolderBlobs(tmp_path / "blobs")
    return request.getfixturevalue("open_objects")(request.getfixturevalue("object_store"))


@pytest.fixture
def proxy(object_store: str) -> Generator[FaultProxy]:
    httpx.put(f"{object_store}/offbeat/first", content=b"x", timeout=60, verify=False)  # which takes long
    with fault_proxy(object_store) as proxy:
        yield proxy
