"""Shares that do not fit their visit are refused before their bodies arrive, and nothing changes."""

import base64
import json
import shutil
from dataclasses import replace

import pytest
import torch
from offbeat_private.masks.envelope import RECORD_BYTES
from offbeat_private.masks.helper_facts import EpochKey, Head

from offbeat.algorithms import FedNova, LocalPlan
from tests.offbeat_private.helper.conftest import KEYS
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of, line, until
from tests.service.masked.conftest import enrolled_helper, header, masked_server

ONE = torch.full((LENGTH,), 0.1)


def refused(server, client, visit, ready, **changes):
    before = server.served.service.engine.log_writer.number
    answer = client.put(visit, ready, **changes)
    assert server.served.service.engine.log_writer.number == before
    assert "\n" not in answer.json()["detail"]
    return answer.status_code, answer.json()["kind"], answer.json()["detail"]


def test_a_share_of_another_place_or_for_other_terms_is_wrong(server):
    client = server.client(0)
    visit, not_signed = client.check_in(), "the head was not signed by the helper"
    for changes, words in (
        ({"visit": 1}, "it is for visit 1 from version 0"),
        ({"start_version": 1, "version": 1}, "it is for visit 0 from version 1"),
        ({"version": 1}, "it is scaled for version 1, but the open version is 0"),
        ({"model": bytes(32)}, "from another model than version 0"),
        ({"head": Head(0, bytes(32))}, not_signed),
        ({"head": Head(1, bytes(32))}, not_signed),
        ({"terms": replace(client.terms, min_clients=3)}, not_signed),  # it names the terms
        ({"terms": replace(client.terms, run=bytes(16))}, not_signed),
    ):
        status, kind, detail = refused(server, client, visit, client.share(visit, ONE, **changes))
        assert (status, kind) == (422, "wrong-share")
        assert words in detail
    assert client.send(visit, ONE)["counted"]


def test_a_flipped_bit_anywhere_in_the_record_is_wrong(server):
    client = server.client(0)
    visit = client.check_in()
    share = client.share(visit, ONE)
    for at in (0, 100, 150, 250, RECORD_BYTES - 1):
        record = bytearray(base64.b64decode(share.head["share"]))
        record[at] ^= 1
        changes = {"share": base64.b64encode(record).decode()}
        assert refused(server, client, visit, share, **changes)[:2] == (422, "wrong-share")
    assert client.put(visit, share).status_code == 200


def test_another_vector_than_the_sealed_one_is_wrong(server):
    client = server.client(0)
    visit = client.check_in()
    share = client.share(visit, ONE)
    other = bytes([share.body[0] ^ 1]) + share.body[1:]
    record, salt = base64.b64decode(share.head["share"]), bytes.fromhex(share.head["salt"])
    assert refused(server, client, visit, share._replace(body=other, head=header(visit, other, record, salt)))[:2] == (
        422,
        "wrong-share",
    )
    assert refused(server, client, visit, share, salt=bytes(32).hex())[:2] == (422, "wrong-share")
    assert refused(server, client, visit, share, salt=bytes(31).hex())[:2] == (400, "malformed-request")
    assert refused(server, client, visit, share._replace(body=other))[:2] == (422, "wrong-digest")


def test_another_epoch_is_stale_and_a_new_share_counts(server):
    client = server.client(0)
    visit = client.check_in()
    asked = client.state(visit)["share"]
    for epoch in (1, 2):
        key = EpochKey(epoch, bytes.fromhex(asked["epoch"]["public_key"]))
        share = client.share(visit, ONE, epoch_key=key)
        assert refused(server, client, visit, share)[:2] == (409, "stale-share")
    assert client.send(visit, ONE)["counted"]


def test_a_key_belongs_to_one_client_for_good(helper, tmp_path):
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        client, thief = server.client(0), server.client(1)
        visit, stolen = client.check_in(), thief.check_in()
        assert client.send(visit, ONE)["counted"]
        thief.key = KEYS[0]
        assert refused(server, thief, stolen, thief.share(stolen, ONE))[1] == "wrong-share"
        server.served.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    for folder in ("server", "killed"):  # from the checkpoint at the end, and from the log
        with masked_server(tmp_path / folder, helper) as server:
            again = server.again(thief)
            assert refused(server, again, stolen, again.share(stolen, ONE))[1] == "wrong-share"
    with masked_server(tmp_path / "killed", helper) as server:
        again, first = server.again(thief), server.again(client)
        again.key = KEYS[1]
        assert again.send(stolen, ONE)["counted"]
        until(lambda: server.algorithm.version == 1)
        visit = first.check_in()
        first.key = KEYS[2]
        assert refused(server, first, visit, first.share(visit, ONE))[1] == "wrong-share"


def test_of_two_uploads_with_one_key_under_way_at_once_one_counts(server):
    client, thief = server.client(0), server.client(1)
    visit, stolen = client.check_in(), thief.check_in()
    thief.key = KEYS[0]
    share = thief.share(stolen, ONE)
    with line(server.served, thief.peer) as opened:
        headers = f"Offbeat-Update: {json.dumps(share.head)}", "Upload-Offset: 0"
        opened.begin("PUT", f"/v1/uploads/{stolen['number']}", *headers, length=len(share.body))
        opened.send(share.body[:-1])
        assert client.send(visit, ONE)["counted"]
        opened.send(share.body[-1:])
        assert kind_of(opened.answer(), 422) == "wrong-share"


def test_a_repeated_share_gets_its_receipt_and_another_one_does_not(server):
    client = server.client(0)
    visit = client.check_in()
    shares = [client.share(visit, ONE) for _ in range(2)]
    first = client.put(visit, shares[0]).json()
    assert client.put(visit, shares[0]).json() == first
    assert kind_of(client.put(visit, shares[1]), 409) == "other-upload"


def test_a_body_of_another_length_and_a_plain_update_are_refused(server):
    client = server.client(0)
    visit = client.check_in()
    share = client.share(visit, ONE)
    long = share._replace(body=share.body + bytes(4))
    assert refused(server, client, visit, long, bytes=len(long.body))[:2] == (422, "wrong-shape")
    assert kind_of(client.peer.put(visit, body_of(ONE)), 422) == "share-needed"
    assert server.served.service.engine.coordinator.statistics.counted == 0


def test_a_share_is_refused_in_a_plain_run(server, tmp_path):
    client = server.client(0)
    share = client.share(client.check_in(), ONE)
    with running(tmp_path / "plain") as plain:
        peer = plain.enrol()
        visit = peer.check_in()
        assert (visit["privacy"], peer.http.get("/v1/uploads/0").json()["share"]) == (None, None)
        assert kind_of(peer.put(visit, share.body, head=share.head), 422) == "no-share"


def test_a_client_that_does_not_know_masks_gets_no_work_and_takes_no_place(server):
    client = server.client(0)
    enrols = server.served.peer(server.served.enrolment_token).http
    for http, path in ((client.peer.http, "/v1/checkin"), (enrols, "/v1/enrol")):
        http.headers["Offbeat-Supports"] = "corrects_gradients, needs_loss"
        answer = http.post(path, json={})
        assert kind_of(answer, 422) == "not-supported"
        assert "--terms" in answer.json()["detail"]
    assert server.served.admin.http.get("/v1/status").json()["enrolled"] == 1


def test_a_late_share_is_scaled_down_and_the_scale_is_that_of_the_open_version(server):
    clients = [server.client(number) for number in range(3)]
    visits = [client.check_in() for client in clients]
    for client, visit in zip(clients[:2], visits[:2], strict=True):
        client.send(visit, ONE)
    until(lambda: server.algorithm.version == 1)
    asked = clients[2].state(visits[2])["share"]
    assert (asked["version"], asked["scale"]) == (1, pytest.approx(2**-0.5))
    assert asked["head"]["number"] in (0, 1)
    assert clients[2].send(visits[2], ONE) == {"counted": True, "staleness": 1, "new_version": False}


def test_fednova_divides_by_the_plans_normaliser(tmp_path):
    plan = LocalPlan(steps=4, batch_size=1, lr=0.5, momentum=0.5)
    with (
        enrolled_helper(tmp_path / "helper", normalise=True) as helper,
        masked_server(tmp_path / "server", helper, lambda: FedNova(cohort=2), plan=plan) as server,
    ):
        client = server.client(0)
        visit = client.check_in()
        assert client.state(visit)["share"]["scale"] == pytest.approx(1.0)
        client.send(visit, ONE)
        server.client(1).give(-3 * ONE)
        until(lambda: server.algorithm.version == 1)
        assert torch.allclose(server.algorithm.model, ONE, atol=1e-4)


def test_a_large_share_comes_in_pieces(tmp_path):
    length = 300_000
    with enrolled_helper(tmp_path / "helper", length=length) as helper:
        settings = {"model": torch.zeros(length), "layout": [("w", (length,))]}
        with masked_server(tmp_path / "server", helper, **settings) as server:
            clients = [server.client(0), server.client(1)]
            deltas = [torch.linspace(-1e-3, 1e-3, length), torch.full((length,), 1e-3)]
            for client, delta in zip(clients, deltas, strict=True):
                visit = client.check_in()
                share = client.share(visit, delta)
                half = share._replace(body=share.body[: len(share.body) // 2])
                assert client.put(visit, half).json() == {"offset": len(half.body)}
                assert client.state(visit)["offset"] == len(half.body)
                rest = client.peer.put(visit, share.body, head=share.head, offset=len(half.body))
                assert rest.json()["receipt"]["counted"]
            until(lambda: server.algorithm.version == 1)
            expected = -(deltas[0] + deltas[1]) / 2
            assert torch.allclose(server.algorithm.model, expected, atol=2 * helper.terms.step)
