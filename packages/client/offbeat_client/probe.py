"""The measurement of the client's speed before its first visit."""

import logging
import time
from pathlib import Path

from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import download
from offbeat_client.training import train
from offbeat_client.visit import Fit, visit_of
from offbeat_core.compression import uncompressed_bytes
from offbeat_core.errors import GiveUpError
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import Answer, Probe, Speed

_log = logging.getLogger(__name__)


def probe(connection: Connection, folder: Path, client: int, fit: Fit, outbox: Outbox) -> None:
    """Measure and report the client's speed if asked; a failed request ends it."""
    try:
        wanted = connection.ask("GET", "/v1/probe", Probe)
        if wanted.probe is None or wanted.upload_bytes < 1:
            return
        visit = visit_of(wanted.probe, client)
        model = download(connection, visit, folder)
        # The first call may load and compile.
        step_seconds = min(train(visit, model, fit, outbox)[1] for _ in range(2))
        upload_seconds = _upload_seconds(connection, visit.length, wanted.upload_bytes)
        speed = Speed(step_seconds=step_seconds, upload_seconds=upload_seconds)
        connection.ask("POST", "/v1/probe", Answer, speed)
    except (ServiceError, UnreachableError, GiveUpError) as error:
        # The cause shows when the client checks in.
        _log.info("without a probe: %s", error)
    else:
        _log.info("probe: %.3g s a step, %.3g s for a whole update", step_seconds, upload_seconds)


def _upload_seconds(connection: Connection, length: int, size: int) -> float:
    # A round trip, and the time for the bytes at the rate measured with ``size`` of them.
    round_trip, seconds = (_put_seconds(connection, each) for each in (0, size))
    return round_trip + max(seconds - round_trip, 0.0) * uncompressed_bytes(length) / size


def _put_seconds(connection: Connection, size: int) -> float:
    began = time.perf_counter()
    connection.send("PUT", "/v1/probe", content=[bytes(size)], headers={"Content-Length": str(size)})
    return time.perf_counter() - began
