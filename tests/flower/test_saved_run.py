import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.flower.saved_run import SavedRun

SETTINGS = {"algorithm": {"name": "fedbuff", "buffer_size": 3}, "clients": 2, "model": {"w": (2,)}}


def test_a_run_comes_back(tmp_path):
    with SavedRun(tmp_path / "run", SETTINGS) as saved:
        assert saved.read() is None
        saved.write({"model": torch.arange(2.0), "now": 1.5})
    with SavedRun(tmp_path / "run", SETTINGS) as saved:
        state = saved.read()
    assert (state["model"].tolist(), state["now"]) == ([0, 1], 1.5)


def test_a_folder_is_for_one_run_with_the_same_settings(tmp_path):
    with SavedRun(tmp_path, SETTINGS), pytest.raises(OffbeatError, match="another ServerApp is at work"):
        SavedRun(tmp_path, SETTINGS).__enter__()
    with pytest.raises(OffbeatError, match="has a run with clients = 2, now it is 3: set it back"):
        SavedRun(tmp_path, {**SETTINGS, "clients": 3}).__enter__()
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(OffbeatError, match=r"settings.json is broken: take another folder"):
        SavedRun(tmp_path, SETTINGS).__enter__()
    (tmp_path / "settings.json").unlink()
    with SavedRun(tmp_path, SETTINGS):
        pass


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match=r"cannot use .*file"):
        SavedRun(tmp_path / "file" / "run", SETTINGS).__enter__()
