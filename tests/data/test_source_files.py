import dataclasses
import hashlib
import logging
import socket
import time
from pathlib import Path

import pooch
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data import source_files
from offbeat.data.dataset import MissingDataError
from offbeat.data.source_files import DownloadError, Source, cache_folder, data_folder, download

CONTENT = {"a.gz": b"aaaa", "b.gz": b"bbb"}


@pytest.fixture
def source(nowhere: Path) -> Source:
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    return Source("letters", "The letters", "http://127.0.0.1:1/", hashes, "all.zip", nowhere / "debian")


def put(folder: Path, *names: str) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(CONTENT.get(name, b"c"))
    return tuple(folder / name for name in names)


def test_the_order_of_places(source, nowhere, monkeypatch):
    """Each place that is added goes before those that were there."""
    monkeypatch.setenv("OFFBEAT_DATA", str(nowhere / "data"))
    (nowhere / "data").mkdir()
    for place in [("debian",), ("cache", "letters"), ("data",), ("data", "letters")]:
        paths = put(nowhere.joinpath(*place), "a.gz", "b.gz")
        assert source.find() == paths
        assert source.get() == paths  # there is nothing to download from


def test_the_alternative_replaces_missing_files(source, nowhere, monkeypatch):
    put(nowhere / "debian", "a.gz", "b.gz")
    alternative = put(nowhere / "cache" / "letters", "all.zip")
    assert source.find() == alternative
    files = put(nowhere / "cache" / "letters", "a.gz", "b.gz")
    assert source.find() == files
    monkeypatch.setenv("OFFBEAT_DATA", str(nowhere / "data"))
    mine = put(nowhere / "data", "all.zip")
    assert source.find() == mine


def test_missing_files_are_downloaded_into_the_cache(source, nowhere, server):
    server.files = CONTENT
    cache = nowhere / "cache" / "letters"
    source = dataclasses.replace(source, base_url=server.url)
    assert source.find() is None
    assert server.requests == []
    assert source.get() == (cache / "a.gz", cache / "b.gz")
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == CONTENT
    assert server.requests == ["HEAD a.gz", "GET a.gz", "GET b.gz"]
    assert source.get() == (cache / "a.gz", cache / "b.gz")
    assert len(server.requests) == 3, "the second time, the cache is enough"


def test_the_error_says_where_to_get_the_files(source, nowhere, monkeypatch):
    monkeypatch.setenv("OFFBEAT_DATA", str(nowhere))
    expected = (
        rf"The letters is not here, nor in OFFBEAT_DATA={nowhere}, .*\(http://127.0.0.1:1/.*a.gz and b.gz, or all.zip, "
        "or apt install dataset-letters, or get online"
    )
    with pytest.raises(MissingDataError, match=expected):
        source.get()


def test_no_debian_package_is_named_where_there_is_none(nowhere):
    with pytest.raises(MissingDataError, match=r"^((?!apt).)*$"):
        Source("letters", "The letters", "http://127.0.0.1:1/", {"a.gz": ""}).get()


def test_an_unset_and_an_empty_variable_are_alike(source, nowhere, monkeypatch):
    paths = put(nowhere / "debian", "a.gz", "b.gz")
    put(nowhere / "here", "a.gz", "b.gz")
    monkeypatch.setenv("OFFBEAT_DATA", "")
    monkeypatch.chdir(nowhere / "here")
    assert data_folder() is None
    assert source.find() == paths


@pytest.mark.parametrize("name", ["none", "file"])
def test_offbeat_data_is_not_a_folder(source, nowhere, monkeypatch, name):
    put(nowhere / "debian", "a.gz", "b.gz")
    (nowhere / "file").write_text("")
    monkeypatch.setenv("OFFBEAT_DATA", str(nowhere / name))
    with pytest.raises(OffbeatError, match=rf"OFFBEAT_DATA is '.*{name}', which is not a folder"):
        source.find()


@pytest.mark.parametrize("folder", ["data", "data/letters"])
def test_part_of_the_files_in_offbeat_data(source, nowhere, monkeypatch, folder):
    put(nowhere / "debian", "a.gz", "b.gz")
    put(nowhere / folder, "a.gz")
    monkeypatch.setenv("OFFBEAT_DATA", str(nowhere / "data"))
    with pytest.raises(OffbeatError, match=rf"{folder} holds only part of The letters: add b\.gz$"):
        source.find()


def test_a_download_that_was_interrupted_hides_nothing(source, nowhere):
    paths = put(nowhere / "debian", "a.gz", "b.gz")
    put(nowhere / "cache" / "letters", "a.gz")
    assert source.find() == paths


def test_without_a_variable_the_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("OFFBEAT_CACHE", raising=False)
    assert cache_folder().name == "offbeat"
    monkeypatch.setenv("OFFBEAT_CACHE", "~/x")
    assert cache_folder() == Path.home() / "x"


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
    monkeypatch.setattr(source_files, "_DEADLINE_SECONDS", 0.2)
    monkeypatch.setattr(source_files, "_CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        with pytest.raises(DownloadError, match="cannot be reached"):
            download(f"http://127.0.0.1:{silent.getsockname()[1]}/", hashes, folder)
        assert time.monotonic() - start < 0.9


def test_a_folder_that_cannot_be_made(server, hashes, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"file/set: (File exists|Not a directory)"):
        download(server.url, hashes, tmp_path / "file" / "set")
