"""Requests that nobody honest makes, and races that nobody plans: nothing is lost, counted twice or made worse by them.

Most end with the same look at what the server keeps: every record of the log finds its update, whole and as it was
announced, and no visit is in it twice.
"""

import asyncio
import errno
import hashlib
import http.client
import io
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.service.engine.facade import Limits
from tests.service.conftest import LENGTH, Peer, Served, body_of, running
from tests.service.http.test_routes import kind_of

ONES = torch.ones(LENGTH)
NANS = torch.full((LENGTH,), float("nan"))


class Received(io.BufferedReader):
    """What comes over a line: of answers that arrive together each is read by itself."""

    def makefile(self, mode: str) -> "Received":
        return self

    def close(self) -> None:
        pass


class Line:
    """A connection over which one says what one likes."""

    def __init__(self, server: Served, token: str | None = None) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self._received = Received(self.socket.makefile("rb", buffering=0))
        self._authorization = f"Authorization: {token}\r\n" if token else ""
        self._method = "GET"

    def begin(self, method: str, path: str, *headers: str, length: int | None = None) -> None:
        """Send the head of a request."""
        self._method = method
        host = [] if any(header.startswith("Host:") for header in headers) else ["Host: server"]
        lines = [f"{method} {path} HTTP/1.1", *host, *headers]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        self.send(("\r\n".join(lines) + "\r\n" + self._authorization + "\r\n").encode("latin-1"))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> httpx.Response:
        """Return the next answer."""
        with closing(http.client.HTTPResponse(self._received, method=self._method)) as answer:
            answer.begin()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())

    def close(self) -> None:
        self._received.raw.close()
        self.socket.close()


@contextmanager
def line(server: Served, peer: Peer | None = None) -> Generator[Line]:
    with closing(Line(server, peer.http.headers["authorization"] if peer else None)) as opened:
        yield opened


def ask(server: Served, peer: Peer | None, method: str, path: str, *headers: str, body: bytes = b"") -> httpx.Response:
    """Make one request."""
    with line(server, peer) as opened:
        opened.begin(method, path, "Connection: close", *headers, length=len(body) if body else None)
        if body:
            opened.send(body)
        return opened.answer()


def begin_upload(opened: Line, peer: Peer, visit: dict[str, Any], body: bytes, *, offset: int = 0, end: int) -> None:
    """Send the head of an upload of ``body[offset:end]``."""
    head = json.dumps(peer.head(visit, body))
    opened.begin(
        "PUT",
        f"/v1/uploads/{visit['number']}",
        f"Offbeat-Update: {head}",
        f"Upload-Offset: {offset}",
        length=end - offset,
    )


def put_in_pieces(peer: Peer, visit: dict[str, Any], body: bytes) -> httpx.Response:
    """Upload a body such that it takes the large ones' way."""
    head = peer.head(visit, body)
    first = peer.put(visit, body[:10], head=head)
    assert first.status_code == 202, first.text
    return peer.put(visit, body, offset=10, head=head)


def kept(server: Served) -> Any:
    """Return all that a refused request must leave as it was."""
    engine = server.service.engine
    files = {str(path): path.stat().st_size for path in (server.folder / "updates").iterdir()}
    return engine.journal.number, asdict(engine.coordinator.statistics), files


def check_log(folder: Path) -> None:
    """Check that each record that a restart would read finds its update, and that none is there twice."""
    checkpoint = max(int(path.stem) for path in (folder / "checkpoints").glob("*.safetensors"))
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        rows = database.execute("SELECT number, arguments, file, offset, size, digest FROM log WHERE name = 'receive'")
        visits = set()
        for number, arguments, file, offset, size, digest in rows:
            values = json.loads(arguments)
            visit = values["client"], values["visit"]
            assert visit not in visits, f"{visit} was applied twice"
            visits.add(visit)
            if number > checkpoint and file is not None:
                body = (folder / "updates" / file).read_bytes()[offset : offset + size]
                assert hashlib.sha256(body).hexdigest() == digest, f"the update of {visit} is another one now"


def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def goes_on(server: Served, peers: list[Peer]) -> None:
    """Check that honest clients bring the run forward."""
    before = server.service.engine.coordinator.statistics.counted
    for peer in peers:
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, ONES)["counted"]
    assert server.service.engine.coordinator.statistics.counted == before + len(peers)
    assert server.admin.http.get("/v1/status").status_code == 200


class Gate:
    """Holds those who have checked a large body, until it is opened."""

    def __init__(self, check: Callable[..., float]) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._check = check

    def __call__(self, *arguments: Any) -> float:
        norm = self._check(*arguments)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a large one, in a thread
            if not self.reached.is_set():
                self.reached.set()
                assert self.opened.wait(10)
        return norm


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Holds the first large body between its check and what comes after that."""
    from offbeat.service.engine import facade as service

    made = Gate(service.check_body)
    monkeypatch.setattr(service, "check_body", made)
    return made


@contextmanager
def locked(server: Served) -> Generator[None]:
    """Hold the engine's lock, as the making of a large version does."""
    loop = server.service.engine.journal._loop
    asyncio.run_coroutine_threadsafe(server.service.engine.lock.acquire(), loop).result(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.service.engine.lock.release)


# One client, two lines.


def test_what_was_checked_is_what_is_applied_whatever_comes_over_another_line(server, gate):
    peer, other = server.enrol(), server.enrol()
    visit, good, bad = peer.check_in(), body_of(ONES), body_of(NANS)
    with ThreadPoolExecutor(1) as pool, line(server, peer) as second:
        first = pool.submit(put_in_pieces, peer, visit, good)
        assert gate.reached.wait(10)
        # 104 bytes of NaN in two pieces, so that they go into the same file.
        begin_upload(second, peer, visit, bad, end=len(bad) - 1)
        second.send(bad[: len(bad) - 1])
        time.sleep(0.2)
        gate.opened.set()
        one, two = first.result(10), second.answer()
        assert {one.status_code, two.status_code} <= {200, 202, 409}
    if one.status_code == 200:
        check_log(server.folder)
    else:
        assert kind_of(peer.put(visit, bad), 422) == "not-finite"
        assert peer.send(visit, ONES)["counted"]
    goes_on(server, [other, peer, other])
    check_log(server.folder)
    last = server.service.engine.models.versions()
    assert server.service.engine.models.read(max(last)).isfinite().all()


def test_who_sends_the_rest_of_nothing_while_the_whole_is_checked_gets_the_same_answer(server, gate):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(put_in_pieces, peer, visit, body)
        assert gate.reached.wait(10)
        assert peer.http.get("/v1/uploads/0").json()["offset"] in (0, len(body))
        second = pool.submit(peer.put, visit, body, offset=len(body))
        time.sleep(0.2)
        gate.opened.set()
        answers = [first.result(10), second.result(10)]
    assert [answer.status_code for answer in answers if answer.status_code not in (200, 409, 503)] == []
    assert 200 in [answer.status_code for answer in answers]
    assert server.service.engine.coordinator.statistics.counted == 1
    check_log(server.folder)
    goes_on(server, [peer])


def test_a_new_visit_may_begin_to_upload_while_the_old_one_is_checked(server, gate):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(put_in_pieces, peer, visit, body)
        assert gate.reached.wait(10)
        assert peer.http.post("/v1/visits/0/give-up").status_code == 204
        again = peer.check_in()
        assert again["number"] == 1
        assert peer.put(again, body[:10], head=peer.head(again, body)).status_code == 202
        gate.opened.set()
        assert first.result(10).status_code < 500
    assert peer.put(again, body, offset=10, head=peer.head(again, body)).json()["receipt"]["counted"]
    check_log(server.folder)


def test_other_bytes_that_come_late_do_not_take_the_place_of_those_that_were_acknowledged(tmp_path):
    one, two = body_of(ONES), body_of(2 * ONES)
    with running(tmp_path / "server") as server:
        peer, other = server.enrol(), server.enrol()
        visit = peer.check_in()
        updates = server.folder / "updates"
        with ThreadPoolExecutor(2) as pool:
            with locked(server):
                first = pool.submit(put_in_pieces, peer, visit, one)
                until(lambda: list(updates.glob("0-0-*")) or first.done())
                time.sleep(0.1)
                second = pool.submit(put_in_pieces, peer, visit, two)
                time.sleep(0.3)
            answers = [first.result(10), second.result(10)]
        assert answers[0].status_code == 200
        assert kind_of(answers[1], 409) == "other-upload"
        check_log(server.folder)
        goes_on(server, [other])
    with running(tmp_path / "server") as server:
        assert server.service.engine.coordinator.statistics.counted == 2


@pytest.mark.parametrize("connections", [20])
def test_the_same_small_upload_over_many_lines_counts_once(connections, server):
    peer, other = server.enrol(), server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    answers = at_once(server, peer, visit, [body] * connections)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert server.service.engine.coordinator.statistics.counted == 1
    goes_on(server, [other])
    check_log(server.folder)


def test_of_different_updates_of_one_visit_at_once_one_counts(server):
    peer = server.enrol()
    visit = peer.check_in()
    answers = at_once(server, peer, visit, [body_of(number * ONES) for number in range(10)])
    assert sorted(answer.status_code for answer in answers) == [200] + 9 * [409]
    assert {answer.json()["kind"] for answer in answers if answer.status_code == 409} == {"other-upload"}
    assert server.service.engine.coordinator.statistics.counted == 1
    check_log(server.folder)


def at_once(server: Served, peer: Peer, visit: dict[str, Any], bodies: list[bytes]) -> list[httpx.Response]:
    """Upload over one line for each body, all but the last byte first, then the last bytes together."""
    lines = [Line(server, peer.http.headers["authorization"]) for _ in bodies]
    try:
        for opened, body in zip(lines, bodies, strict=True):
            begin_upload(opened, peer, visit, body, end=len(body))
            opened.send(body[:-1])
        for opened, body in zip(lines, bodies, strict=True):
            opened.send(body[-1:])
        return [opened.answer() for opened in lines]
    finally:
        for opened in lines:
            opened.close()


def test_an_upload_that_is_under_way_while_its_client_gives_up_and_checks_in_counts_for_its_own_visit(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body[:40])
        assert peer.http.post("/v1/visits/0/give-up").status_code == 204
        assert peer.http.post("/v1/visits/0/heartbeat").status_code == 200
        again = peer.check_in()
        assert again["number"] == 1
        opened.send(body[40:])
        answer = opened.answer()
    # The old visit's work is over with the new one: it is acknowledged, and unused.
    assert answer.json()["receipt"]["counted"] is False
    assert peer.send(again, ONES)["counted"]
    check_log(server.folder)


def test_a_lease_that_lapses_while_the_upload_is_under_way_does_not_make_it_unwelcome(tmp_path):
    with running(tmp_path / "server", lease_seconds=0.2) as server:
        peer = server.enrol()
        visit, body = peer.check_in(), body_of(ONES)
        with line(server, peer) as opened:
            begin_upload(opened, peer, visit, body, end=len(body))
            opened.send(body[:40])
            until(lambda: server.service.engine.coordinator.statistics.lost == 1)
            opened.send(body[40:])
            assert opened.answer().json()["receipt"]["counted"]
        assert server.service.engine.coordinator.statistics.lost == 0


def test_a_run_that_ends_while_an_upload_is_under_way_acknowledges_it_as_unused(tmp_path):
    with running(tmp_path / "server", stop_versions=1) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers]
        body = body_of(ONES)
        with line(server, peers[0]) as small, line(server, peers[0]) as late:
            begin_upload(small, peers[0], visits[0], body, end=len(body))
            small.send(body[:40])
            for peer, visit in zip(peers[1:], visits[1:], strict=True):
                peer.send(visit, ONES)
            before = kept(server)[:2]
            small.send(body[40:])
            assert small.answer().json()["receipt"]["counted"] is False
            late.begin("POST", "/v1/visits/0/give-up")
            assert late.answer().status_code == 204
        assert peers[0].send(visits[0], 2 * ONES)["counted"] is False
        assert kept(server)[1]["counted"] == before[1]["counted"] == 2
        assert server.admin.http.get("/v1/status").json()["version"] == 1


def test_a_checkpoint_deletes_nothing_that_an_upload_under_way_needs(tmp_path):
    from offbeat.service.engine.start_up import checkpoint

    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        peers = [server.enrol() for _ in range(4)]
        loop, stop = server.service.engine.journal._loop, threading.Event()

        def checkpoints() -> None:
            while not stop.is_set():
                asyncio.run_coroutine_threadsafe(checkpoint(server.folder, server.service.engine), loop).result(10)

        def uploads(peer: Peer) -> None:
            for number in range(25):
                visit = peer.check_in()
                send = put_in_pieces if number % 3 == 0 else peer.put
                answer = send(peer, visit, body_of(ONES)) if send is put_in_pieces else peer.put(visit, body_of(ONES))
                assert answer.json()["receipt"]["counted"]

        with ThreadPoolExecutor(5) as pool:
            checks = pool.submit(checkpoints)
            for done in [pool.submit(uploads, peer) for peer in peers]:
                done.result(30)
            stop.set()
            checks.result(10)
        check_log(server.folder)
        assert server.service.engine.coordinator.statistics.counted == 100
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        assert server.service.engine.coordinator.statistics.counted == 100
        assert torch.equal(server.service.engine.coordinator.algorithm.state_dict()["buffer.sum"], 100 * ONES)


# Lines that break, lie or are slow.


def test_what_has_arrived_when_a_line_breaks_is_kept(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body) - 1)
        opened.send(body[:60])
        time.sleep(0.1)
    until(lambda: not server.service.uploads._large)
    assert peer.http.get("/v1/uploads/0").json()["offset"] == 60
    assert peer.put(visit, body, offset=60, head=peer.head(visit, body)).json()["receipt"]["counted"]


def test_a_small_body_that_breaks_off_changes_nothing(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    before = kept(server)
    for half in (True, False):
        with line(server, peer) as opened:
            begin_upload(opened, peer, visit, body, end=len(body))
            opened.send(body[:60])
            if half:
                opened.socket.shutdown(socket.SHUT_WR)
                time.sleep(0.1)
    assert peer.http.get("/v1/uploads/0").json() == {"wanted": True, "offset": 0, "receipt": None}
    assert kept(server) == before
    goes_on(server, [peer])


def test_a_chunked_body_with_a_length_is_not_read_beyond_it(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    before = kept(server)
    head = f"Offbeat-Update: {json.dumps(peer.head(visit, body))}"
    megabyte = b"100000\r\n" + bytes(2**20) + b"\r\n"
    for order in (1, -1):
        headers = [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"][::order]
        sent = 0
        with line(server, peer) as opened:
            opened.begin("PUT", "/v1/uploads/0", head, *headers)
            try:
                while sent < 100:
                    opened.send(megabyte)
                    sent += 1
            except ConnectionError:
                pass
        assert sent < 32
    assert kept(server) == before
    goes_on(server, [peer])


def test_a_body_that_belongs_to_a_refused_request_is_not_taken_for_another_request(server):
    token = server.admin.http.headers["authorization"]
    inner = f"DELETE /v1/clients/0 HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n"
    peer = server.enrol()
    with line(server) as opened:
        opened.begin("PUT", "/v1/uploads/0", length=len(inner))
        opened.send(inner.encode())
        assert kind_of(opened.answer(), 401) == "no-token"
        opened.socket.settimeout(0.3)
        try:
            rest = opened.socket.recv(1000)
        except (TimeoutError, ConnectionError):
            rest = b""
        assert rest == b""
    assert peer.check_in() is not None


def test_requests_that_come_before_the_answers_are_answered_in_order(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body)
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body)
        opened.begin("GET", "/v1/uploads/0")
        answers = [opened.answer() for _ in range(3)]
    assert answers[0].json() == answers[1].json()
    assert answers[2].json()["receipt"] == answers[0].json()["receipt"]
    assert server.service.engine.coordinator.statistics.counted == 1


@pytest.mark.parametrize("length", ["-1", "+5", "abc", "9" * 30, "5, 5", "3\r\nContent-Length: 104"])
def test_a_length_that_is_none_is_refused(length, listener, peer):
    visit, body = peer.check_in(), body_of(ONES)
    before = kept(listener)
    head = f"Offbeat-Update: {json.dumps(peer.head(visit, body))}"
    answer = ask(listener, peer, "PUT", "/v1/uploads/0", head, f"Content-Length: {length}")
    assert answer.status_code == 400
    assert kept(listener) == before


@pytest.mark.parametrize("offset", ["-1", "1", "103", "104", "105", "9" * 18, "9" * 30, "9" * 5000, "x", "", "0.5"])
def test_an_offset_that_lies_changes_nothing(offset, listener, peer):
    visit, body = peer.check_in(), body_of(ONES)
    before = kept(listener)
    head = f"Offbeat-Update: {json.dumps(peer.head(visit, body))}"
    rest = body[int(offset) :] if offset in ("103", "104") else body
    length = f"Content-Length: {len(rest)}"
    with line(listener, peer) as opened:
        opened.begin("PUT", "/v1/uploads/0", head, f"Upload-Offset: {offset}", length)
        opened.send(rest)
        assert opened.answer().status_code in (400, 409, 413)
    assert kept(listener) == before


def test_an_upload_that_stands_still_leaves_room_for_others_once_its_line_is_gone(tmp_path):
    body = body_of(ONES)
    with running(tmp_path / "server", upload_budget=len(body)) as server:
        slow, honest = server.enrol(), server.enrol()
        visits = [slow.check_in(), honest.check_in()]
        with line(server, slow) as opened:
            begin_upload(opened, slow, visits[0], body, end=len(body) - 1)
            opened.send(body[:10])
            until(lambda: server.service.uploads._large)
            answer = honest.put(visits[1], body[:10], head=honest.head(visits[1], body))
            assert kind_of(answer, 503) == "busy"
            assert answer.headers["retry-after"]
        until(lambda: not server.service.uploads._large)
        assert put_in_pieces(honest, visits[1], body).json()["receipt"]["counted"]


# Disk.


@pytest.mark.parametrize(
    "in_pieces",
    [
        pytest.param(False, id="small"),
        pytest.param(True, id="large"),
    ],
)
def test_what_is_refused_takes_no_room_on_the_disk(in_pieces, server):
    peer = server.enrol()
    visit = peer.check_in()
    put = put_in_pieces if in_pieces else lambda peer, visit, body: peer.put(visit, body)
    assert kind_of(put(peer, visit, body_of(NANS)), 422) == "not-finite"
    before = sum(path.stat().st_size for path in server.folder.rglob("[0-9s]*") if path.parent.name in ROOMS)
    for _ in range(20):
        assert kind_of(put(peer, visit, body_of(NANS)), 422) == "not-finite"
    assert before == sum(path.stat().st_size for path in server.folder.rglob("[0-9s]*") if path.parent.name in ROOMS)
    goes_on(server, [peer])


ROOMS = ("updates", "partial")


def test_a_disk_that_is_full_when_a_lease_lapses_does_not_end_the_server(tmp_path, monkeypatch):
    from offbeat.algorithms import FedAvg
    from offbeat.service.store.model_files import ModelFiles

    write, full = ModelFiles.write, threading.Event()

    def fails(self: ModelFiles, version: int, *vectors: torch.Tensor | None) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, version, *vectors)

    monkeypatch.setattr(ModelFiles, "write", fails)
    with running(tmp_path / "server", lambda: FedAvg(cohort=2), lease_seconds=0.4) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers[:2]]
        full.set()
        assert peers[0].send(visits[0], ONES)["counted"]
        with ThreadPoolExecutor(1) as pool:
            # There is work when the other's lease has lapsed.
            waits = pool.submit(peers[2].http.post, "/v1/checkin", json={"wait_seconds": 3.0})
            time.sleep(1.0)
            assert peers[0].http.get("/healthz").status_code == 200
            assert peers[0].http.get("/readyz").status_code == 503
            full.clear()
            assert waits.result(10).status_code in (200, 503)
        until(lambda: peers[2].http.get("/readyz").status_code == 200)
        assert peers[2].check_in()["version"] == 1


def test_a_check_in_that_cannot_be_answered_leaves_nobody_waiting(tmp_path, monkeypatch):
    from offbeat.service.store.model_files import ModelFiles

    write, full = ModelFiles.write, threading.Event()

    def fails(self: ModelFiles, version: int, *vectors: torch.Tensor | None) -> None:
        if full.is_set() and version:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, version, *vectors)

    monkeypatch.setattr(ModelFiles, "write", fails)
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2)) as server:
        peers = [server.enrol() for _ in range(3)]
        peers[0].send(peers[0].check_in(), ONES)
        full.set()
        answer = peers[1].http.post("/v1/checkin", json={})
        assert kind_of(answer, 503) == "no-space"
        assert len(server.service.engine.waiting) == 0
        full.clear()
        until(lambda: peers[2].http.get("/readyz").status_code == 200)
        assert peers[2].check_in()["version"] == 1
        assert server.service.engine.coordinator.statistics.assigned == 2


def test_files_that_nobody_knows_do_not_keep_a_server_from_starting_or_going_on(tmp_path):
    folder = tmp_path / "server"
    with running(folder) as server:
        peer = server.enrol()
        goes_on(server, [peer, peer])
        token = peer.http.headers["authorization"].removeprefix("Bearer ")
    for name in ("models", "updates", "checkpoints", "partial"):
        (folder / name / "notes.safetensors").write_text("mine")
        (folder / name / ".swp").write_text("mine")
    with running(folder, checkpoint_seconds=0.1) as server:
        peer = server.peer(token)
        (folder / "models" / "more.safetensors").write_text("mine")
        assert peer.http.get("/v1/models/latest", follow_redirects=True).status_code == 200
        goes_on(server, [peer, peer])
        time.sleep(0.5)
        goes_on(server, [peer])


# Words: one server for all of them, since none changes anything.


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with running(tmp_path_factory.mktemp("listener") / "server", clients=1000) as served:
        yield served


@pytest.fixture
def peer(listener: Served) -> Generator[Peer]:
    """A client that has work before, and does it after."""
    made = listener.enrol()
    visit = made.check_in()
    before = kept(listener)
    yield made
    assert kept(listener) == before
    assert made.send(visit, ONES)["counted"]


@pytest.mark.parametrize(
    "token",
    [
        "Bearer \xe9",
        pytest.param(
            "Bearer \xe9abc" + "A" * 43,
        ),
        "Bearer obc_" + "\xe9" * 43,
        "Bearer " + "x" * 50_000,
        "Basic x",
        "\xff",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("path", ["/v1/checkin", "/v1/enrol", "/v1/enrolment-tokens"])
def test_a_token_that_is_none_is_unknown(token, path, listener):
    with line(listener) as opened:
        opened.begin("POST", path, f"Authorization: {token}", "Content-Type: application/json", length=2)
        opened.send(b"{}")
        assert kind_of(opened.answer(), 401) in ("unknown-token", "no-token")


@pytest.mark.parametrize(
    "body",
    [
        b'{"wait_seconds": NaN}',
        b'{"wait_seconds": 1' + b"0" * 400 + b"}",
        b'{"wait_seconds": 1' + b"0" * 5000 + b"}",
        b'{"wait_seconds": true}',
        b'{"\\ud800": 1}',
        pytest.param(b'{"a\\nb\\r\\u2028": 1}'),
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"\xff\xfe{",
        b"null",
        b'{"wait_seconds": 0, "wait_seconds": "x"}',
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_json_that_is_a_trap_is_refused_in_one_line(body, listener, peer):
    answer = ask(listener, peer, "POST", "/v1/checkin", "Content-Type: application/json", body=body)
    assert kind_of(answer, 400) == "malformed-request"
    assert len(answer.json()["detail"].splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["\\ud800", "\\u0000", "\xe9\u4e2d\U0001f600", "a" * 101, "'); DROP TABLE clients; --"]
)
def test_a_name_may_be_anything_or_is_refused(name, listener):
    body = f'{{"name": "{name}"}}'.encode()
    enrols = listener.peer(listener.enrolment_token)
    answer = ask(listener, enrols, "POST", "/v1/enrol", "Content-Type: application/json", body=body)
    assert answer.status_code in (201, 400)
    goes_on(listener, [listener.enrol()])


@pytest.mark.parametrize(
    "path",
    ["/v1/models/%ff", "/v1/models/%00", "/v1/models/0%2f..%2f0", "/v1/models/" + "9" * 5000, "/v1/models/%D9%A0",
     "/v1/../v1/models/x", "//v1/models/0", "*", "/v1/uploads/%F0%9F%98%80", "/v1/models/\xff", "/v1/models/1e0"],
    ids=ascii,
)  # fmt: skip
def test_a_path_that_leads_nowhere_is_refused(path, listener, peer):
    assert ask(listener, peer, "GET", path).status_code in (400, 404)


def test_a_path_with_a_slash_too_many_leads_to_no_other_host(listener, peer):
    answer = ask(listener, peer, "GET", "/v1/models/0/", "Host: evil.example")
    assert "evil.example" not in answer.headers.get("location", "")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "DELETE", "PUT", "GETT"])
def test_a_method_that_a_path_does_not_have_is_refused(method, listener, peer):
    assert ask(listener, peer, method, "/v1/models/0").status_code == 405


@pytest.mark.parametrize(
    "ranges",
    ["bytes=", "bytes=a-b", "bytes=5-2", "bytes=-0", "bytes=--1", "bytes=" + "9" * 5000 + "-", "lines=1-2", "bytes=-",
     "bytes=0-" + "9" * 5000, "bytes=\xb2-", "bytes=9999-"],
    ids=lambda ranges: ascii(ranges[:20]),
)  # fmt: skip
def test_a_range_that_is_none_is_refused(ranges, listener, peer):
    answer = ask(listener, peer, "GET", "/v1/models/0", f"Range: {ranges}")
    assert answer.status_code in (200, 400, 416)


def test_many_ranges_cost_little(listener, peer):
    ranges = "Range: bytes=" + ",".join(f"{2 * number}-{2 * number}" for number in range(30_000))
    began = time.monotonic()
    answer = ask(listener, peer, "GET", "/v1/models/0", ranges)
    assert time.monotonic() - began < 2
    assert answer.status_code in (200, 206, 400, 416, 431)
    assert len(answer.content) < 100_000


def test_headers_without_end_are_refused(listener, peer):
    with line(listener, peer) as opened:
        try:
            opened.begin("GET", "/v1/uploads/0", *(f"X-{number}: {'x' * 5000}" for number in range(200)))
            status = opened.answer().status_code
        except (ConnectionError, http.client.HTTPException):
            status = 431
    assert status in (400, 431)


def test_a_header_that_comes_twice_is_one_of_the_two(server):
    peer, other = server.enrol(), server.enrol()
    answer = ask(
        server, peer, "POST", "/v1/checkin", f"Authorization: {other.http.headers['authorization']}",
        "Content-Type: application/json", body=b"{}",
    )  # fmt: skip
    assert answer.status_code == 200
    assert server.service.engine.coordinator.statistics.assigned == 1


# Tokens.


def test_a_token_that_takes_over_may_come_first_over_many_lines(server):
    peer = server.enrol()
    for _ in range(5):
        token = peer.http.post("/v1/token").json()["token"]
        peer = server.peer(token)
        lines = [Line(server, f"Bearer {token}") for _ in range(12)]
        try:
            for opened in lines:
                opened.begin("GET", "/v1/uploads/0")
            assert {opened.answer().status_code for opened in lines} == {404}
        finally:
            for opened in lines:
                opened.close()


def test_who_is_revoked_while_it_uploads_is_not_counted(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body[:50])
        time.sleep(0.1)
        assert server.admin.http.delete("/v1/clients/0").status_code == 204
        opened.send(body[50:])
        assert kind_of(opened.answer(), 401) == "revoked-token"
    assert server.service.engine.coordinator.statistics.counted == 0


def test_the_last_place_goes_to_one(tmp_path):
    with running(tmp_path / "server", clients=4) as server:
        token = server.admin.http.post("/v1/enrolment-tokens", json={"uses": 6}).json()["token"]
        lines = [Line(server, f"Bearer {token}") for _ in range(10)]
        try:
            for opened in lines:
                opened.begin("POST", "/v1/enrol", "Content-Type: application/json", length=2)
                opened.send(b"{")
            for opened in lines:
                opened.send(b"}")
            answers = [opened.answer() for opened in lines]
        finally:
            for opened in lines:
                opened.close()
        assert sorted(answer.json()["client"] for answer in answers if answer.status_code == 201) == [0, 1, 2, 3]
        assert {answer.status_code for answer in answers} == {201, 409}
        assert server.admin.http.get("/v1/status").json()["enrolled"] == 4


def test_a_client_without_bounds_harms_itself_only(tmp_path):
    with running(tmp_path / "server", limits=Limits(requests_a_second=1.0, burst=20)) as server:
        hostile, honest = server.enrol(), server.enrol()
        answers = [hostile.http.post("/v1/token") for _ in range(30)]
        assert {answer.status_code for answer in answers} == {200, 429}
        goes_on(server, [honest])


# The end.


def test_an_upload_that_ends_while_the_server_stops_is_answered(tmp_path):
    body = body_of(ONES)
    with ThreadPoolExecutor(1) as pool:
        with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1)) as server:
            peer, idle = server.enrol(), server.enrol()
            visit = peer.check_in()
            upload, waits = (Line(server, one.http.headers["authorization"]) for one in (peer, idle))
            begin_upload(upload, peer, visit, body, end=len(body))
            upload.send(body[:50])
            waits.begin("POST", "/v1/checkin", "Content-Type: application/json", length=20)
            waits.send(b'{"wait_seconds": 20}')
            until(lambda: server.service.engine.waiting)

            def finish() -> list[httpx.Response]:
                with closing(upload), closing(waits):
                    first = waits.answer()  # which comes when the server begins to stop
                    upload.send(body[50:])
                    return [first, upload.answer()]

            answers = pool.submit(finish)
        checked_in, uploaded = answers.result(10)
    assert checked_in.json()["visit"] is None
    assert uploaded.status_code in (200, 503), uploaded.text
    check_log(tmp_path / "server")


def test_a_peer_that_leaves_while_it_waits_is_not_given_work(server):
    peers = [server.enrol() for _ in range(5)]
    visits = [peer.check_in() for peer in peers[:4]]
    with line(server, peers[4]) as opened:
        opened.begin("POST", "/v1/checkin", "Content-Type: application/json", length=20)
        opened.send(b'{"wait_seconds": 20}')
        until(lambda: server.service.engine.waiting)
    time.sleep(0.3)
    peers[0].send(visits[0], ONES)
    assert server.service.engine.coordinator.statistics.assigned == 4
