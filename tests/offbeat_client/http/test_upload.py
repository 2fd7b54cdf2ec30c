import time
from functools import partial

import numpy as np
import pytest
from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.http.upload import upload, upload_share
from offbeat_client.private_updates import private_updates
from offbeat_core.errors import OffbeatError
from offbeat_core.files import sha256
from offbeat_core.http.service_errors import ServiceError, UnreachableError

from tests.offbeat_client.helper_facts import PRIVACY, Helper, private_folder

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
    return Pending(visit=4, version=12, length=2560, lease_seconds=None, has_memory=False, announcement=head)


@pytest.fixture
def send(connection, pending, body):
    """Return a function that uploads the update."""
    return partial(upload, connection, pending, body, ask_first=False, check_in=False)


def test_a_small_update_takes_one_request(server, pending, body, send):
    began = time.perf_counter()
    receipt = send()
    taken = time.perf_counter() - began
    assert receipt.counted
    assert 0 < receipt.upload_seconds <= 10 * taken  # d = 2560 is 10,240 bytes, ten times as many
    assert [method for method, _, _ in server.heard] == ["PUT"]
    assert server.bodies[4] == body.read_bytes()
    assert server.announced[4] == pending.announcement
    assert server.heard[0][2]["Content-Length"] == "1024"
    assert "Transfer-Encoding" not in server.heard[0][2]


@pytest.mark.parametrize(("check_in", "query", "number"), [(True, "checkin=true", 5), (False, "", None)])
def test_the_receipt_brings_the_next_visit_on_request(server, send, check_in, query, number):
    server.offer(5, 13)
    following = send(check_in=check_in).following
    assert (following and following.visit.number) == number
    assert server.queries == [query]


def test_a_broken_upload_resumes(server, pending, body, send, fault):
    server.faults[PATH] = [fault(body_bytes=300), fault(503, "busy"), fault(body_bytes=100)]
    receipt = send()
    assert receipt.counted
    assert receipt.upload_seconds is None  # a piece says little about the line
    offsets = [headers["Upload-Offset"] for method, _, headers in server.heard if method == "PUT"]
    assert offsets == ["0", "300", "300", "400"]
    assert server.bodies[4] == body.read_bytes()


def test_progress_resets_the_attempts(server, send, fault):
    server.faults[PATH] = [fault(body_bytes=200)] * 5
    assert send().counted


def test_without_progress_attempts_end(server, pending, body, send, fault):
    server.faults[PATH] = [fault(body_bytes=0)] * 9
    with pytest.raises(UnreachableError):
        send()
    assert len(server.paths("PUT")) == 4


def test_a_lost_receipt_is_requested(server, pending, body, send, fault):
    server.counts = lambda visit: False
    server.faults[PATH] = [fault(before_answer=True)]
    assert send().counted is False
    assert [method for method, _, _ in server.heard] == ["PUT", "GET"]


@pytest.mark.parametrize(("status", "kind"), [(409, "wrong-offset"), (409, "upload-in-progress"), (408, "too-slow")])
def test_the_server_names_the_offset(server, pending, body, send, fault, status, kind):
    server.bodies[4] = body.read_bytes()[:500]
    server.faults[PATH] = [fault(status, kind)]
    send()
    assert server.heard[-1][2]["Upload-Offset"] == "500"
    assert server.bodies[4] == body.read_bytes()


def test_after_a_wrong_digest_the_upload_restarts(server, body, send):
    server.bodies[4] = bytes(500)  # garbled on the way
    send(ask_first=True)
    assert server.bodies[4] == body.read_bytes()


def test_a_digest_that_stays_wrong_ends_the_upload(server, pending, send):
    pending.announcement["sha256"] = "0" * 64
    with pytest.raises(ServiceError, match="wrong-digest"):
        send()
    assert len(server.paths("PUT")) == 3


@pytest.mark.parametrize(("status", "kind"), [(422, "not-finite"), (409, "other-upload"), (401, "expired-token")])
def test_other_refusals_are_final(server, send, fault, status, kind):
    server.faults[PATH] = [fault(status, kind)]
    with pytest.raises(ServiceError, match=kind):
        send()
    assert len(server.heard) == 1


@pytest.fixture
def outbox(tmp_path):
    return Outbox(private_folder(tmp_path / "me"))


@pytest.fixture
def private(tmp_path, outbox):
    return private_updates(tmp_path / "me", tmp_path / "terms.json", None, outbox)


@pytest.fixture
def put(server, outbox, private, visit, model, model_file):
    """Return a function that keeps the delta of visit 4, which the server waits for."""
    server.share = Helper().facts
    server.offer(4, 12, privacy=PRIVACY)
    server.open = server.visits.pop()
    return lambda: private.put(visit(), model_file, "0b" * 32, ({name: array / 2 for name, array in model.items()}, 7))


def test_a_share_that_was_received_before_is_not_sent_again(server, connection, outbox, private, put):
    for _ in range(2):
        pending = outbox.pending() or put()
        assert upload_share(connection, pending, private, outbox, check_in=False).counted
    assert len(server.put) == 1
    # The server is asked once before a share is sent.
    assert [method for method, _, _ in server.heard] == ["GET", "PUT", "GET"]


def test_an_unwanted_update_is_not_sent(server, connection, send, outbox, private, put):
    pending = put()
    server.receipts[4] = {"counted": False, "staleness": 9, "new_version": False}
    assert send(ask_first=True).counted is False
    assert upload_share(connection, pending, private, outbox, check_in=False).counted is False
    assert server.paths("PUT") == []


def test_an_update_without_a_mask_stays(server, connection, outbox, private, visit):
    announcement = {"bytes": 3, "sha256": "", "version": 12}
    plain = outbox.put(visit(), lambda path: path.write_bytes(b"abc"), None, lambda _: announcement)
    other_run = outbox.put_delta(
        visit(), np.zeros(6, np.float32), {"terms": "0a" * 32, "divisor": 1.0, "model": "0b" * 32}
    )
    for pending in (plain, other_run):
        with pytest.raises(OffbeatError, match="visit 4: the update is not masked for this run: it stays here"):
            upload_share(connection, pending, private, outbox, check_in=False)
    assert server.heard == []
