import os
import stat
import threading

import pytest
from filelock import FileLock
from offbeat_core.errors import OffbeatError

from offbeat.service.store.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "server")
    yield opened
    opened.close()


def test_one_server_uses_a_folder_at_a_time(store):
    assert {path.name for path in store.folder.iterdir()} >= {"checkpoints", "models", "updates", "partial"}
    with pytest.raises(OffbeatError, match="in use by another server"):
        Store(store.folder)
    store.close()
    Store(store.folder).close()


def test_a_server_starts_although_a_command_looks_whether_one_runs(store):
    store.close()
    lock = FileLock(store.folder / "server.lock", thread_local=False)
    lock.acquire()
    looks = threading.Timer(0.1, lock.release)
    looks.start()
    Store(store.folder).close()
    looks.join()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match=r"cannot use the folder .*file"):
        Store(tmp_path / "file")


@pytest.mark.skipif(os.name == "nt", reason="has other permissions")
def test_a_folder_that_others_can_read_is_closed_to_them(store, tmp_path):
    store.close()
    outside = tmp_path / "outside"
    outside.touch()
    (store.folder / "link").symlink_to(outside)
    files = [path for path in (store.folder, *store.folder.rglob("*")) if not path.is_symlink()]
    for path in (outside, *files):
        path.chmod(0o755 if path.is_dir() else 0o644)
    Store(store.folder).close()
    assert {path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077} == set()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
