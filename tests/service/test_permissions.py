"""Protection of a server's files and tokens from other users of the machine."""

import os
import signal
import stat

import pytest
from offbeat_core.errors import OffbeatError

from tests.e2e.server_process import Server, until
from tests.offbeat_command import offbeat_output
from tests.service.conftest import running

CLIENT = """
def make_client(number):
    return lambda model, visit: (model, 3)
"""


def modes(folder):
    """Return the permissions of a folder and of all in it that others have."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    }


@pytest.fixture
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="has other permissions")
@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_can_read_the_servers_files_and_no_token_is_printed(launcher, tmp_path):
    with Server(launcher, tmp_path, "algorithm = 'fedbuff'", length=6, clients=2) as server:
        server.file.write_text(server.file.read_text().replace("tls = false", "tls = true"))
        server.start()
        server.token("enrolment")
        until(lambda: f"--token-file {server.folder / 'enrolment-token'}" in server.log.read_text())
        assert (server.folder / "tls").exists()
        assert (server.folder / "offbeat.sqlite-wal").exists()
        assert modes(server.folder) == {}
        assert server.kill(signal.SIGTERM) == 0
        assert "obe_" not in server.log.read_text()
    assert modes(server.folder) == {}


def test_a_client_joins_with_the_file_of_a_token(tmp_path):
    (tmp_path / "client.py").write_text(CLIENT)
    with running(tmp_path / "server") as server:

        def join(*options):
            common = ["--client", tmp_path / "client.py:make_client", "--folder", tmp_path / "client", "--visits", 1]
            return offbeat_output("join", server.url, *common, *options)

        token = tmp_path / "server" / "enrolment-token"
        with pytest.raises(OffbeatError, match="not both"):
            join("--token-file", token, "--token", "obe_1")
        with pytest.raises(OffbeatError, match=r"cannot read the token in .*: copy enrolment-token"):
            join("--token-file", tmp_path / "missing")
        assert join("--token-file", token).endswith("Done: 1 update counted since this process started\n")
