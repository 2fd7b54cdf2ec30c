"""Bodies on their way to the disk, without a server around them."""

import asyncio
import hashlib
import os
import re
import socket
import threading
import time

import pytest

from offbeat.service.refusal import Refusal
from offbeat.service.updates import body_file
from offbeat.service.updates.uploads import Uploads, clean_up
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, begin_upload, check_progress, kind_of, line, put_in_pieces, snapshot, until


@pytest.fixture
def uploads(tmp_path):
    for name in ("updates", "partial"):
        (tmp_path / name).mkdir()
    return Uploads(tmp_path, budget=100, patience_seconds=0.5)


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def write(uploads, client, visit, offset, size, pieces):
    return uploads.write(client, visit, offset, size, pieces, lambda _: None, hashlib.sha256)


async def sent(*pieces, silent=False):
    for piece in pieces:
        yield piece
    if silent:
        await asyncio.sleep(60)


def refused(work):
    async def ask():
        with pytest.raises(Refusal) as caught:
            await work
        return caught.value.kind

    return asyncio.run(ask())


def test_a_stalled_body_is_given_up_and_its_bytes_are_kept(uploads):
    assert refused(write(uploads, 0, 0, 0, 10, sent(b"abc", silent=True))) == "too-slow"
    assert uploads.offset(0, 0) == 3
    assert refused(uploads.read(0, 10, sent(b"abc", silent=True))) == "too-slow"


def test_a_body_that_goes_on_is_given_up_at_its_first_byte_too_many(uploads):
    async def endless():
        while True:
            await asyncio.sleep(0)
            yield b"ab"

    assert refused(uploads.read(0, 3, endless())) == "malformed-request"


def test_a_body_is_continued_and_moves_when_it_is_complete(uploads, tmp_path):
    assert asyncio.run(write(uploads, 3, 1, 0, 6, sent(b"ab", b"c"))) == 3
    assert refused(write(uploads, 3, 1, 2, 6, sent(b"def"))) == "wrong-offset"
    whole = asyncio.run(write(uploads, 3, 1, 3, 6, sent(b"def")))
    assert (whole.path.parent, whole.digest) == (tmp_path / "updates", sha256(b"abcdef"))
    assert re.fullmatch(r"3-1-[0-9a-f]{16}", whole.path.name)
    assert whole.path.read_bytes() == b"abcdef"
    assert uploads.offset(3, 1) == 0
    assert refused(write(uploads, 3, 1, 0, 2, sent(b"abc"))) == "too-large"


def test_a_second_upload_replaces_the_first(uploads):
    async def both():
        first = asyncio.create_task(write(uploads, 0, 0, 0, 6, sent(b"ab", silent=True)))
        await asyncio.sleep(0.01)
        second = await write(uploads, 0, 0, 0, 6, sent(b"cdefgh"))
        with pytest.raises(Refusal) as caught:
            await first
        return caught.value.kind, second.path.read_bytes(), second.digest

    assert asyncio.run(both()) == ("wrong-offset", b"cdefgh", sha256(b"cdefgh"))


def test_an_earlier_servers_body_is_continued(uploads, tmp_path):
    (tmp_path / "partial" / "3-1").write_bytes(b"abc")
    assert asyncio.run(write(uploads, 3, 1, 3, 6, sent(b"def"))).digest == sha256(b"abcdef")
    # It was whole: nothing more comes.
    (tmp_path / "partial" / "3-2").write_bytes(b"abc")
    assert asyncio.run(write(uploads, 3, 2, 3, 3, sent())).digest == sha256(b"abc")


def test_the_bytes_of_a_failed_write_are_counted(uploads, tmp_path, monkeypatch):
    def half(descriptor, pieces, offset):
        pwritev(descriptor, [pieces[0][:2]], offset)
        raise OSError(28, "No space left on device")

    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(write(uploads, 3, 1, 0, 6, sent(b"abcd")))
    monkeypatch.undo()
    assert uploads.offset(3, 1) == 2
    whole = asyncio.run(write(uploads, 3, 1, 2, 6, sent(b"cdef")))
    assert (whole.path.read_bytes(), whole.digest) == (b"abcdef", sha256(b"abcdef"))


def test_a_short_write_is_continued(uploads, monkeypatch):
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda descriptor, pieces, offset: pwritev(descriptor, [pieces[0][:1]], offset))
    whole = asyncio.run(write(uploads, 3, 1, 0, 6, sent(b"ab", b"cdef")))
    assert (whole.path.read_bytes(), whole.digest) == (b"abcdef", sha256(b"abcdef"))


def test_pieces_of_one_byte_are_accepted(uploads):
    uploads._budget = 5000  # more pieces than a system writes at once
    whole = asyncio.run(write(uploads, 3, 1, 0, 5000, sent(*[b"x"] * 5000)))
    assert whole.digest == sha256(b"x" * 5000)


def test_a_file_is_closed_after_the_thread_that_writes_it_has_ended(uploads, monkeypatch):
    begun, may_end, events = threading.Event(), threading.Event(), []

    def slowly(self, pieces):
        begun.set()
        may_end.wait(10)
        write_file(self, pieces)
        events.append("written")

    def closed(self):
        events.append("closed")
        close(self)

    write_file, close = body_file.BodyFile.write, body_file.BodyFile.close
    monkeypatch.setattr(body_file.BodyFile, "write", slowly)
    monkeypatch.setattr(body_file.BodyFile, "close", closed)
    monkeypatch.setattr("offbeat.service.updates.uploads._BATCH", 1)

    async def begin_again_while_it_is_written():
        before = asyncio.create_task(write(uploads, 3, 1, 0, 6, sent(b"ab", b"cd", silent=True)))
        await asyncio.to_thread(begun.wait, 10)
        again = asyncio.create_task(write(uploads, 3, 1, 0, 6, sent(b"abcdef")))
        await asyncio.sleep(0.05)
        assert not events
        may_end.set()
        with pytest.raises(Refusal):
            await before
        return await again

    assert asyncio.run(begin_again_while_it_is_written()).digest == sha256(b"abcdef")
    first = events.index("closed")
    assert events[:first] == ["written"] * first
    assert events[first:] == ["closed", "written", "closed"]
    assert first > 0


def test_all_uploads_share_a_budget_and_each_client_has_a_limit(uploads):
    async def many(sizes, clients):
        begun = [
            asyncio.create_task(uploads.read(client, size, sent(silent=True)))
            for size, client in zip(sizes, clients, strict=True)
        ]
        await asyncio.wait(begun)
        return [task.exception().kind for task in begun]

    assert asyncio.run(many([60, 60, 40], [0, 1, 2])) == ["too-slow", "busy", "too-slow"]
    assert asyncio.run(many([1] * 33, [5] * 33)) == ["too-slow"] * 32 + ["busy"]
    assert asyncio.run(uploads.read(5, 2, sent(b"ab"))) == b"ab"
    assert refused(uploads.read(5, 2, sent(b"abc"))) == "malformed-request"


def test_a_complete_body_outlives_a_restart(tmp_path, uploads):
    asyncio.run(write(uploads, 3, 1, 0, 3, sent(b"abc")))
    digits = 16 * "a"
    known, used = f"4-0-{digits}", f"sum-2-{digits}"
    for name in (known, "notes", f"sum-1-{digits}", used):
        (tmp_path / "updates" / name).touch()
    clean_up(tmp_path, {tmp_path / "updates" / name for name in (known, used)})
    assert sorted(path.name for path in (tmp_path / "updates").iterdir()) == [known, "notes", used]
    assert uploads.offset(3, 1) == 3
    clean_up(tmp_path, set())
    assert [path.name for path in (tmp_path / "updates").iterdir()] == ["notes"]


def test_files_of_fronts_that_are_no_more_are_deleted(uploads, tmp_path):
    body = f"3-1-{16 * 'a'}"
    for name in (f"updates/{body}", "partial/2-0", "partial/.copy-1", "fronts/0/partial/1-0", "fronts/2/partial/1-0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    clean_up(tmp_path, set(), fronts=2)  # which would not look into the server's own folders
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"partial/.copy-1", "fronts/0/partial/1-0"}
    clean_up(tmp_path, set())
    assert not list((tmp_path / "fronts").iterdir())


def test_the_bytes_before_a_broken_connection_are_kept(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body) - 1)
        opened.send(body[:60])
        time.sleep(0.1)
    until(lambda: not server.front.uploads._large)
    assert peer.http.get("/v1/uploads/0").json()["offset"] == 60
    assert peer.put(visit, body, offset=60, head=peer.head(visit, body)).json()["receipt"]["counted"]


def test_an_incomplete_small_body_changes_nothing(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    before = snapshot(server)
    for half in (True, False):
        with line(server, peer) as opened:
            begin_upload(opened, peer, visit, body, end=len(body))
            opened.send(body[:60])
            if half:
                opened.socket.shutdown(socket.SHUT_WR)
                time.sleep(0.1)
    state = peer.http.get("/v1/uploads/0").json()
    assert (state["wanted"], state["offset"], state["receipt"], state["share"]) == (True, 0, None, None)
    assert snapshot(server) == before
    check_progress(server, [peer])


def test_a_stalled_upload_leaves_room_for_others_once_its_connection_is_closed(tmp_path):
    body = body_of(ONES)
    with running(tmp_path / "server", upload_budget=len(body)) as server:
        slow, honest = server.enrol(), server.enrol()
        visits = [slow.check_in(), honest.check_in()]
        with line(server, slow) as opened:
            begin_upload(opened, slow, visits[0], body, end=len(body) - 1)
            opened.send(body[:10])
            until(lambda: server.front.uploads._large)
            answer = honest.put(visits[1], body[:10], head=honest.head(visits[1], body))
            assert kind_of(answer, 503) == "busy"
            assert answer.headers["retry-after"]
        until(lambda: not server.front.uploads._large)
        assert put_in_pieces(honest, visits[1], body).json()["receipt"]["counted"]


def test_one_client_has_no_more_than_two_large_bodies_checked_at_once(server):
    uploads = server.front.uploads
    peer = server.enrol()
    visit = peer.check_in()
    body = body_of(ONES)
    with uploads.undecided(0):
        with uploads.undecided(0):
            assert kind_of(peer.put(visit, body[:10], head=peer.head(visit, body)), 503) == "busy"
        assert put_in_pieces(peer, visit, body).json()["receipt"]["counted"]
    assert uploads._undecided == {}
