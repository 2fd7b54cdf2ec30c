import hashlib
import logging
import socket
import time

import pooch
import pytest

from offbeat.data import download as download_module
from offbeat.data.download import DownloadError, download


@pytest.fixture
def hashes(server):
    server.files = {"a.gz": b"a" * 200_000, "b.gz": b"bb"}
    return {name: hashlib.sha256(content).hexdigest() for name, content in server.files.items()}


@pytest.fixture(autouse=True)
def no_naps(monkeypatch):
    """Pooch sleeps between two attempts."""
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)


@pytest.fixture
def log():
    """Return pooch's log records; pooch's logger is not below the root logger."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    pooch.get_logger().addHandler(handler)
    yield records
    pooch.get_logger().removeHandler(handler)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "set"


def test_downloads_everything_with_a_bar_and_without_a_log(server, hashes, folder, capfd, log):
    level = pooch.get_logger().level
    download(server.url, hashes, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == server.files
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err
    assert log == []
    assert pooch.get_logger().level == level


def test_downloads_only_what_is_missing(server, hashes, folder):
    folder.mkdir(parents=True)
    (folder / "a.gz").write_bytes(server.files["a.gz"])
    download(server.url, hashes, folder)
    assert "GET a.gz" not in server.requests
    assert (folder / "b.gz").read_bytes() == b"bb"


def test_tries_again_when_the_connection_breaks(server, hashes, folder):
    server.break_off = 2
    download(server.url, hashes, folder)
    assert server.requests.count("GET a.gz") == 3
    assert (folder / "a.gz").read_bytes() == server.files["a.gz"]


def test_gives_up_when_the_connection_breaks_again_and_again(server, hashes, folder):
    server.break_off = 99
    with pytest.raises(DownloadError, match=r"a\.gz"):
        download(server.url, hashes, folder)
    assert server.requests == ["HEAD a.gz", "GET a.gz", "GET a.gz", "GET a.gz"]
    assert list(folder.iterdir()) == []


def test_refuses_a_corrupt_file_by_its_hash(server, hashes, folder):
    server.files["b.gz"] = b"bc"
    with pytest.raises(DownloadError, match=r"b\.gz has a wrong SHA-256$"):
        download(server.url, hashes, folder)
    assert [path.name for path in folder.iterdir()] == ["a.gz"]


def test_a_later_file_that_the_server_lacks(server, hashes, folder):
    del server.files["b.gz"]
    with pytest.raises(DownloadError, match=r"b\.gz.*HTTPError"):
        download(server.url, hashes, folder)


def test_a_server_without_the_files_is_asked_once(server, hashes, folder):
    server.files.clear()
    with pytest.raises(DownloadError, match=r"a\.gz cannot be reached"):
        download(server.url, hashes, folder)
    assert server.requests == ["HEAD a.gz"]


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1:1"])
def test_no_network_is_found_out_fast_and_quietly(hashes, folder, host, capfd, caplog, log):
    start = time.monotonic()
    with caplog.at_level(logging.INFO), pytest.raises(DownloadError, match="cannot be reached"):
        download(f"http://{host}/", hashes, folder)
    assert time.monotonic() - start < 9
    assert capfd.readouterr() == ("", "")
    assert caplog.records == log == []
    assert not folder.exists()


def test_a_silent_server_is_not_waited_for(hashes, folder, monkeypatch):
    monkeypatch.setattr(download_module, "_DEADLINE_SECONDS", 0.2)
    monkeypatch.setattr(download_module, "_CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        with pytest.raises(DownloadError, match="cannot be reached"):
            download(f"http://127.0.0.1:{silent.getsockname()[1]}/", hashes, folder)
        assert time.monotonic() - start < 0.9


def test_a_folder_that_cannot_be_made(server, hashes, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"file/set: (File exists|Not a directory)"):
        download(server.url, hashes, tmp_path / "file" / "set")
