"""A server of this version resumes from folders of older releases; ``make_release_folder.py`` made them."""

import json
import shutil
from pathlib import Path

import pytest
from make_release_folder import export, join, serving

RELEASES = sorted(Path(__file__).parent.glob("release_*"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_an_older_folder_is_served_and_its_client_resumes(release, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(release, folder)
    identity = folder / "client/identity.json"
    saved = json.loads(identity.read_text())
    expected = json.loads((folder / "expected.json").read_text())
    with serving(folder) as url:
        identity.write_text(json.dumps(saved | {"server": url}))
        assert export(folder) == expected  # the calls after the checkpoint were replayed
        assert join(url, folder, 3) == 3
        assert export(folder)["version"] > expected["version"]
    with serving(folder):
        assert export(folder)["version"] > expected["version"]
    assert json.loads(identity.read_text())["client"] == saved["client"]


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_kept_folders_are_small(release):
    assert sum(path.stat().st_size for path in release.rglob("*") if path.is_file()) < 200_000
