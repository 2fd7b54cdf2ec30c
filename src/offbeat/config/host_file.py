"""Files of a server of several runs, and the files of its runs."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_table
from offbeat_core.tables.section import Section
from offbeat_core.tables.validation_errors import error_prefix
from pydantic import Field

from offbeat.config.server_file import PlaceSection, ServerFile
from offbeat.config.webhook_section import WebhookSection
from offbeat.service.hosting.admission import Admission

_OF_THE_SERVER = ("store", "webhook", "fronts")


class HostFile(Section):
    """A file: a server of several runs, which have files of their own."""

    service: PlaceSection
    webhook: WebhookSection | None = None
    """Messages about all runs to a URL of yours; none if it is left out."""


class AdmissionSection(Section):
    """``[admission]``: which sites of the server take part in the run."""

    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Labels that a site must have, all of them; none are needed if it is left out."""
    names: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of sites; those of any name if it is left out."""

    def rule(self) -> Admission:
        """Return the rule."""
        return Admission(frozenset(self.labels), frozenset(self.names))


def is_host_file(table: dict[str, Any]) -> bool:
    """Return whether an unchecked table is that of a server of several runs."""
    return "service" in table and not {"model", "algorithm", "local", "algorithms"} & set(table)


def load(path: Path) -> HostFile:
    """Read the file of a server of several runs."""
    table = read_table(path)
    with error_prefix(path, table):
        return HostFile.model_validate(table, context={"folder": path.parent})


def parse_run(text: str, name: str, host: HostFile, folder: Path) -> tuple[ServerFile, Admission]:
    """Return the file of a run on a server, and which sites the run admits.

    It is like the file of a server with one run, without what is the server's. It may name files in ``folder``, that of
    the server's file, and none elsewhere.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OffbeatError(f"run {name}: not TOML: {error}") from None
    with error_prefix(f"run {name}", table):
        service = table.get("service", {})
        for key in (*_OF_THE_SERVER, *(f"service.{key}" for key in PlaceSection.model_fields if key in service)):
            if key in table or "." in key:
                raise OffbeatError(f"{key} is for the server's own file: leave it out")
        admission = AdmissionSection.model_validate(table.pop("admission", {}))
        if isinstance(service, dict):
            table["service"] = {**service, "folder": "."}
        file = ServerFile.model_validate(table, context={"folder": folder, "within": folder})
        file.build_algorithm()
    place = host.service.model_dump() | {"folder": str(Path(host.service.folder) / "runs" / name)}
    return file.model_copy(
        update={"service": file.service.model_copy(update=place), "webhook": host.webhook}
    ), admission.rule()
