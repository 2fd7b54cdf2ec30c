"""The processor time that open live pages cost the server per update.

``make bench-viewers``, or ``python benchmarks/viewers.py [--quick]``. Clients upload updates of 31 kB as fast as the
server takes them. A pair is one measurement with viewers and one without, in turn first; the figure is the median of
the pairs' ratios, with their range. A viewer reads the events, and asks for the list of sites every five seconds, as
the page does.
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

from service_load import Client, Offbeat, body_of, together

LENGTH = 7_850
CONNECTIONS = 32
VIEWERS = 10
PAIRS = 11
UPDATES = 8_000  # of one measurement
LIST_SECONDS = 5.0


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


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three short pairs")
    quick = parser.parse_args().quick
    pairs, updates = (3, 2_000) if quick else (PAIRS, UPDATES)
    with tempfile.TemporaryDirectory() as folder:
        server = Offbeat(Path(folder), LENGTH, CONNECTIONS, tls=False)
        body = body_of(LENGTH)
        digest = hashlib.sha256(body).hexdigest()
        works = [partial(server.enrol().update, body, digest) for _ in range(CONNECTIONS)]
        together(server, works, 20)
        rates: list[float] = []  # events a second of a viewer

        def microseconds(number: int) -> float:
            with viewers(server, number) as opened:
                time.sleep(0.6)  # the first event has the whole history
                before, began = [viewer.events for viewer in opened], time.perf_counter()
                load = together(server, works, updates // CONNECTIONS)
                seconds = time.perf_counter() - began
                rates.extend((viewer.events - seen) / seconds for viewer, seen in zip(opened, before, strict=True))
            return 1e6 * load.server_cores / load.per_second

        ratios: list[float] = []
        plain: list[float] = []
        for pair in range(pairs):
            numbers = (0, VIEWERS) if pair % 2 else (VIEWERS, 0)
            found = {number: microseconds(number) for number in numbers}
            plain.append(found[0])
            ratios.append(found[VIEWERS] / found[0] - 1)
            print(f"pair {pair + 1}: {found[0]:.0f} µs, {found[VIEWERS]:.0f} µs with {VIEWERS} viewers", flush=True)
        server.stop()
    row = {
        "viewers": VIEWERS,
        "server_microseconds_an_update": round(statistics.median(plain)),
        "more_with_viewers": round(statistics.median(ratios), 4),
        "range": [round(min(ratios), 4), round(max(ratios), 4)],
        "events_a_second_and_viewer": round(statistics.median(rates), 2),
        "pairs": pairs,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
