"""Deletion of what a server holds of a client.

1. Rows of the log, appended at once, say that the client is forgotten, that its visit is lost, and which of its updates
   the sums to come lose. From now on it has no name and no tokens.
2. A checkpoint covers the rows so far, so that their updates are deleted, also those of other clients.
3. Rows are redacted, and incomplete uploads deleted. The head of the audit log covers neither.
4. Another row says that this is done.

After a kill the steps from the second one on are taken again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from offbeat.service.accounts import registry
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.client_evaluation import client_evaluations
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.log.log import COORDINATOR, LogUnavailableError, Row
from offbeat.service.refusal import Refusal, unwritable
from offbeat.service.server_messages import Forgotten
from offbeat.service.store import call_records
from offbeat.service.updates.uploads import Uploads, delete_partial

_RETRY_SECONDS = 10.0  # after a deletion that a full disk or an unreachable store has stopped


class Erasure:
    """Deletes what is held of clients, one client at a time.

    Args:
        engine: The run.
        accounts: The clients.
        checkpoints: Writes checkpoints, which cover what is deleted.
        uploads: Of the front in this process.
        folder: The server's.
    """

    def __init__(
        self, engine: Engine, accounts: Accounts, checkpoints: CheckpointWriter, uploads: Uploads, folder: Path
    ) -> None:
        self._engine = engine
        self._accounts = accounts
        self._checkpoints = checkpoints
        self._uploads = uploads
        self._folder = folder
        self._one_at_a_time = asyncio.Lock()

    async def forget(self, client: int) -> Forgotten:
        """Delete what is held of a client; return once that is durable.

        Raises:
            Refusal: ``no-such-client``; or the disk or a store cannot be written now: the rest is deleted later.
        """
        async with self._one_at_a_time:
            updates = 0
            if client not in self._accounts.forgotten:
                updates = await self._engine.forget(client, partial(self._accounts.forget, client))
                if self._engine.client_evaluations is not None:
                    self._engine.client_evaluations.forget(client)
            if self._accounts.sites[client].forgotten == "done":
                return Forgotten(client=client, updates=0, deleted=[], stays=[*self._stays(client, 0)])
            return await self._erase(client, updates)

    async def run(self) -> None:
        """Go on with deletions that were begun; never returns."""
        while True:
            for client in sorted(self._accounts.forgotten):
                async with self._one_at_a_time:
                    if self._accounts.sites[client].forgotten == "begun":
                        with suppress(Refusal):
                            await self._erase(client)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _erase(self, client: int, updates: int = 0) -> Forgotten:
        engine = self._engine
        try:
            await self._checkpoints.write_and_forget()
            log = engine.log_writer.log
            rows = await log.redact(f'"client":{client}', partial(_redacted, client))
            if engine.client_evaluations is not None:
                engine.client_evaluations.erase(client, await log.rows_of(client_evaluations.OWNER))
            uploads = await self._uploads.forget(client)
            uploads += sum(delete_partial(folder, client) for folder in self._folder.glob("fronts/*/partial"))
            await engine.log_writer.tidy()
        except OSError as error:
            raise engine.disk.refusal(error) from None
        except LogUnavailableError as error:
            raise unwritable(str(error)) from None
        self._accounts.note_forgotten(client)
        await engine.log_writer.wait_until_durable()
        deleted = [
            f"Its name, its tokens and all that it has sent are deleted, also in {rows} rows of the log.",
            f"{updates} of its updates had not gone into a version, and will not.",
            f"{uploads} incomplete uploads of it are deleted.",
        ]
        return Forgotten(client=client, updates=updates, deleted=deleted, stays=[*self._stays(client, updates)])

    def _stays(self, client: int, updates: int) -> Iterator[str]:
        """Yield what cannot be taken back, a sentence each."""
        coordinator, counted = self._engine.coordinator, self._engine.tally[client].counted
        if counted > updates:
            yield f"Versions of the model were made from its updates, of which {counted - updates} counted: they stay."
            if getattr(getattr(coordinator.algorithm, "buffer", None), "count", 0):
                yield (
                    f"If one of these came since the last version, it is in {coordinator.algorithm.name}'s sum for the "
                    "next one, which does not tell it from others."
                )
        yield (
            f"The log keeps, under the number {client}, when it worked, from which versions, and which updates counted."
        )
        if coordinator.participation is not None:
            yield f"Its {coordinator.participation.counts()[client]} participations, and its key, stay counted for ε."
        yield "Backups hold it until you delete them, and so do logs of this machine, of a proxy, or of a tracker."
        yield "Names of enrolment tokens stay in the audit log."
        if self._engine.shared is not None:
            yield (
                "PostgreSQL keeps old rows until VACUUM, and in its write-ahead log, replicas and archives until those "
                f"are recycled; a front on another machine keeps incomplete uploads, partial/{client}-* in its folder."
            )


_REDACTED = {
    COORDINATOR: call_records.redacted,
    registry.OWNER: registry.redacted,
    client_evaluations.OWNER: client_evaluations.redacted,
}
"""By owner: returns a client's row without what it says of the client; None if that is nothing."""


def _redacted(client: int, row: Row) -> Row | None:
    is_of_client = row.owner in _REDACTED and row.values.get("client") == client
    return _REDACTED[row.owner](row) if is_of_client else None
