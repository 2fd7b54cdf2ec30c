import time

import pytest

from offbeat_client.client_folder.outbox import Pending
from offbeat_client.http.refusal import ServiceError, UnreachableError
from offbeat_client.http.upload import LARGE_BYTES, upload
from offbeat_client.work import sha256

PATH = ("PUT", "/v1/uploads/4")


@pytest.fixture
def body(tmp_path):
    path = tmp_path / "update-4"
    path.write_bytes(bytes(range(256)) * 4)
    return path


@pytest.fixture
def pending(body, server):
    server.open = {"number": 4}
    head = {"version": 12, "bytes": 1024, "sha256": sha256(body), "examples": 1}
    return Pending(visit=4, version=12, length=256, lease_seconds=None, has_memory=False, announcement=head)


def test_a_small_one_takes_one_request(server, connection, pending, body):
    receipt = upload(connection, pending, body, ask_first=False, check_in=False)
    assert receipt.counted
    assert [method for method, _, _ in server.heard] == ["PUT"]
    assert server.bodies[4] == body.read_bytes()
    assert server.announced[4] == pending.announcement
    assert server.heard[0][2]["Content-Length"] == "1024"
    assert "Transfer-Encoding" not in server.heard[0][2]


def test_the_next_visit_comes_with_the_receipt_if_it_is_asked_for(server, connection, pending, body):
    server.offer(5, 13)
    following = upload(connection, pending, body, ask_first=False, check_in=True).following
    assert (following.visit.number, following.finished) == (5, False)
    assert server.queries == ["checkin=true"]


def test_where_it_is_not_asked_for_it_does_not_come(server, connection, pending, body):
    server.offer(5, 13)
    assert upload(connection, pending, body, ask_first=False, check_in=False).following is None
    assert server.queries == [""]


def test_a_large_one_is_asked_for(server, connection, pending, body):
    content = bytes(LARGE_BYTES + 1)
    body.write_bytes(content)
    pending.announcement.update(bytes=len(content), sha256=sha256(body))
    upload(connection, pending, body, ask_first=False, check_in=False)
    assert [method for method, _, _ in server.heard] == ["GET", "PUT"]
    assert server.bodies[4] == content


def test_what_is_not_wanted_is_not_sent(server, connection, pending, body):
    server.receipts[4] = {"counted": False, "staleness": 9, "new_version": False}
    assert upload(connection, pending, body, ask_first=True, check_in=False).counted is False
    assert [method for method, _, _ in server.heard] == ["GET"]


def test_a_broken_line_is_gone_on_with_where_it_broke(server, connection, pending, body, fault):
    server.faults[PATH] = [fault(body_bytes=300), fault(503, "busy"), fault(body_bytes=100)]
    receipt = upload(connection, pending, body, ask_first=False, check_in=False)
    assert receipt.counted
    assert receipt.upload_seconds is None  # a piece says little about the line
    assert [headers["Upload-Offset"] for method, _, headers in server.heard if method == "PUT"] == [
        "0", "300", "300", "400"
    ]  # fmt: skip
    assert server.bodies[4] == body.read_bytes()


def test_every_piece_that_goes_gives_new_attempts(server, connection, pending, body, fault):
    server.faults[PATH] = [fault(body_bytes=100)] * 9
    assert upload(connection, pending, body, ask_first=False, check_in=False).counted


def test_without_progress_there_is_an_end(server, connection, pending, body, fault):
    server.faults[PATH] = [fault(body_bytes=0)] * 9
    with pytest.raises(UnreachableError):
        upload(connection, pending, body, ask_first=False, check_in=False)
    assert len(server.paths("PUT")) == 4


def test_a_receipt_that_was_not_heard_is_asked_for(server, connection, pending, body, fault):
    server.counts = lambda visit: False
    server.faults[PATH] = [fault(before_answer=True)]
    assert upload(connection, pending, body, ask_first=False, check_in=False).counted is False
    assert [method for method, _, _ in server.heard] == ["PUT", "GET"]


@pytest.mark.parametrize("kind", ["wrong-offset", "upload-in-progress"])
def test_the_server_says_from_where_to_go_on(server, connection, pending, body, fault, kind):
    server.bodies[4] = body.read_bytes()[:500]
    server.faults[PATH] = [fault(409, kind)]
    upload(connection, pending, body, ask_first=False, check_in=False)
    assert server.heard[-1][2]["Upload-Offset"] == "500"
    assert server.bodies[4] == body.read_bytes()


def test_after_a_wrong_digest_it_begins_anew(server, connection, pending, body):
    server.bodies[4] = bytes(500)  # garbled on the way
    upload(connection, pending, body, ask_first=True, check_in=False)
    assert server.bodies[4] == body.read_bytes()


def test_bytes_that_stay_wrong_are_not_sent_for_ever(server, connection, pending, body):
    pending.announcement["sha256"] = "0" * 64
    with pytest.raises(ServiceError) as caught:
        upload(connection, pending, body, ask_first=False, check_in=False)
    assert caught.value.kind == "wrong-digest"
    assert len(server.paths("PUT")) == 3


@pytest.mark.parametrize(("status", "kind"), [(422, "not-finite"), (409, "other-upload"), (401, "expired-token")])
def test_other_refusals_are_final(server, connection, pending, body, fault, status, kind):
    server.faults[PATH] = [fault(status, kind)]
    with pytest.raises(ServiceError) as caught:
        upload(connection, pending, body, ask_first=False, check_in=False)
    assert caught.value.kind == kind
    assert len(server.heard) == 1


def test_the_seconds_are_those_of_an_uncompressed_upload(server, connection, body):
    server.open = {"number": 4}
    head = {"bytes": 1024, "sha256": sha256(body)}
    ten_times = Pending(4, 12, 2560, None, False, head)  # d = 2560 is 10,240 bytes
    began = time.perf_counter()
    receipt = upload(connection, ten_times, body, ask_first=False, check_in=False)
    taken = time.perf_counter() - began
    assert 0 < receipt.upload_seconds <= 10 * taken
