"""The processor time that open live pages cost the server per update.

``make bench-viewers``, or ``python benchmarks/viewers.py [--quick]``. Clients upload 64 updates of 31 kB a second,
which the server can easily take: at its limit the time for an update varies with the number of updates that share a
write to the disk, by more than what is measured here. A pair is one measurement with ten viewers and one without, in
turn first; the figures are medians over pairs, with their range. A viewer reads the events, and asks for the list of
sites every ten seconds, as the page does.

The events do not become more with the load. So of a server that has as many updates as one processor can take, the
viewers take ``share_of_a_processor``, and as much of its throughput.
"""

import argparse
import hashlib
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from service_load import Client, Load, Offbeat, body_of, together

LENGTH = 7_850
CONNECTIONS = 32
VIEWERS = 10
PAIRS = 24
SECONDS = 5.0  # of one measurement
RATE = 64  # updates a second
LIST_SECONDS = 10.0


class Viewer:
    """An open page: a stream of events, and regular requests for the list of sites."""

    def __init__(self, server: Offbeat) -> None:
        self.events = 0
        self._stream = server.connect()
        self._lists = Client(server.connect(), server.admin_token)
        head = f"GET /v1/admin/events HTTP/1.1\r\nHost: offbeat\r\nAuthorization: Bearer {server.admin_token}\r\n\r\n"
        self._stream.sendall(head.encode())
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._read, self._list)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := self._stream.recv(2**16):
                self.events += data.count(b"\nid: ") + data.startswith(b"id: ")

    def _list(self) -> None:
        while not self._stop.wait(LIST_SECONDS):
            self._lists.ask("GET", "/v1/admin/clients?limit=50")

    def close(self) -> None:
        """Leave the page."""
        self._stop.set()
        self._stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._stream.close()
        self._lists.line.close()


@contextmanager
def viewers(server: Offbeat, number: int) -> Generator[list[Viewer]]:
    """Hold so many pages open within the context."""
    opened = [Viewer(server) for _ in range(number)]
    try:
        yield opened
    finally:
        for viewer in opened:
            viewer.close()


def paced(client: Client, body: memoryview, digest: str) -> None:
    """Upload an update, and wait for the client's next turn."""
    due = time.perf_counter() + CONNECTIONS / RATE
    client.update(body, digest)
    time.sleep(max(0.0, due - time.perf_counter()))


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six pairs")
    quick = parser.parse_args().quick
    pairs = 6 if quick else PAIRS
    with tempfile.TemporaryDirectory() as folder:
        server = Offbeat(Path(folder), LENGTH, CONNECTIONS, tls=False)
        body = body_of(LENGTH)
        digest = hashlib.sha256(body).hexdigest()
        works = [partial(paced, server.enrol(), body, digest) for _ in range(CONNECTIONS)]
        together(server, works, 2)
        rates: list[float] = []  # events a second of a viewer

        def load(number: int) -> Load:
            with viewers(server, number) as opened:
                while not all(viewer.events for viewer in opened):  # the first one has the whole history
                    time.sleep(0.05)
                before, began = [viewer.events for viewer in opened], time.perf_counter()
                found = together(server, works, round(SECONDS * RATE / CONNECTIONS))
                seconds = time.perf_counter() - began
                rates.extend((viewer.events - seen) / seconds for viewer, seen in zip(opened, before, strict=True))
            return found

        plain: list[Load] = []
        more: list[float] = []  # processors
        for pair in range(pairs):
            numbers = (0, VIEWERS) if pair % 2 else (VIEWERS, 0)
            found = {number: load(number) for number in numbers}
            plain.append(found[0])
            more.append(found[VIEWERS].server_cores - found[0].server_cores)
            print(f"pair {pair + 1}: {found[0].server_cores:.4f} processors, {more[-1]:+.4f} with viewers", flush=True)
        server.stop()
    an_update = statistics.median(load.server_cores / load.per_second for load in plain)
    rate = statistics.median(load.per_second for load in plain)
    row = {
        "viewers": VIEWERS,
        "events_a_second_and_viewer": round(statistics.median(rates), 2),
        "share_of_a_processor": round(statistics.median(more), 4),
        "range": [round(min(more), 4), round(max(more), 4)],
        "updates_a_second": round(rate),
        "microseconds_an_update": round(1e6 * an_update),
        "more_microseconds_an_update": round(1e6 * statistics.median(more) / rate),
        "pairs": pairs,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
