"""The helper's process: start, listen, stop."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from offbeat_core.serving.certificates import make_certificates
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from offbeat_private.helper.app import make_app
from offbeat_private.helper.folder import HelperFolder
from offbeat_private.helper.helper import Helper

_GRACE_SECONDS = 10.0  # for a batch that is being opened when the helper stops


def run_helper(folder: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Run the helper of a folder until SIGTERM or Ctrl-C.

    ``ready`` gets its URL once it listens.
    """

    async def until_a_signal() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(folder, host, port, ready=ready, stop=stop)

    asyncio.run(until_a_signal())


async def serve(folder: Path, host: str, port: int, *, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Run the helper of a folder until ``stop`` is set.

    It finishes the batch that it is opening.
    """
    with closing(Helper(folder)) as helper, listen(host, port, "choose another --host or --port") as listener:
        certificates = make_certificates(HelperFolder(folder).tls, helper.run.hosts)
        port, limit = listener.getsockname()[1], max_connections(raise_file_limit())
        url = f"https://{host}:{port}"
        connections = Connections(port, limit // 4)
        server = HttpServer(make_app(helper, connections), listener, certificates, limit)
        serving, stopping = asyncio.create_task(server.serve()), asyncio.create_task(stop.wait())
        watching = asyncio.create_task(connections.keep_watch())
        try:
            ready(url)
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.stop()
            await asyncio.wait([serving], timeout=_GRACE_SECONDS)
            await asyncio.sleep(0.1)  # Granian's own threads end a moment later
            stopping.cancel()
            watching.cancel()
        if serving.done():
            serving.result()
