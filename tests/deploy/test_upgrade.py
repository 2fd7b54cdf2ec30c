"""A server of this version resumes from folders of older releases; ``make_release_folder.py`` made them."""

import json
import shutil
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from make_release_folder import export, join
from offbeat_core.errors import OffbeatError

from offbeat.service.server.admin import live_status
from tests.e2e.private_service import Command
from tests.e2e.server_process import until

RELEASES = sorted(Path(__file__).parent.glob("release_*"))


@contextmanager
def serving(launcher, folder):
    """Run the server of a folder's file within the context; yield its address."""

    def is_live():
        with suppress(OffbeatError):
            return live_status(folder / "server")

    server = Command(launcher, folder, "log", "server", "start", "server.toml", "--set", "service.port=0")
    until(is_live)
    yield (folder / "server/url").read_text().strip()
    server.kill(signal.SIGTERM)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_an_older_folder_is_served_and_its_client_resumes(release, launcher, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(release, folder)
    identity = folder / "client/identity.json"
    saved = json.loads(identity.read_text())
    expected = json.loads((folder / "expected.json").read_text())
    with serving(launcher, folder) as url:
        identity.write_text(json.dumps(saved | {"server": url}))
        assert export(folder) == expected  # the calls after the checkpoint were replayed
        assert join(url, folder, 3) == 3
        assert export(folder)["version"] > expected["version"]
    with serving(launcher, folder):
        assert export(folder)["version"] > expected["version"]
    assert json.loads(identity.read_text())["client"] == saved["client"]


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_kept_folders_are_small(release):
    assert sum(path.stat().st_size for path in release.rglob("*") if path.is_file()) < 300_000
