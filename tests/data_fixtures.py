"""A real HTTP server on this machine, small idx files, and where the real data are."""

import gzip
import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray


@dataclass
class Server:
    """A server's files, and the requests that it got."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_off: int = 0  # how many of the next GETs to answer with half the file
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            state.requests.append(f"{self.command} {self.path[1:]}")
            body = state.files.get(self.path[1:])
            self.send_response(404 if body is None else 200)
            body = body or b""
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                if state.break_off:
                    state.break_off -= 1
                    body = body[: len(body) // 2]
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_port}/"
        yield state
        http.shutdown()
        thread.join()


@dataclass
class IdxFile:
    """An idx file: its elements, its content, and the SHA-256 of the content."""

    elements: NDArray[np.uint8]
    content: bytes
    sha256: str

    @property
    def compressed(self) -> bytes:
        return gzip.compress(self.content)

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.compressed)
        return path


@pytest.fixture
def make_idx() -> Callable[[NDArray[np.uint8]], IdxFile]:
    def make(elements: NDArray[np.uint8]) -> IdxFile:
        header = struct.pack(f">HBB{elements.ndim}I", 0, 8, elements.ndim, *elements.shape)
        content = header + elements.tobytes()
        return IdxFile(elements, content, hashlib.sha256(content).hexdigest())

    return make


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder; the cache is ``cache`` in it, and there is no ``$OFFBEAT_DATA``."""
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OFFBEAT_DATA", raising=False)
    return tmp_path


@pytest.fixture
def small_images(make_idx: Callable[[NDArray[np.uint8]], IdxFile]) -> dict[str, IdxFile]:
    """Small files in place of MNIST's or Fashion-MNIST's: 20 pictures to train on, 10 to test."""
    random = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte.gz": make_idx(random.integers(0, 256, (20, 28, 28), np.uint8)),
        "train-labels-idx1-ubyte.gz": make_idx(random.integers(0, 10, 20, np.uint8)),
        "t10k-images-idx3-ubyte.gz": make_idx(random.integers(0, 256, (10, 28, 28), np.uint8)),
        "t10k-labels-idx1-ubyte.gz": make_idx(random.integers(0, 10, 10, np.uint8)),
    }


@pytest.fixture
def real_data() -> Callable[..., Path]:
    """Return a function for the folder under ``$OFFBEAT_DATA`` that has a data set's files; it skips without it."""

    def find(name: str, *files: str) -> Path:
        root = os.environ.get("OFFBEAT_DATA")
        if not root:
            pytest.skip(f"OFFBEAT_DATA is not set: no real {name} to check")
        for folder in (Path(root) / name, Path(root)):
            if all((folder / file).is_file() for file in files):
                return folder
        pytest.skip(f"OFFBEAT_DATA holds no {name} to check")

    return find
