"""Each route, over a real socket."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load as load_tensors

from offbeat.algorithms import FedBuff
from offbeat.service.engine.waiting_clients import WaitingClients
from offbeat.service.http.model_response import ModelResponse
from tests.service.conftest import LAYOUT, LENGTH, body_of, running
from tests.service.http_client import kind_of, until

ONES = torch.ones(LENGTH)


def test_a_client_gets_work_and_hands_it_in(server):
    one, two = server.enrol(), server.enrol()
    first, second = one.check_in(), two.check_in()
    assert first["number"] == first["version"] == 0
    assert first["since"] is None
    assert first["length"] == LENGTH
    assert one.send(first, ONES) == {"counted": True, "staleness": 0, "new_version": False}
    assert two.send(second, 3 * ONES) == {"counted": True, "staleness": 0, "new_version": True}
    again = one.check_in()
    assert (again["number"], again["version"], again["since"]) == (1, 1, 0)
    model = one.http.get("/v1/models/1")
    tensors = load_tensors(model.content)
    assert torch.equal(tensors["weight"], torch.full((2, 2), -2.0))
    assert torch.equal(tensors["bias"], torch.full((2,), -2.0))


def test_a_model_names_its_layout_and_is_downloaded_in_parts_and_cached(server):
    peer = server.enrol()
    visit = peer.check_in()
    whole = peer.http.get("/v1/models/0")
    header = json.loads(whole.content[8 : 8 + int.from_bytes(whole.content[:8], "little")])
    assert json.loads(header["__metadata__"]["layout"]) == [[name, list(shape)] for name, shape in LAYOUT]
    assert header["__metadata__"]["version"] == "0"
    digest = hashlib.sha256(whole.content).hexdigest()
    assert (whole.headers["etag"], whole.headers["cache-control"]) == (f'"{digest}"', "private, no-cache")
    assert visit["model_sha256"] == digest
    part = peer.http.get("/v1/models/0", headers={"Range": "bytes=10-", "If-Range": whole.headers["etag"]})
    assert part.status_code == 206
    assert part.content == whole.content[10:]
    assert peer.http.get("/v1/models/0", headers={"Range": "bytes=99999-"}).status_code == 416
    by_date = {"Range": "bytes=10-", "If-Range": whole.headers["last-modified"]}  # which another file may have, too
    assert peer.http.get("/v1/models/0", headers=by_date).content == whole.content
    known = peer.http.get("/v1/models/0", headers={"If-None-Match": whole.headers["etag"]})
    assert (known.status_code, known.headers["etag"], known.content) == (304, whole.headers["etag"], b"")
    assert server.admin.http.get("/v1/admin/model").headers["etag"] == whole.headers["etag"]
    assert peer.http.get("/v1/models/latest", follow_redirects=True).content == whole.content


@pytest.mark.parametrize("text", ["bytes=9-3", "bytes=a-b", "pages=1-2", "bytes"])
def test_a_malformed_range_is_refused_like_any_other_mistake(text, shared_server):
    answer = shared_server.enrol().http.get("/v1/models/0", headers={"Range": text})
    assert kind_of(answer, 400) == "malformed-request"


def test_a_range_beyond_the_file_is_refused_with_its_size(shared_server):
    peer = shared_server.enrol()
    size = len(peer.http.get("/v1/models/0").content)
    answer = peer.http.get("/v1/models/0", headers={"Range": f"bytes={size}-"})
    assert kind_of(answer, 416) == "wrong-range"
    assert answer.headers["content-range"] == f"bytes */{size}"


def test_an_update_and_a_check_in_go_together(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1), stop_versions=1) as server:
        one, two = server.enrol(), server.enrol()
        together = {"checkin": "true"}
        answer = one.put(one.check_in(), body_of(ONES), params=together).json()
        assert answer["receipt"] == {"counted": True, "staleness": 0, "new_version": False}
        assert answer["next"] == one.http.post("/v1/checkin", json={}).json()
        assert answer["next"]["visit"]["number"] == 1
        # Who waits has the first right to the slot.
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(two.check_in, 20.0)
            until(lambda: server.service.engine.waiting)
            assert one.http.post("/v1/visits/1/give-up").status_code == 204
            late = one.put(answer["next"]["visit"], body_of(ONES), params=together).json()
            visit = waits.result(10)
        assert late["receipt"]["new_version"]
        assert late["next"] == {"visit": None, "retry_after_seconds": None, "finished": True, "evaluation": None}
        assert not two.send(visit, ONES)["counted"]


def test_a_repeated_update_gets_the_first_answer_and_no_visit(shared_server):
    peer = shared_server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    assert peer.check_in() == visit
    first = peer.put(visit, body, params={"checkin": "false"}).json()
    assert first["receipt"]["counted"]
    assert first["next"] is None
    assert peer.put(visit, body, params={"checkin": "true"}).json() == first
    assert kind_of(peer.put(visit, body, params={"checkin": "?"}), 400) == "malformed-request"
    assert kind_of(peer.put(visit, body_of(2 * ONES)), 409) == "other-upload"
    assert peer.check_in()["number"] == 1


def test_a_client_that_gave_up_gets_other_work_and_its_update_counts(shared_server):
    peer = shared_server.enrol()
    visit = peer.check_in()
    assert peer.http.post("/v1/visits/0/give-up").status_code == 204
    assert peer.send(visit, ONES)["counted"]
    assert peer.check_in()["number"] == 1


def test_a_client_gets_another_token_and_reports_its_speed(shared_server):
    peer = shared_server.enrol()
    answer = peer.http.post("/v1/token")
    assert answer.json() == {"token": answer.json()["token"], "expires_seconds": None}
    following = shared_server.peer(answer.json()["token"])
    assert following.check_in() == following.check_in() is not None
    assert kind_of(peer.http.get("/v1/probe"), 401) == "unknown-token"
    speed = {"step_seconds": 0.5, "upload_seconds": 2.0}
    assert following.http.post("/v1/probe", json=speed).json() == speed


def test_without_a_free_slot_a_client_waits_or_comes_again(server):
    peers = [server.enrol() for _ in range(5)]
    visits = [peer.check_in() for peer in peers[:4]]
    answer = peers[4].http.post("/v1/checkin", json={"wait_seconds": 0.1}).json()
    assert answer == {"visit": None, "retry_after_seconds": 5.0, "finished": False, "evaluation": None}
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(peers[4].check_in, 20.0)
        until(lambda: server.service.engine.waiting)
        peers[0].send(visits[0], ONES)
        assert waits.result(10)["number"] == 0


def test_a_client_that_nobody_wakes_asks_again_when_its_time_is_over(server, monkeypatch):
    peers = [server.enrol() for _ in range(5)]
    visits = [peer.check_in() for peer in peers[:4]]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(peers[4].check_in, 1.0)
        until(lambda: server.service.engine.waiting)
        monkeypatch.setattr(WaitingClients, "wake", lambda self, client: None)
        peers[0].send(visits[0], ONES)
        assert waits.result(10)["number"] == 0


def test_a_large_update_comes_in_pieces(tmp_path):
    length = 600_000
    with running(tmp_path / "server", layout=[("w", (length,))], model=torch.zeros(length)) as server:
        peer = server.enrol()
        visit = peer.check_in()
        body = body_of(torch.arange(float(length)))
        head = peer.head(visit, body)
        for end in (10, 1_500_000):
            there = peer.http.get("/v1/uploads/0").json()["offset"]
            answer = peer.put(visit, body[:end], offset=there, head=head)
            assert answer.status_code == 202
            assert answer.json() == {"offset": end}
        assert kind_of(peer.put(visit, body, sha256="0" * 64), 422) == "wrong-digest"
        state = {"wanted": True, "offset": 0, "receipt": None, "share": None, "audit_head": None}
        assert peer.http.get("/v1/uploads/0").json() == state
        assert peer.put(visit, body[:1_500_000], head=head).status_code == 202
        wrong = peer.put(visit, body, offset=11, head=head)
        assert kind_of(wrong, 409) == "wrong-offset"
        assert wrong.headers["upload-offset"] == "1500000"
        assert peer.put(visit, body, offset=1_500_000, head=head).json()["receipt"]["counted"]
        visit = peer.check_in()
        assert peer.send(visit, torch.zeros(length))["new_version"]
        peer.check_in()
        assert torch.equal(load_tensors(peer.http.get("/v1/models/1").content)["w"], -torch.arange(float(length)) / 2)


def test_a_version_that_is_deleted_just_as_it_is_asked_for(server, monkeypatch):
    class Deleted(ModelResponse):
        async def __call__(self, *arguments):
            server.service.engine.models.path(0).unlink()
            await super().__call__(*arguments)

    peer = server.enrol()
    peer.check_in()
    assert peer.http.get("/v1/models/0").status_code == 200
    monkeypatch.setattr("offbeat.service.http.visit_routes.ModelResponse", Deleted)
    assert peer.http.get("/v1/models/0").status_code == 404


@pytest.mark.parametrize(
    ("vector", "changes", "kind"),
    [
        (torch.ones(3), {}, "wrong-shape"),
        (torch.full((LENGTH,), float("nan")), {}, "not-finite"),
        (ONES, {"version": 5}, "wrong-version"),
        (ONES, {"steps": 3}, "wrong-plan"),
        (ONES, {"sha256": "0" * 64}, "wrong-digest"),
    ],
)
def test_a_refused_update_changes_nothing(vector, changes, kind, shared_server):
    peer = shared_server.enrol()
    visit = peer.check_in()
    number = shared_server.service.engine.log_writer.number
    assert kind_of(peer.put(visit, body_of(vector), **changes), 422) == kind
    assert shared_server.service.engine.log_writer.number == number
    assert f'offbeat_refusals_total{{kind="{kind}"}} ' in shared_server.admin.http.get("/metrics").text
    assert peer.send(visit, ONES)["counted"]


def test_too_large_too_long_and_without_a_head(shared_server):
    peer = shared_server.enrol()
    visit = peer.check_in()
    body = body_of(ONES)
    assert kind_of(peer.put(visit, body, bytes=10**12), 413) == "too-large"
    assert kind_of(peer.put(visit, body, bytes=len(body) - 1), 413) == "too-large"
    assert kind_of(peer.http.put("/v1/uploads/0", content=body), 400) == "malformed-request"
    assert kind_of(peer.http.put("/v1/uploads/0", content=iter([body])), 411) == "length-required"
    assert kind_of(peer.http.post("/v1/checkin", content=b" " * 70_000), 413) == "too-large"
    assert kind_of(peer.http.put("/v1/uploads/7", content=body, headers={"Offbeat-Update": "{}"}), 400)


def test_visits_of_other_clients_are_unknown(shared_server):
    one, two = shared_server.enrol(), shared_server.enrol()
    visit = one.check_in()
    assert kind_of(two.put(visit, body_of(ONES)), 404) == "no-such-visit"
    assert kind_of(two.http.get("/v1/uploads/0"), 404) == "no-such-visit"
    assert kind_of(two.http.post("/v1/visits/0/heartbeat"), 404) == "no-such-visit"
    assert kind_of(two.http.post("/v1/visits/0/give-up"), 404) == "no-such-visit"
    assert kind_of(one.http.get("/v1/models/9"), 404) == "no-such-version"
    assert one.send(visit, ONES)["counted"]


def test_a_run_that_is_over_says_so_and_its_model_stays(tmp_path):
    with running(tmp_path / "server", stop_versions=1) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers]
        for peer, visit in zip(peers[:2], visits[:2], strict=True):
            peer.send(visit, ONES)
        answer = peers[0].http.post("/v1/checkin", json={"wait_seconds": 20}).json()
        assert answer == {"visit": None, "retry_after_seconds": None, "finished": True, "evaluation": None}
        assert peers[2].http.get("/v1/uploads/0").json()["wanted"] is False
        assert not peers[2].send(visits[2], ONES)["counted"]
        assert server.admin.http.get("/v1/status").json()["version"] == 1
        assert server.service.engine.models.versions() >= {1}
