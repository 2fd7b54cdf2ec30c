"""The processor time that open live pages cost the server per update.

``make bench-viewers``, or ``python benchmarks/viewers.py [--quick]``. A pair is one measurement with ten viewers and
one without, in turn first; the figures are medians over pairs, with a 95 % interval of the median and the range. A
viewer asks for the page's data every two seconds, as the page does. There are two loads of updates of 31 kB:

- paced: 64 updates a second, which the server can easily take. ``share_of_a_processor`` is what the viewers take.
- saturated: 32 clients that each upload again at once. ``ratio`` is the processor time per update with viewers, divided
  by that without. The number of updates that share a write to the disk varies, and the ratio of one pair with it.
"""

import argparse
import hashlib
import json
import math
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from service_load import Client, Load, Offbeat, body_of, together

LENGTH = 7_850
CONNECTIONS = 32
VIEWERS = 10
PAIRS = 24
SECONDS = 5.0  # of one measurement
RATE = 64  # updates a second
SATURATED_UPDATES = 1280  # of one measurement
PAUSE_SECONDS = 2.0  # of a page


class Viewer:
    """An open page."""

    def __init__(self, server: Offbeat) -> None:
        self.answers = 0
        self._client = Client(server.connect(), server.admin_token)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        since = ""
        while True:
            since = self._client.ask("GET", f"/v1/admin/live?since={since}")["id"]
            self.answers += 1
            if self._stop.wait(PAUSE_SECONDS):
                return

    def close(self) -> None:
        """Leave the page."""
        self._stop.set()
        self._thread.join()
        self._client.line.close()


@contextmanager
def viewers(server: Offbeat, number: int) -> Generator[list[Viewer]]:
    """Hold so many pages open within the context."""
    opened = [Viewer(server) for _ in range(number)]
    try:
        yield opened
    finally:
        for viewer in opened:
            viewer.close()


def paced(client: Client, body: memoryview, digest: dict[str, str]) -> None:
    """Upload an update, and wait for the client's next turn."""
    due = time.perf_counter() + CONNECTIONS / RATE
    client.update(body, digest)
    time.sleep(max(0.0, due - time.perf_counter()))


class Bench:
    """A server, its clients, and pairs of measurements.

    Args:
        server: The server.
        pairs: How many pairs.
    """

    def __init__(self, server: Offbeat, pairs: int) -> None:
        self._server = server
        self._pairs = pairs
        self._body = body_of(LENGTH)
        self._digest = {"sha256": hashlib.sha256(self._body).hexdigest()}
        self._clients = [server.enrol() for _ in range(CONNECTIONS)]
        self.rates: list[float] = []  # answers a second of a viewer

    def pairs(
        self, work: Callable[[Client, memoryview, dict[str, str]], None], updates: int
    ) -> list[tuple[Load, Load]]:
        """Return pairs of loads of so many updates, without viewers and with them."""
        works = [partial(work, client, self._body, self._digest) for client in self._clients]
        together(self._server, works, 2)
        found: list[tuple[Load, Load]] = []
        for pair in range(self._pairs):
            numbers = (0, VIEWERS) if pair % 2 else (VIEWERS, 0)
            loads = {number: self._load(number, works, updates) for number in numbers}
            found.append((loads[0], loads[VIEWERS]))
            micros = 1e6 * seconds_of(loads[0])
            print(
                f"pair {pair + 1}: {micros:.0f} µs an update, with viewers {ratio_of(found[-1]):.3f} times", flush=True
            )
        return found

    def _load(self, number: int, works: Sequence[Callable[[], None]], updates: int) -> Load:
        with viewers(self._server, number) as opened:
            while not all(viewer.answers for viewer in opened):  # the first one has the whole history
                time.sleep(0.05)
            before, began = [viewer.answers for viewer in opened], time.perf_counter()
            found = together(self._server, works, updates // CONNECTIONS)
            seconds = time.perf_counter() - began
            self.rates.extend((viewer.answers - seen) / seconds for viewer, seen in zip(opened, before, strict=True))
        return found


def seconds_of(load: Load) -> float:
    """Return the server's processor time per update, in seconds."""
    return load.server_cores / load.per_second


def ratio_of(pair: tuple[Load, Load]) -> float:
    """Return the processor time per update with viewers, divided by that without."""
    return seconds_of(pair[1]) / seconds_of(pair[0])


def spread(values: Sequence[float], digits: int) -> dict[str, object]:
    """Return the median, its 95 % interval by order statistics, and the range."""
    ordered, number = sorted(values), len(values)
    low = max(math.floor(number / 2 - 0.98 * math.sqrt(number)) - 1, 0)
    return {
        "median": round(statistics.median(values), digits),
        "interval": [round(ordered[low], digits), round(ordered[number - 1 - low], digits)],
        "range": [round(ordered[0], digits), round(ordered[-1], digits)],
    }


def main() -> None:
    """Measure, and print a line of JSON for each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six pairs")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"so many pairs instead of {PAIRS}")
    parser.add_argument("--load", choices=["paced", "saturated"], action="append", help="only this one")
    options = parser.parse_args()
    loads = {"paced": (paced, round(SECONDS * RATE)), "saturated": (Client.update, SATURATED_UPDATES)}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.load or loads:
            server = Offbeat(Path(folder), LENGTH, CONNECTIONS, tls=False)
            bench = Bench(server, 6 if options.quick else options.pairs)
            found = bench.pairs(*loads[name])
            server.stop()
            row = {
                "load": name,
                "viewers": VIEWERS,
                "answers_a_second_and_viewer": round(statistics.median(bench.rates), 2),
                "updates_a_second": round(statistics.median(plain.per_second for plain, _ in found)),
                "processors": round(statistics.median(plain.server_cores for plain, _ in found), 2),
                "microseconds_an_update": round(1e6 * statistics.median(seconds_of(plain) for plain, _ in found)),
                "pairs": len(found),
            }
            if name == "paced":
                more = [with_viewers.server_cores - plain.server_cores for plain, with_viewers in found]
                row["share_of_a_processor"] = spread(more, 4)
            else:
                row["ratio"] = spread([ratio_of(pair) for pair in found], 3)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
