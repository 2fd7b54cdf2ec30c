"""Sentences on what needs a person, and what to do."""

import math
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.progress_log import LastHour
from offbeat.service.server_settings import ServerSettings

_LOW_DISK = 2_000_000_000  # bytes
_SILENT_SECONDS = 600.0  # at least; a client whose lease has just ended may come back
_MOST_NAMES = 3  # of sites in a sentence
_REFUSED_SHARE, _FEW_UPDATES = 0.5, 10
_LOW_BUDGET = 0.9  # of a client's, in a run without a last version
_FEW_SUMS = 3  # of a client, before its pace is known


def problems(
    engine: Engine, accounts: Accounts, settings: ServerSettings, hour: LastHour, waits_for: str | None
) -> list[str]:
    """Return the problems of a run, the worst first; empty if it needs nobody.

    ``waits_for`` is what the run waits for; None for nothing.
    """
    found = [*_of_the_store(engine, settings)]
    if engine.shares is not None and engine.shares.facts.problem and not engine.run.is_finished:
        found.append(f"Sums cannot be opened, so there are no new versions: {engine.shares.facts.problem}")
    found += _of_enrolment(engine, accounts, waits_for)
    found += [*_of_silent_sites(engine, accounts, settings), *_of_refused_updates(hour), *_of_the_budget(engine)]
    return found


def _of_the_store(engine: Engine, settings: ServerSettings) -> Iterator[str]:
    if (full := engine.disk.problem) is not None:
        yield f"The disk is full, so nothing new is taken in ({full}): free space on it"
    elif (problem := engine.log_writer.problem) is not None:
        yield f"The log cannot be written, so clients wait ({problem}): look at its database and at the network"
    elif (problem := engine.publisher.problem) is not None:
        yield f"There is no new model ({problem}): look at the disk and at the store of large files"
    elif (free := shutil.disk_usage(settings.folder).free) < _LOW_DISK:
        yield f"The disk has {free / 1e9:.1f} GB left: free space on it before it is full"


def _of_enrolment(engine: Engine, accounts: Accounts, waits_for: str | None) -> Iterator[str]:
    if waits_for is not None:
        yield f"The run waits for {waits_for}"
    elif not engine.run.is_finished:
        cohort = getattr(engine.coordinator.algorithm, "cohort", None) or 1
        missing = cohort - sum(site.revoked is None for site in accounts.sites.values())
        if missing > 0:
            clients = "a client" if cohort == 1 else f"{missing} of {cohort} clients"
            yield f"The run waits for {clients} to enrol: start clients with an enrolment token"


def _of_silent_sites(engine: Engine, accounts: Accounts, settings: ServerSettings) -> Iterator[str]:
    """Yield a line on sites that took work and fell silent."""
    if engine.run.is_finished or engine.run.is_paused:
        return
    now, sites = time.time(), accounts.sites
    least = max(_SILENT_SECONDS, 2 * (settings.lease_seconds or 0))
    silent: list[tuple[float, str, float]] = []  # since when, the name, the end of the lease; in Unix seconds
    for visit in engine.coordinator.visits.open_assignments():
        seen, site = engine.tally[visit.client].last_seen, sites.get(visit.client)
        if site is None or site.revoked is not None or seen is None:
            continue
        if now - seen >= least and (ended := now - engine.run.now + visit.lease_until) <= now:
            silent.append((seen, site.name or f"client {visit.client}", ended))
    silent.sort()
    if len(silent) == 1:
        ((seen, name, ended),) = silent
        lease = f"its lease ended at {datetime.fromtimestamp(ended, UTC):%H:%M} UTC"
        yield f"{name} has been silent for {_duration(now - seen)}: {lease}; look at its machine, or revoke it"
    elif silent:
        names = [name for _, name, _ in silent[:_MOST_NAMES]]
        others = len(silent) - len(names)
        listed = f"{', '.join(names)} and {others} more sites" if others else f"{', '.join(names[:-1])} and {names[-1]}"
        least_silent = _duration(now - silent[-1][0])
        yield f"{listed} have been silent for {least_silent} or longer: look at their machines, or revoke them"


def _of_refused_updates(hour: LastHour) -> Iterator[str]:
    counted, late, refused = hour.counts()
    lost = late + sum(refused.values())
    if lost < max(_FEW_UPDATES, _REFUSED_SHARE * (counted + lost)):
        return
    most = max(refused, key=refused.__getitem__, default="")
    reason = (
        f"most as {most}; the sites' logs say what to do"
        if refused.get(most, 0) > late
        else "most came too late; raise server.max_staleness, or let clients do less at a time"
    )
    total = counted + lost
    yield f"{lost / total:.0%} of the updates of the last hour were refused, {lost:,} of {total:,}: {reason}"


def _of_the_budget(engine: Engine) -> Iterator[str]:
    participation, version = engine.coordinator.participation, engine.coordinator.algorithm.version
    if participation is None or math.isinf(participation.limit) or engine.run.is_finished:
        return
    counts, end = participation.counts(), engine.run.stop_versions
    spent = sum(count >= participation.limit_of(client) for client, count in enumerate(counts))
    if spent:
        yield f"The privacy budget of {spent} of {len(counts)} clients is used up: they get no more work in this run"
    last = version / _LOW_BUDGET if math.isinf(end) else end
    limits = map(participation.limit_of, range(len(counts)))
    pairs = zip(counts, limits, strict=True)
    ends = [version * most / count for count, most in pairs if _FEW_SUMS <= count < most]
    soon = [each for each in ends if each < last]
    if soon:
        yield (
            f"The privacy budget of {len(soon)} of {len(counts)} clients is used up at version {min(soon):,.0f} "
            "(estimated): let the run end before, or begin one with more clients"
        )


def _duration(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in ((86400, "d"), (3600, "h")) if seconds >= 2 * size), (60, "min"))
    return f"{seconds / size:.0f} {unit}"
