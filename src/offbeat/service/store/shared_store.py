"""The log and blobs that several servers share, for commands."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.checkpoint_values import read_values
from offbeat.service.blobs.blobs import Blobs, BlobsUnavailableError, BrokenBlobError, NoSuchBlobError, checked_blob
from offbeat.service.blobs.open_blobs import open_blobs
from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.open_log import open_log
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import existing_run, log
from offbeat.service.store.server_state import ServerState
from offbeat.service.store.shared_files import OWNER as CHECKPOINT
from offbeat.service.store_settings import StoreSettings

_CACHE_BYTES = 2**32
_READ_AT_ONCE = 1000  # rows


@dataclass(frozen=True)
class SharedStore:
    """An open log with the store of its large files."""

    settings: StoreSettings
    log: SqlLog
    blobs: Blobs

    def checkpoint(self) -> dict[str, Any] | None:
        """Return the arguments of the row of the newest checkpoint; None without."""
        row = self.log.newest_now(CHECKPOINT)
        return None if row is None else row.values

    def file(self, name: str, digest: str) -> AbstractContextManager[Path]:
        """Lend a local copy of a file; ``NoSuchBlobError`` if it was deleted."""
        return checked_blob(self.blobs, f"{self.log.run}/{name}", digest)

    def forget(self, name: str) -> None:
        """Delete the local copy of a file."""
        self.blobs.forget(f"{self.log.run}/{name}")

    def rows(self, after: int) -> Iterator[Row]:
        """Yield the log's later rows, with small updates."""
        while rows := self.log.read_now(log.c.number > after, _READ_AT_ONCE):
            yield from rows
            after = rows[-1].number

    def state(self) -> tuple[ServerState, float]:
        """Return the state at the end of the log, and the run's seconds."""
        checkpoint, values = self.checkpoint(), dict[str, Any]()
        if checkpoint is not None:
            with self.file(checkpoint["file"], checkpoint["sha256"]) as file:
                values = read_values(file)
        state, now = ServerState(values.get("server")), values.get("now", 0.0)
        for row in self.rows(0 if checkpoint is None else checkpoint["number"]):
            arguments = row.values
            state.apply(row, arguments)
            now = arguments.get("now", now)
        return state, now


@contextmanager
def opened_shared(settings: StoreSettings) -> Generator[SharedStore]:
    """Open a shared store that holds a run; errors within the context are one line.

    Raises:
        OffbeatError: The log or the blobs cannot be used.
    """
    with TemporaryDirectory(prefix="offbeat-") as folder, one_line(settings):
        opened = open_log(settings.log, enter=existing_run)
        try:
            yield SharedStore(settings, opened, open_blobs(settings.blobs, Path(folder), _CACHE_BYTES))
        finally:
            opened.close()


@contextmanager
def one_line(settings: StoreSettings) -> Generator[None]:
    """Report failures of the log and the blobs in one line."""
    try:
        yield
    except (LogUnavailableError, UnknownOutcomeError) as error:
        raise OffbeatError(f"the log {settings.log} cannot be used: {error}") from None
    except exc.DBAPIError as error:
        raise OffbeatError(f"the log {settings.log} cannot be used: {str(error.orig).partition(chr(10))[0]}") from None
    except ReplacedError as error:
        raise OffbeatError(f"another server leads this run now ({error}): stop all of its servers") from None
    except (BlobsUnavailableError, BrokenBlobError, NoSuchBlobError) as error:
        raise OffbeatError(f"the store {settings.blobs} cannot be used: {error}") from None
