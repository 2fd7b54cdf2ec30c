"""The helper's database: run, roster, batches, participations, digests of models.

A commit returns once it is on disk.
"""

import hashlib
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from offbeat_core.errors import OffbeatError
from offbeat_private.helper.opening_rules import Batch, ClientHistory, Opened
from offbeat_private.masks.helper_facts import Head
from offbeat_private.signed_terms import SignedTerms, verify

FILE = "helper.sqlite"
_FORM = 2  # raise it when the tables or the noise change: a folder of another form is refused
_TABLES = """
CREATE TABLE run (
    terms BLOB NOT NULL, delta REAL NOT NULL, epsilon_total REAL, token TEXT NOT NULL, hosts TEXT NOT NULL,
    stopped INTEGER NOT NULL
);
CREATE TABLE clients (
    key BLOB PRIMARY KEY, name TEXT,  -- null: not on the roster
    participations INTEGER NOT NULL, spent REAL NOT NULL,  -- over all runs
    visit INTEGER NOT NULL, start_version INTEGER NOT NULL, batch INTEGER NOT NULL  -- the last ones of this run
);
CREATE TABLE batches (number INTEGER PRIMARY KEY, digest BLOB NOT NULL, head BLOB NOT NULL);
CREATE TABLE models (start_version INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE seeds (batch INTEGER NOT NULL, client BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (batch, client));
"""
_NEVER = ClientHistory()


class EnrolledRun(NamedTuple):
    """A run as it was enrolled."""

    signed_terms: SignedTerms
    delta: float  # for reporting ε
    epsilon_total: float | None  # the most ε of a client over all runs
    token_hash: str  # SHA-256 of the server's token
    hosts: tuple[str, ...]  # names and addresses in the certificate


class HelperDatabase:
    """The database of a helper's folder; one process writes to it.

    Raises:
        OffbeatError: The folder does not hold a helper's database that can be used.
    """

    def __init__(self, folder: Path, *, new: bool = False, read_only: bool = False) -> None:
        path = folder / FILE
        if not new and not path.exists():
            raise OffbeatError(f"{folder} is not a helper's folder: make one with offbeat-helper enrol")
        if new:
            path.touch(0o600)  # SQLite's other files get the same permissions
        mode = "ro" if read_only else "rw"
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(folder, new=new)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise OffbeatError(f"cannot use {path}: {error}") from None

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def run(self) -> EnrolledRun:
        """Return the enrolled run."""
        row = self._connection.execute("SELECT terms, delta, epsilon_total, token, hosts FROM run").fetchone()
        if row is None:
            raise OffbeatError("the enrolment did not end: run offbeat-helper enrol again")
        terms, delta, epsilon_total, token, hosts = row
        return EnrolledRun(verify(terms), delta, epsilon_total, token, tuple(hosts.split()))

    def roster(self) -> dict[bytes, str]:
        """Return the names of the clients of this run, by key."""
        return dict(self._connection.execute("SELECT key, name FROM clients WHERE name IS NOT NULL").fetchall())

    def opened(self) -> Opened:
        """Return what was opened so far."""
        rows = self._connection.execute("SELECT number, digest, head FROM batches ORDER BY number").fetchall()
        clients = self._connection.execute(
            "SELECT key, participations, spent, visit, start_version, batch FROM clients"
        )
        (stopped,) = self._connection.execute("SELECT stopped FROM run").fetchone()
        return Opened(
            [digest for _, digest, _ in rows],
            [Head(number, head) for number, _, head in rows],
            {key: ClientHistory(*history) for key, *history in clients},
            dict(self._connection.execute("SELECT start_version, digest FROM models").fetchall()),
            bool(stopped),
        )

    def batch_sizes(self) -> list[int]:
        """Return how many clients each batch of this run has."""
        rows = self._connection.execute("SELECT COUNT(DISTINCT client) FROM seeds GROUP BY batch ORDER BY batch")
        return [size for (size,) in rows]

    def enrol(self, run: EnrolledRun, roster: Mapping[bytes, str]) -> None:
        """Begin a run; participations of earlier runs are kept."""
        with self._transaction():
            for table in ("run", "batches", "models", "seeds"):
                self._connection.execute(f"DELETE FROM {table}")
            self._connection.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, 0)",
                (run.signed_terms.to_bytes(), run.delta, run.epsilon_total, run.token_hash, " ".join(run.hosts)),
            )
            self._connection.execute(
                "UPDATE clients SET name = NULL, visit = ?, start_version = ?, batch = ?", _NEVER[2:]
            )
            self._connection.executemany(
                "INSERT INTO clients VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET name = excluded.name",
                [(key, name, *_NEVER) for key, name in roster.items()],
            )

    def commit(self, batch: Batch, head: Head, seeds: Sequence[bytes]) -> None:
        """Record an opened batch and the hashes of its envelopes' seeds."""
        with self._transaction():
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?)", (batch.number, batch.digest, head.digest))
            self._connection.executemany(
                "INSERT INTO seeds VALUES (?, ?, ?)",
                [
                    (batch.number, envelope.binding.client, hashlib.sha256(seed).digest())
                    for envelope, seed in zip(batch.envelopes, seeds, strict=True)
                ],
            )
            self._connection.executemany("INSERT OR IGNORE INTO models VALUES (?, ?)", batch.models.items())
            self._connection.executemany(
                "UPDATE clients SET participations = ?, spent = ?, visit = ?, start_version = ?, batch = ? "
                "WHERE key = ?",
                [(*history, key) for key, history in batch.histories.items()],
            )

    def stop(self) -> None:
        """Record that this helper has stopped for good."""
        self._connection.execute("UPDATE run SET stopped = 1")

    def _prepare(self, folder: Path, *, new: bool) -> None:
        (form,) = self._connection.execute("PRAGMA user_version").fetchone()
        if form == 0 and new:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_FORM}; COMMIT;")
        elif form != _FORM:
            raise OffbeatError(
                f"{folder} is of another version of Offbeat (form {form}, this one reads {_FORM}): use that version"
            )
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA busy_timeout = 10000")

    @contextmanager
    def _transaction(self) -> Generator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
