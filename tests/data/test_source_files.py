import dataclasses
import hashlib
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import MissingDataError
from offbeat.data.source_files import Source, cache_folder, data_folder

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
