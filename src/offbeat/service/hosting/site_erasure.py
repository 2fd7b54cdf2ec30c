"""Deletion of what a server of several runs holds of a site.

The server's own log says first that the site is forgotten, so that its tokens end. Then each run that it took part in
deletes what it holds, and the log's rows are redacted. After a kill this is done again.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from offbeat.service.accounts import registry
from offbeat.service.hosting.home import Home
from offbeat.service.hosting.home_state import OWNER
from offbeat.service.hosting.hosted_accounts import HostedAccounts
from offbeat.service.hosting.runs import Runs
from offbeat.service.log.log import LogUnavailableError, Row
from offbeat.service.refusal import Refusal, unwritable
from offbeat.service.server_messages import Forgotten

_RETRY_SECONDS = 10.0


class SiteErasure:
    """Deletes what is held of sites, one site at a time."""

    def __init__(self, home: Home, runs: Runs) -> None:
        self._home = home
        self._runs = runs
        self._one_at_a_time = asyncio.Lock()

    async def forget(self, site: int) -> Forgotten:
        """Delete what is held of a site, in all runs; return once that is durable.

        Raises:
            Refusal: ``no-such-client``; or something cannot be written now: the rest is deleted later.
        """
        self._home.name_of(site)
        if site not in self._home.accounts.forgotten:
            self._home.accounts.forget(site)
            self._home.label(site, ())
            await self._home.log_writer.wait_until_durable()
        return await self._erase(site)

    async def run(self) -> None:
        """Go on with deletions that were begun; never returns."""
        while True:
            for site in sorted(self._home.accounts.forgotten):
                if self._home.accounts.sites[site].forgotten == "begun":
                    with suppress(Refusal):
                        await self._erase(site)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _erase(self, site: int) -> Forgotten:
        forgotten = Forgotten(client=site, updates=0, deleted=[], stays=[])
        async with self._one_at_a_time:
            for name in sorted(self._home.state.admitted.get(site, ())):
                run = await self._runs.get(name)
                with run.used():
                    for client in _to_forget(run.accounts, site):
                        done = await run.service.service.forget(client)
                        forgotten.deleted.extend(f"Run {name}: {sentence}" for sentence in done.deleted)
                        forgotten.stays.extend(f"Run {name}: {sentence}" for sentence in done.stays)
            await self._redact(f'"client":{site}', registry.OWNER, "client", site, registry.redacted)
            await self._redact(f'"site":{site}', OWNER, "site", site, _without_labels)
            if self._home.accounts.sites[site].forgotten != "done":
                self._home.accounts.note_forgotten(site)
            await self._home.log_writer.wait_until_durable()
        forgotten.deleted.insert(0, "Its name, tokens and labels at the server are deleted.")
        return forgotten

    async def _redact(self, text: str, owner: str, key: str, site: int, change: Callable[[Row], Row | None]) -> None:
        def redacted(row: Row) -> Row | None:
            return change(row) if row.owner == owner and row.values.get(key) == site else None

        try:
            await self._home.log_writer.log.redact(text, redacted)
        except LogUnavailableError as error:
            raise unwritable(str(error)) from None


def _to_forget(accounts: HostedAccounts, site: int) -> list[int]:
    """Return the clients to forget: the site, and those that were begun.

    It may be one of them, without its key.
    """
    client = accounts.client_of(site)
    begun = [number for number in sorted(accounts.forgotten) if accounts.sites[number].forgotten == "begun"]
    return begun if client is None else [client, *begun]


def _without_labels(row: Row) -> Row | None:
    if row.name != "label_site":
        return None
    return replace(row, arguments=json.dumps(row.values | {"labels": []}, separators=(",", ":")))
