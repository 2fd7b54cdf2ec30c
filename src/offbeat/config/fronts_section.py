"""``[fronts]``: servers that serve clients for the one that leads."""

from pathlib import Path
from typing import Annotated

from offbeat_core.serving.certificates import Certificates
from offbeat_core.tables.section import Section
from pydantic import Field, field_validator

from offbeat.config.user_paths import UserPath

_Port = Annotated[int, Field(ge=1, le=65535)]


class FrontsSection(Section):
    """The keys of ``[fronts]``, for servers that may lead and for fronts."""

    leaders: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """`HOST:PORT` of each server that may lead, where it listens for fronts."""
    host: str = "0.0.0.0"
    """The address at which this server listens for fronts while it leads."""
    port: _Port = 8444
    """Its TCP port."""
    ca: UserPath
    """The certificate that signed those of leaders and fronts, PEM; `offbeat server certificates` makes all of them."""
    certificate: UserPath
    """This machine's certificate, PEM."""
    key: UserPath
    """Its private key, PEM."""

    @field_validator("leaders")
    @classmethod
    def _check_leaders(cls, leaders: tuple[str, ...]) -> tuple[str, ...]:
        for leader in leaders:
            host, _, port = leader.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
                raise ValueError(f"leaders must be HOST:PORT, got {leader!r}")
        return leaders

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server that may lead."""
        return [(host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in self.leaders)]

    @property
    def certificates(self) -> Certificates:
        """The files for mutual TLS."""
        return Certificates(Path(self.ca), Path(self.certificate), Path(self.key))
