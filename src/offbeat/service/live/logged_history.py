"""A site's updates and evaluations, and the audit log, from the rows of the log."""

import json
from datetime import datetime

import sqlalchemy as sa

from offbeat.service.client_evaluation.client_evaluations import OWNER as EVALUATIONS
from offbeat.service.engine.operations import Operations
from offbeat.service.log.log import COORDINATOR, Row
from offbeat.service.log.tables import is_rare, log
from offbeat.service.refusal import Refusal
from offbeat.service.server_messages import LoggedEntry, LoggedPage, SiteHistory

_SEARCHED = 100_000  # of the newest rows, since no index has their clients
_MOST = 200  # updates, and evaluations


async def site_history(service: Operations, client: int) -> SiteHistory:
    """Return a site's newest updates and evaluations.

    The updates are searched in the newest 100,000 rows.

    Raises:
        Refusal: No such client has enrolled, or the log cannot be read.
    """
    if client not in service.accounts.sites:
        raise Refusal("no-such-client", f"no client {client} has enrolled")
    writer = service.engine.log_writer
    is_own = log.c.arguments.like(f'%"client":{client},%')
    recent = (log.c.number > writer.number - _SEARCHED) & (log.c.owner == COORDINATOR) & (log.c.name == "receive")
    answers = is_rare & (log.c.owner == EVALUATIONS) & (log.c.name == "answer")
    updates = [row.values for row in reversed(await writer.newest(recent & is_own, _MOST))]
    evaluations = [row.values for row in reversed(await writer.newest(answers & is_own, _MOST))]
    return SiteHistory(
        updates=[(values["now"], *values["outcome"]) for values in updates],
        evaluations=[(values["version"], values["metrics"]) for values in evaluations],
    )


async def audit_page(service: Operations, before: int | None, limit: int) -> LoggedPage:
    """Return the newest entries of the audit log before a row, the last one first.

    Raises:
        Refusal: The log cannot be read.
    """
    which = is_rare & log.c.head.is_not(None) & (sa.true() if before is None else log.c.number < before)
    rows = await service.engine.log_writer.newest(which, limit + 1)
    return LoggedPage(
        entries=[_entry(row) for row in rows[:limit]], next=rows[limit - 1].number if len(rows) > limit else None
    )


def _entry(row: Row) -> LoggedEntry:
    facts = json.loads(row.entry or "{}")
    number, at, kind = (facts.pop(key) for key in ("number", "at", "kind"))
    return LoggedEntry(number=number, at=datetime.fromisoformat(at).timestamp(), level="info", kind=kind, facts=facts)
