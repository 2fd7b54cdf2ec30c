"""The upload of shares; kills, stale shares and missing facts are in ``test_private_run.py``."""

import numpy as np
import pytest
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.private_updates import private_updates
from offbeat_client.share_upload import upload_share
from offbeat_core.errors import OffbeatError

from tests.offbeat_client.helper_facts import PRIVACY, Helper, private_folder


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


def test_the_server_is_asked_once_before_a_share_is_sent(server, connection, outbox, private, put):
    upload_share(connection, put(), private, outbox, check_in=False)
    assert [(method, path) for method, path, _ in server.heard] == [
        ("GET", "/v1/uploads/4"), ("PUT", "/v1/uploads/4")
    ]  # fmt: skip


def test_a_receipt_for_a_delta_without_a_share_ends_it(server, connection, outbox, private, put):
    server.receipts[4] = {"counted": False, "staleness": 3, "new_version": False}
    assert upload_share(connection, put(), private, outbox, check_in=False).counted is False
    assert server.put == []


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
