"""The probe: how fast the client is, measured before its first visit if the server wants to know."""

import logging
import time
from pathlib import Path

from offbeat.compression import uncompressed_bytes
from offbeat.service.client.connection import Connection
from offbeat.service.client.contract import Fit
from offbeat.service.client.download import download
from offbeat.service.client.messages import Probe, read_probe
from offbeat.service.client.outbox import Outbox
from offbeat.service.client.refusal import ServiceError, UnreachableError
from offbeat.service.client.work import train

_log = logging.getLogger(__name__)


def probe(connection: Connection, folder: Path, client: int, fit: Fit, outbox: Outbox) -> None:
    """Measure the client's speed and report it, if the server asks for that; what fails on the way is left out.

    Args:
        connection: To the server, which speaks for the client.
        folder: The client's.
        client: Its number.
        fit: The user's.
        outbox: Where the client's memory is.

    Raises:
        OffbeatError: The user's code fails, or the server's answer is not understood.
    """
    try:
        wanted = read_probe(connection.ask("GET", "/v1/probe"), client)
        if wanted is None:
            return
        model = download(connection, wanted.visit.version, folder)
        # The first call may have much to load and to compile.
        step_seconds = min(train(wanted.visit, model, fit, outbox)[1] for _ in range(2))
        speed = {"step_seconds": step_seconds, "upload_seconds": _upload_seconds(connection, wanted)}
        connection.ask("POST", "/v1/probe", speed)
    except (ServiceError, UnreachableError) as error:
        # An older server does not ask; what else it may be shows when the client checks in.
        _log.info("without a probe: %s", error)
    else:
        _log.info("probe: %.3g s a step, %.3g s for a whole update", *speed.values())


def _upload_seconds(connection: Connection, wanted: Probe) -> float:
    """Return how long a whole update would take: a round trip, and its bytes at the rate of the probe's."""
    round_trip, seconds = (_put_seconds(connection, size) for size in (0, wanted.upload_bytes))
    whole = uncompressed_bytes(wanted.visit.length)
    return round_trip + max(seconds - round_trip, 0.0) * whole / wanted.upload_bytes


def _put_seconds(connection: Connection, size: int) -> float:
    began = time.perf_counter()
    connection.send("PUT", "/v1/probe", content=[bytes(size)], headers={"Content-Length": str(size)})
    return time.perf_counter() - began
