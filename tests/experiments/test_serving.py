from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat.errors import OffbeatError
from offbeat.experiments.server_config import ServerFile, load
from offbeat.experiments.serving import limits_of, run_server

SERVER = """
local = { steps = 1, batch_size = 8, lr = 0.1 }
data.name = "digits"
model.name = "softmax"
[service]
folder = "run"
clients = 4
port = 0
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., ServerFile]:
    """Return a function that loads a server's file, with more lines."""

    def make(*lines: str) -> ServerFile:
        path = tmp_path / "server.toml"
        path.write_text("\n".join([SERVER, *lines]), encoding="utf-8")
        return load(path)

    return make


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[algorithm]", "algorithm = 'sequential_sgd'"], "sequential_sgd needs all data in one place"),
        (["[server]", "aggregate = 'krum'", "[algorithm]", "algorithm = 'fednova'"], "aggregate = 'krum' does not go"),
        (["[server]", "update_clip_norm = 1", "[algorithm]", "algorithm = 'fedasync'"], "update_clip_norm does not go"),
    ],
)
def test_what_a_server_cannot_run_is_one_line(
    lines: list[str], message: str, file: Callable[..., ServerFile], tmp_path: Path
) -> None:
    with pytest.raises(OffbeatError, match=rf"^algorithm: {message}") as caught:
        run_server(file(*lines), lambda _: pytest.fail("it listens"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_norm_of_updates_is_limited_by_either_section(file: Callable[..., ServerFile]) -> None:
    algorithm = ["[algorithm]", "algorithm = 'fedbuff'"]
    assert limits_of(file(*algorithm)).max_update_norm is None
    assert limits_of(file("max_update_norm = 2.0", *algorithm)).max_update_norm == 2
    assert (
        limits_of(file("max_update_norm = 2.0", "[server]", "max_update_norm = 1.0", *algorithm)).max_update_norm == 1
    )
