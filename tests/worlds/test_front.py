"""A front from a server's file."""

from pathlib import Path

import pytest
from filelock import FileLock
from offbeat_core.errors import OffbeatError

from offbeat.config.server_file import load
from offbeat.worlds.front import run_front

FILE = """
[service]
folder = "server"
clients = 3
tls = false

[store]
log = "postgresql://localhost/offbeat"
blobs = "file:///blobs"

[fronts]
leaders = ["localhost:8444"]
ca = "ca.pem"
certificate = "one.pem"
key = "one.key"

[model]
name = "softmax"

[data]
name = "digits"

[local]
steps = 1
batch_size = 1
lr = 0.1

[algorithm]
algorithm = "fedbuff"
"""


def test_two_fronts_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(FILE)
    (tmp_path / "server" / "front").mkdir(parents=True)
    with (
        FileLock(tmp_path / "server" / "front" / "front.lock", is_singleton=False),
        pytest.raises(OffbeatError, match="in use by another front"),
    ):
        run_front(load(tmp_path / "server.toml", []), lambda: None)


def test_a_front_without_its_certificate_ends_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(FILE)
    with pytest.raises(OffbeatError, match=r"^cannot use .*one\.pem, its key or .*ca\.pem: .*make or copy them again$"):
        run_front(load(tmp_path / "server.toml", ["service.port=0"]), lambda: None)
