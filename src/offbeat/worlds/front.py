"""From a server's file to a front on another machine than the leader."""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.http_server import listen

from offbeat.config.server_file import ServerFile
from offbeat.service.front.front_process import FrontSettings, serve_front
from offbeat.service.internal.internal_certificates import front_context
from offbeat.service.server.event_loop import run_until_a_signal
from offbeat.service.server_settings import ServerSettings
from offbeat.worlds.serve import certificates_of


def run_front(file: ServerFile, ready: Callable[[], None]) -> None:
    """Run a front until SIGTERM or Ctrl-C.

    ``ready`` is called once it has found a leader.
    """
    if file.store is None or file.fronts is None:
        raise OffbeatError("a front needs [store] and [fronts] in the server's file: set them")
    settings = FrontSettings(
        folder=Path(file.service.folder) / "front",
        blobs=file.store.blobs,
        is_presigned=file.store.presigned,
        leaders=file.fronts.addresses,
        internal=file.fronts.certificates,
        certificates=certificates_of(file.service),
        requests_a_second=file.service.requests_a_second,
        connections_per_address=file.service.connections_per_address,
        burst=ServerSettings.burst,
        upload_budget=ServerSettings.upload_budget,
    )

    async def main(stop: asyncio.Event) -> None:
        # At once, so that a port in use is noticed; connections wait until a leader is found.
        with listen(file.service.host, file.service.port) as listener:
            await serve_front(settings, listener, stop, ready)

    os.umask(0o077)  # others may read nothing
    with _locked(settings.folder):
        front_context(file.fronts.certificates)  # so that files that cannot be used are noticed at once
        run_until_a_signal(main)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other fronts out of a folder, whose incomplete bodies they would write."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(folder / "front.lock", timeout=0.5):
            yield
    except Timeout:
        raise OffbeatError(f"{folder} is in use by another front: give this one another service.folder") from None
