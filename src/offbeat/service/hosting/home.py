"""The part of a server of several runs that all runs have in common."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from offbeat_core.messages import Enrolled, Enrolment
from offbeat_core.tokens import token_hash

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.engine.standby import lead_at_once
from offbeat.service.hosting.home_state import OWNER, HomeState
from offbeat.service.log.log import Change
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.term import Term
from offbeat.service.refusal import Refusal
from offbeat.service.server.host_folder import RUNS
from offbeat.service.store.store import Store

MOST_SITES = 100_000
_RESERVE_BYTES = 2**20


class Home:
    """Sites, tokens, and the list of runs, in a log of their own.

    Attributes:
        accounts: The sites, as clients of the server, and all tokens.
        folder: The server's.
        run_id: The id of the server's own log.
        state: Up to the log's last row.
    """

    def __init__(self, store: Store, state: HomeState, log_writer: LogWriter, token_seconds: float | None) -> None:
        self.folder = store.folder
        self.run_id = store.log.run
        self.disk = store.disk
        self.state = state
        self.log_writer = log_writer
        audit = AuditLog(log_writer, state.server)
        self.accounts = Accounts(
            state.server.registry,
            log_writer,
            audit,
            clients_limit=MOST_SITES,
            token_seconds=token_seconds,
            keeps_examples=False,
        )
        self.audit = audit

    def enrol(self, token: str | None, enrolment: Enrolment) -> Enrolled:
        """Enrol a site, which gets the labels of its enrolment token."""
        before = len(self.accounts)
        site, client_token, seconds = self.accounts.enrol(token, enrolment.name, enrolment.token)
        labels = self.state.token_labels.get(token_hash(token or ""), frozenset())
        # A site that asks again may do so with any token for enrolment, also with one that has ended.
        if labels and site >= before:
            self.label(site, labels)  # in one append with the site itself
        return Enrolled(client=site, token=client_token, expires_seconds=seconds, has_runs=True)

    async def keep_reserve(self) -> None:
        """Keep some of the disk back; where it was full, take in new things again."""
        await asyncio.to_thread(self.disk.keep_reserve, _RESERVE_BYTES)

    def create(self, run: str, text: str) -> None:
        """Note a new run, of this file; ``run-exists``."""
        self.log_writer.check()
        if run in self.state.runs:
            raise Refusal("run-exists", f"there is a run {run!r} already: take another name")
        self._change("create_run", {"run": run, "text": text, "at": time.time()}, "run created", run=run)

    def note_end(self, run: str, *, is_over: bool) -> None:
        """Note whether a run is over, so that a server need not open it when it starts."""
        self._change("note_end", {"run": run, "is_over": is_over})

    def admit(self, site: int, run: str) -> None:
        """Note that a site takes part in a run."""
        if run not in self.state.admitted.get(site, ()):
            self._change("admit", {"site": site, "run": run})

    def label(self, site: int, labels: Collection[str]) -> None:
        """Give a site these labels in place of those that it has."""
        self.name_of(site)
        if site in self.accounts.forgotten and labels:
            raise Refusal("no-such-client", f"site {site} was forgotten")
        self.log_writer.check()
        # Not in the audit log, whose entries last after the site is forgotten.
        self._change("label_site", {"site": site, "labels": sorted(set(labels))}, "site labelled", client=site)

    def label_token(self, hashed: str, labels: Iterable[str]) -> None:
        """Give these labels to the sites that will enrol with a token, by its SHA-256."""
        self._change("label_token", {"token": hashed, "labels": sorted(set(labels))})

    def name_of(self, site: int) -> str:
        """Return a site's name; ``no-such-client``."""
        if site not in self.accounts.sites:
            raise Refusal("no-such-client", f"no site {site} has enrolled")
        return self.accounts.sites[site].name

    def _change(self, name: str, values: dict[str, Any], kind: str | None = None, /, **facts: Any) -> None:
        self.state.change(name, values)
        if kind is None:
            self.log_writer.enter(Change(OWNER, name, values))
        else:
            self.audit.add(kind, Change(OWNER, name, values), **facts)


@asynccontextmanager
async def opened_home(
    folder: Path, token_seconds: float | None, failed: Callable[[BaseException], None]
) -> AsyncGenerator[Home]:
    """Open the server's own log; ``failed`` is called if the disk fails."""
    with closing(Store(folder, failed, parts=(RUNS,))) as store:
        state = HomeState()
        term = Term(store.log, secrets.token_hex(8))
        await lead_at_once(store.log, term, state)
        log_writer = LogWriter(term, store.disk, failed)
        try:
            home = Home(store, state, log_writer, token_seconds)
            await home.keep_reserve()
            yield home
        finally:
            await log_writer.close()
