"""Files of a server of several runs, and the files of its runs."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_table
from offbeat_core.number_checks import short
from offbeat_core.tables.section import Positive, Section
from offbeat_core.tables.validation_errors import error_prefix
from pydantic import Field, model_validator

from offbeat.config.login_section import LoginSection, check_url
from offbeat.config.server_file import PlaceSection, ServerFile
from offbeat.config.webhook_section import WebhookSection
from offbeat.service.hosting.admission import Admission

MOST_CLIENTS = 1_000_000
"""Clients of a run, at most: the server has memory for each."""

_OF_THE_SERVER = ("store", "webhook", "login", "fronts")


class HostFile(Section):
    """A file: a server of several runs, which have files of their own."""

    service: PlaceSection
    webhook: WebhookSection | None = None
    """Messages about all runs to a URL of yours; none if it is left out."""
    login: LoginSection | None = None
    """People log in to the live pages through an OpenID Connect provider; by tokens alone if it is left out."""

    @model_validator(mode="after")
    def _check_login(self) -> "HostFile":
        check_url(self.login, has_tls=self.service.tls)
        return self


class AdmissionSection(Section):
    """``[admission]``: which sites of the server take part in the run."""

    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Labels that a site must have, all of them; none are needed if it is left out."""
    names: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of sites; those of any name if it is left out."""

    def rule(self) -> Admission:
        """Return the rule."""
        return Admission(frozenset(self.labels), frozenset(self.names))


class QuotaSection(Section):
    """``[quota]``: the run's share of the server."""

    requests_a_second: Positive | None = None
    """The most requests of all its clients together, on average; without limit if it is left out."""
    uploads_gb: Positive = 16.0
    """Gigabytes of updates that have arrived in part, at most."""


class _OwnSections(Section):
    """The sections that only the file of a run on a server of several has."""

    admission: AdmissionSection = AdmissionSection()
    quota: QuotaSection = QuotaSection()


def is_host_file(table: dict[str, Any]) -> bool:
    """Return whether an unchecked table is that of a server of several runs."""
    return "service" in table and not {"model", "algorithm", "local", "algorithms"} & set(table)


def load(path: Path) -> HostFile:
    """Read the file of a server of several runs."""
    table = read_table(path)
    with error_prefix(path, table):
        return HostFile.model_validate(table, context={"folder": path.parent})


def parse_run(text: str, name: str, host: HostFile, folder: Path) -> tuple[ServerFile, AdmissionSection, QuotaSection]:
    """Return the file of a run on a server, and its two sections of its own.

    It is like the file of a server with one run, without what is the server's. It may name files in ``folder``, that of
    the server's file, and none elsewhere.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise OffbeatError(f"run {name}: not TOML: {error}") from None
    given = {key: table.pop(key) for key in _OwnSections.model_fields if key in table}
    with error_prefix(f"run {name}", given):
        own = _OwnSections.model_validate(given)
    with error_prefix(f"run {name}", table):
        service: Any = table.get("service", {})
        if not isinstance(service, dict):
            raise OffbeatError("service must be a section")
        ours = [f"service.{key}" for key in PlaceSection.model_fields if key in service]
        for key in (*(section for section in _OF_THE_SERVER if section in table), *ours):
            raise OffbeatError(f"{key} is for the server's own file: leave it out")
        table["service"] = {**service, "folder": "."}
        file = ServerFile.model_validate(table, context={"folder": folder, "within": folder})
        if file.service.clients > MOST_CLIENTS:
            raise OffbeatError(f"service.clients = {short(file.service.clients)}: at most {MOST_CLIENTS:,} here")
        file.build_algorithm()
    place = host.service.model_dump() | {"folder": str(Path(host.service.folder) / "runs" / name)}
    run = file.model_copy(update={"service": file.service.model_copy(update=place), "webhook": host.webhook})
    return run, own.admission, own.quota
