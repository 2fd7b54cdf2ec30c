import errno
import os
import ssl
import stat
from pathlib import Path

import pytest
from offbeat_client.client_folder.outbox import Kept
from offbeat_core.errors import OffbeatError
from offbeat_core.files import (
    append_durably,
    durable_file,
    files_in,
    partial_path,
    read_json,
    read_table,
    read_text,
    remove_durably,
    write_durably,
    write_json,
)
from offbeat_core.http.tls import trust


@pytest.fixture
def happened(monkeypatch):
    """Return a list of all syncs, renames and removals from now on, each with its path's name."""
    calls = []
    fsync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def sync(descriptor):
        calls.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def rename(path, target):
        calls.append(("rename", path.name))
        return replace(path, target)

    def remove(path, missing_ok=False):
        calls.append(("remove", path.name))
        unlink(path, missing_ok)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, sync)
    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr(Path, "unlink", remove)
    return calls


def test_a_written_file_is_complete_and_its_partial_file_gone(tmp_path, happened):
    write_durably(tmp_path / "x", b"old")
    partial_path(tmp_path / "x").write_bytes(b"left by a kill, and longer than the content")
    happened.clear()
    write_durably(tmp_path / "x", b"new")
    steps = [(step, ".x.partial") for step in ("remove", "sync", "rename")]
    assert happened == [*steps, ("sync", tmp_path.name)]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"new"}


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_after_an_error_the_old_content_stays(tmp_path, error):
    write_durably(tmp_path / "x", b"old")

    def write():
        with durable_file(tmp_path / "x") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_a_secret_has_its_permissions_from_the_beginning(tmp_path):
    partial_path(tmp_path / "x").touch(0o644)
    with durable_file(tmp_path / "x", mode=0o600):
        assert stat.S_IMODE(partial_path(tmp_path / "x").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_what_is_appended_is_on_disk_and_so_is_the_name_of_a_new_file(tmp_path, happened):
    for content in (b"one", b"two"):
        append_durably(tmp_path / "x", content)
    assert (tmp_path / "x").read_bytes() == b"onetwo"
    assert happened == [("sync", "x"), ("sync", tmp_path.name), ("sync", "x")]


def test_a_removal_is_on_disk_also_of_a_file_that_does_not_exist(tmp_path, happened):
    (tmp_path / "x").touch()
    for _ in range(2):
        remove_durably(tmp_path / "x")
    assert happened == [("remove", "x"), ("sync", tmp_path.name)] * 2
    assert list(tmp_path.iterdir()) == []


def write(path: Path, text: str, encoding: str) -> Path:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8", "\r\n"), ("utf-8-sig", "\n"), ("utf-16", "\r\n"), ("utf-16-be", "\n")]
)
def test_a_text_a_table_and_certificates(
    encoding: str, end: str, tmp_path: Path, tls_server: tuple[object, Path]
) -> None:
    assert read_text(write(tmp_path / "token", f"obe_é{end}", encoding)) == f"obe_é{end}"
    table = write(tmp_path / "table.toml", f'[[clients]]{end}name = "Ä"{end}', encoding)
    assert read_table(table) == {"clients": [{"name": "Ä"}]}
    _, ca = tls_server
    pem = "# Zürich" + end + ca.read_text(encoding="ascii").replace("\n", end)
    found = trust(write(tmp_path / "ca.pem", pem, encoding), "--ca").get_ca_certs()
    assert found == ssl.create_default_context(cafile=ca).get_ca_certs() != []


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\x80\x81")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "key")


def test_a_value_comes_back_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "x"
    assert read_json(path, dict) is None
    for value in ({"since": 1, "memory": None}, {}):
        write_json(path, value)
        assert read_json(path, dict) == value
        assert read_json(path, Kept) == Kept(**value)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff", b'{"other": 1}'])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"x is broken: remove it$"):
        read_json(tmp_path / "x", Kept)


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path, monkeypatch):
    for name in ("1.bin", "2.txt", ".3.bin"):
        (tmp_path / name).touch()
    assert {path.name for path in files_in(tmp_path, "*.bin")} == {"1.bin", ".3.bin"}
    assert files_in(tmp_path / "nothing", "*") == []

    def fails(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "iterdir", fails)
    with pytest.raises(OSError, match="Too many open files"):
        files_in(tmp_path, "*.bin")
