"""Attacks on the audit log in a server's folder, each of which a check finds."""

import hashlib
import json
import sqlite3
from contextlib import closing

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.audit.verification import LogHead, entries, read_heads, verify
from offbeat.service.log.open_log import open_log, sqlite_url

KINDS = ("server started", "token made", "client enrolled", "client revoked", "server stopped")


def write(folder, kinds):
    """Write a chain by the rule in the protocol's page; return its heads."""
    digest, heads = bytes(32), []
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database, database:
        for number, kind in enumerate(kinds, start=1):
            text = json.dumps({"number": number, "at": "2026-01-01T00:00:00+00:00", "kind": kind})
            digest = hashlib.sha256(digest + text.encode()).digest()
            heads.append(LogHead(number, digest.hex()))
            columns = "run, number, epoch, owner, name, arguments, entry, head"
            row = ("", number, 1, "audit", "report", "{}", text, digest.hex())
            database.execute(f"INSERT INTO log ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return heads


def change(folder, *statements):
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database, database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0


@pytest.fixture
def folder(tmp_path):
    open_log(sqlite_url(tmp_path / "offbeat.sqlite")).close()
    return tmp_path


@pytest.fixture
def heads(folder):
    return write(folder, KINDS)


def test_an_untouched_chain_agrees_with_all_heads(folder, heads):
    assert verify(folder) == heads[-1]
    assert verify(folder, [heads[3], heads[0], *heads]) == heads[-1]
    assert [entry["kind"] for entry in entries(folder)] == list(KINDS)


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("column", ["entry", "head"])
def test_a_changed_byte_is_found(folder, heads, number, column):
    change(folder, f"UPDATE log SET {column} = substr({column}, 1, 20) || 'x' || substr({column}, 22) "
                   f"WHERE number = {number}")  # fmt: skip
    with pytest.raises(OffbeatError, match=f"changed: entry {number} does not fit"):
        verify(folder)


@pytest.mark.parametrize("value", ["x'00'", "17", "''"])
def test_an_entry_of_another_type_is_found(folder, heads, value):
    change(folder, f"UPDATE log SET entry = {value} WHERE number = 3")
    with pytest.raises(OffbeatError, match="changed: entry 3 does not fit"):
        verify(folder)
    with pytest.raises(OffbeatError, match=r"entry 3 .* was changed: it is not JSON"):
        list(entries(folder))


@pytest.mark.parametrize("number", range(1, 5))
def test_an_entry_removed_from_the_middle_is_found(folder, heads, number):
    change(folder, f"DELETE FROM log WHERE number = {number}")
    with pytest.raises(OffbeatError, match=f"entry {number} does not fit"):
        verify(folder)


def test_a_removed_entry_whose_gap_is_closed_is_found(folder, heads):
    change(folder, "DELETE FROM log WHERE number = 2", *(
        f"UPDATE log SET number = {number - 1} WHERE number = {number}" for number in (3, 4, 5)
    ))  # fmt: skip
    with pytest.raises(OffbeatError, match="entry 2 does not fit"):
        verify(folder)


def test_reordered_entries_are_found(folder, heads):
    change(folder, "UPDATE log SET number = 99 WHERE number = 2", "UPDATE log SET number = 2 WHERE number = 3",
           "UPDATE log SET number = 3 WHERE number = 99")  # fmt: skip
    with pytest.raises(OffbeatError, match="entry 2 does not fit"):
        verify(folder)


def test_a_removed_tail_is_found_by_a_later_head_only(folder, heads):
    change(folder, "DELETE FROM log WHERE number > 3")
    assert verify(folder, heads[:3]) == heads[2]
    for head in heads[3:]:
        with pytest.raises(OffbeatError, match=f"was cut: it ends at entry 3, before the head {head}"):
            verify(folder, [heads[0], head])
    change(folder, "DELETE FROM log")
    with pytest.raises(OffbeatError, match="has no entries"):
        verify(folder)


def test_a_chain_that_was_written_anew_is_found_by_a_head_only(folder, heads):
    change(folder, "DELETE FROM log")
    anew = write(folder, ("server started", "token made", "client enrolled", "token revoked", *KINDS))
    assert verify(folder) == anew[-1]
    assert verify(folder, heads[:3]) == anew[-1]  # from before the first entry that differs
    for head in heads[3:]:
        with pytest.raises(OffbeatError, match=f"written anew: its entry {head.number}"):
            verify(folder, [head])


def test_wrong_folders_heads_and_files_are_refused(folder, heads, tmp_path):
    with pytest.raises(OffbeatError, match="not a server's folder"):
        verify(tmp_path / "nothing")
    for text in ("", "17", f"17:{'A' * 64}", f"-1:{'a' * 64}", f"1:{'a' * 64}\n", f"{'1' * 40}:{'a' * 64}"):
        with pytest.raises(OffbeatError, match="is not a head"):
            LogHead.parse(text)
    with pytest.raises(OffbeatError, match="cannot read"):
        read_heads(tmp_path / "missing")
    file = tmp_path / "audit-heads"
    file.write_bytes(f"{heads[0]}\n1:ab\n{heads[1]}\n2:a".encode())
    assert read_heads(file) == heads[:2]
    file.write_bytes(b"\xff\n")
    with pytest.raises(OffbeatError, match="does not hold a head"):
        read_heads(file)
