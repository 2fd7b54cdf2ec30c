"""A leader and a front with folders of their own, as on two machines, in this process."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.http_server import listen

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.service.front.front_process import FrontSettings, serve_front
from offbeat.service.server_settings import FrontsElsewhere
from offbeat.service.store_settings import StoreSettings
from tests.e2e.server_process import free_port
from tests.service.conftest import Peer, Served, running


@contextmanager
def leading_elsewhere(folder: Path, store: StoreSettings, certificates: Certificates) -> Generator[Served]:
    """Run a server that leads and listens for fronts; it writes no checkpoint by itself."""
    fronts = FrontsElsewhere("127.0.0.1", free_port(), certificates)
    make: Callable[[], FedBuff] = lambda: FedBuff(buffer_size=2, concurrency=10_000, staleness=constant())  # noqa: E731
    settings: dict[str, Any] = {"store": store, "fronts": fronts, "checkpoint_seconds": 1e6, "clients": 1000}
    with running(folder, make, **settings) as server:
        yield server


def address_of(server: Served) -> tuple[str, int]:
    """Return where a server listens for fronts."""
    elsewhere = server.fronts._elsewhere
    assert elsewhere is not None
    return elsewhere.host, elsewhere.port


@contextmanager
def front_elsewhere(
    folder: Path, store: StoreSettings, leader: Served, certificates: Certificates
) -> Generator[Callable[[str | None], Peer]]:
    """Run a front; the context has a function that makes a client of it, with a token."""
    found: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    settings = FrontSettings(
        folder=folder,
        blobs=store.blobs,
        is_presigned=store.presigned,
        leaders=[address_of(leader)],
        internal=certificates,
        requests_a_second=1e6,
        connections_per_address=None,
        burst=10**6,
        upload_budget=2**30,
    )

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        with listen("127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await serve_front(settings, listener, stop, lambda: found.set_result((url, loop, stop)))

    peers: list[Peer] = []
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: asyncio.run(main()))
        wait([found, ended], 30, return_when=FIRST_COMPLETED)
        if ended.done():
            ended.result()
        url, loop, stop = found.result(0)

        def peer(token: str | None) -> Peer:
            peers.append(Peer(url, token))
            return peers[-1]

        try:
            yield peer
        finally:
            for each in peers:
                each.http.close()
            loop.call_soon_threadsafe(stop.set)
        ended.result(30)
