"""The server's files can be read by their owner only."""

import os
import stat
import subprocess
import sys
import time

import pytest

from offbeat.service.store.backup import back_up
from tests.e2e.server_process import MODEL, SERVER, free_port
from tests.service.conftest import running

pytestmark = pytest.mark.skipif(os.name == "nt", reason="has other permissions")


def modes(folder):
    """Return the permissions of all that is in a folder, and of itself, that others have."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    }


@pytest.mark.parametrize("tls", ["true", "false"])
def test_only_the_owner_can_read_the_servers_files(tls, tmp_path):
    (tmp_path / "own_model.py").write_text(MODEL)
    file, folder = tmp_path / "server.toml", tmp_path / "server"
    values = {"folder": "server", "port": free_port(), "length": 6, "clients": 2, "server": ""}
    text = SERVER.format(algorithm="algorithm = 'fedbuff'", **values)
    file.write_text(text.replace("tls = false", f"tls = {tls}"))
    process = subprocess.Popen(
        [sys.executable, "-m", "offbeat", "serve", str(file)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.umask(0o022),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Listening")
        time.sleep(0.5)
        assert (folder / "tls").exists() is (tls == "true")
        assert (folder / "offbeat.sqlite-wal").exists()
        assert modes(folder) == {}
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert modes(folder) == {}


def test_a_folder_that_others_can_read_is_mended_at_the_start(tmp_path):
    folder = tmp_path / "server"
    with running(folder) as server:
        server.enrol().check_in()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    outside = tmp_path / "outside"
    outside.write_text("of the user")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    with running(folder):
        pass
    assert {name: mode for name, mode in modes(folder).items() if name != "link"} == {}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_copy_is_closed_to_others(tmp_path):
    with running(tmp_path / "server"):
        back_up(tmp_path / "server", tmp_path / "copies" / "monday")
    assert stat.S_IMODE((tmp_path / "copies" / "monday").stat().st_mode) == 0o700
