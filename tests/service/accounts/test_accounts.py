import time
from functools import partial

import pytest

from offbeat.service.accounts.issued_tokens import IN_FOLDER, token_id
from offbeat.service.refusal import Refusal
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, begin_upload, check_progress, kind_of, line

OWN = "obc_" + 43 * "a"


def enrol(accounts, **changes):
    return accounts.enrol(accounts.issued.make("enrolment"), "name", **changes)


def test_a_client_is_found_by_its_token_until_that_expires(folder, accounts, refused):
    client, token, seconds = enrol(accounts)
    assert (client, seconds, len(accounts)) == (0, 100.0, 1)
    for opened in (accounts, folder.open()):
        assert opened.check(token, "client") == 0
        assert opened.is_valid(token, "client")
        assert not opened.is_valid(token, "admin")
    folder.now += 100.0
    assert refused(accounts.check, token, "client") == "expired-token"
    assert refused(folder.open().check_any, token, may_have_ended=False) == "expired-token"


@pytest.mark.parametrize("token", ["x" * 10_000, "obc_\xe9" + 42 * "a", OWN, "obe_" + 43 * "a"])
def test_an_unknown_token_is_refused(token, accounts, refused):
    enrol(accounts)
    assert refused(accounts.check, token, "client") == "unknown-token"
    assert refused(accounts.check_any, token, may_have_ended=True) == "unknown-token"


@pytest.mark.parametrize(("prefix", "advice"), [("oba_", "file admin-token"), ("obe_", "ask for"), ("", "enrol again")])
def test_the_advice_for_an_unknown_token_fits_its_kind(prefix, advice, accounts):
    for check in (lambda token: accounts.check(token, "client"), partial(accounts.check_any, may_have_ended=True)):
        with pytest.raises(Refusal, match=advice):
            check(prefix + 43 * "a")


def test_a_missing_token_and_one_of_another_kind_are_refused(accounts, refused):
    for token in (None, ""):
        assert refused(accounts.check, token, "client") == "no-token"
        assert refused(accounts.check_any, token, may_have_ended=True) == "no-token"
    admin = accounts.issued.make("admin")
    assert accounts.check(admin, "admin") == -1
    assert refused(accounts.check, admin, "client") == "foreign-token"


def test_a_used_up_enrolment_token_may_be_sent_again_but_enrols_nobody(folder, accounts, refused):
    token = accounts.issued.make("enrolment", uses=1)
    accounts.enrol(token, "")
    for opened in (accounts, folder.open()):
        assert refused(opened.enrol, token, "") == "revoked-token"
        assert refused(opened.check_any, token, may_have_ended=False) == "revoked-token"
        opened.check_any(token, may_have_ended=True)


def test_a_client_that_asks_again_with_its_own_token_is_the_same_client(folder, accounts, refused):
    token = accounts.issued.make("enrolment", uses=1)
    first = accounts.enrol(token, "", OWN)
    assert first == (0, OWN, 100.0)
    for opened in (accounts, folder.open()):
        assert opened.enrol(token, "", OWN) == first
        assert opened.enrol(token, "", OWN, 7) == first
        assert refused(opened.enrol, token, "", OWN, 8) == "wrong-examples"
    assert refused(accounts.enrol, token, "", "obc_short") == "malformed-request"


def test_a_refused_enrolment_takes_neither_a_place_nor_a_use(folder, accounts, refused):
    token = accounts.issued.make("enrolment", uses=3)
    assert refused(accounts.enrol, token, "", None, 51) == "too-many-examples"
    folder.log_writer.problem = "No space left on device"
    assert refused(accounts.enrol, token, "") == "no-space"
    folder.log_writer.problem = None
    assert [accounts.enrol(token, "")[0] for _ in range(3)] == [0, 1, 2]
    another = accounts.issued.make("enrolment", uses=1)
    assert refused(accounts.enrol, another, "") == "full"
    assert folder.open(limit=4).enrol(another, "")[0] == 3


def test_examples_are_declared_once_and_kept(folder, accounts, refused):
    enrol(accounts, examples=10)
    enrol(accounts)
    assert refused(accounts.declare, 1, 51) == "too-many-examples"
    folder.log_writer.problem = "No space left on device"
    assert refused(accounts.declare, 1, 20) == "no-space"
    folder.log_writer.problem = None
    for _ in range(2):
        accounts.declare(1, 20)
    assert refused(accounts.declare, 1, 21) == "wrong-examples"
    enrol(accounts, examples=30)
    assert accounts.examples.all() == folder.open().examples.all() == [10, 20, 30]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_next_token_replaces_the_current_one_when_it_is_first_used(restarts, folder, accounts, refused):
    _, first, _ = enrol(accounts)
    lost, _ = accounts.rotate(0)
    folder.now += 99.0
    following, seconds = accounts.rotate(0)
    assert seconds == 100.0
    opened = folder.open() if restarts else accounts
    assert refused(opened.check, lost, "client") == "unknown-token"
    assert opened.check(first, "client") == 0
    folder.now += 1.0
    opened.check_any(following, may_have_ended=False)
    opened = folder.open() if restarts else opened
    assert refused(opened.check, first, "client") == "unknown-token"
    folder.now += 98.0
    assert opened.check(following, "client") == 0
    folder.now += 1.0
    assert refused(opened.check, following, "client") == "expired-token"


def test_a_revoked_clients_tokens_end_and_it_is_not_waited_for(folder, accounts, refused):
    _, token, _ = enrol(accounts)
    following, _ = accounts.rotate(0)
    enrol(accounts, examples=10)
    accounts.check_client(0)
    accounts.revoke(0)
    assert refused(accounts.check_client, 0) == "revoked-token"
    assert refused(accounts.check, token, "client") == "revoked-token"
    assert refused(accounts.check, following, "client") == "revoked-token"
    assert refused(accounts.revoke, 2) == "no-such-client"
    again = folder.open()
    assert accounts.examples.missing() == again.examples.missing() == 1
    for one in (token, following):
        assert refused(again.check, one, "client") == "revoked-token"
        assert refused(again.enrol, again.issued.make("enrolment"), "", one) == "revoked-token"
    enrol(again, examples=30)
    assert again.examples.all() == [0, 10, 30]


def test_remedies_are_those_of_the_tokens_kind(accounts):
    made = accounts.issued.make("admin", name="Ada")
    in_folder = accounts.issued.make("admin", name=IN_FOLDER)
    accounts.issued.keep_in_folder("admin", None)
    assert accounts.is_valid(made, "admin")  # it was not in the folder
    accounts.issued.revoke(token_id(made))
    for token, remedy in ((made, "offbeat server tokens make FOLDER admin"), (in_folder, "delete admin-token")):
        with pytest.raises(Refusal, match=f"the token was revoked: .*{remedy}"):
            accounts.check(token, "admin")


def test_each_kind_of_token_opens_its_own_routes(server):
    client, nobody = server.enrol().http, server.peer(None).http
    tokens = {
        role: server.admin.http.post("/v1/tokens", json={"kind": role}).json()["token"]
        for role in ("enrolment", "viewer", "operator", "admin")
    }
    roles = {role: server.peer(token).http for role, token in tokens.items()}
    made = server.admin.http.post("/v1/tokens", json={"kind": "viewer"}).json()["id"]
    least = {
        ("GET", "/v1/status"): "viewer",
        ("GET", "/metrics"): "viewer",
        ("GET", "/v1/admin/clients"): "viewer",
        ("POST", "/v1/admin/pause"): "operator",
        ("POST", "/v1/admin/resume"): "operator",
        ("POST", "/v1/admin/extend"): "operator",
        ("GET", "/v1/admin/model"): "operator",
        ("POST", "/v1/admin/clients/0/rename"): "operator",
        ("GET", "/v1/tokens"): "admin",
        ("POST", "/v1/tokens"): "admin",
        ("DELETE", f"/v1/tokens/{made}"): "admin",
        ("DELETE", "/v1/clients/0"): "operator",
    }
    bodies = {"/v1/admin/extend": {"versions": 99}, "/v1/tokens": {"kind": "viewer"}}
    for (method, path), needed in least.items():
        body = bodies.get(path, {"name": "ward"}) if method == "POST" else None
        assert kind_of(client.request(method, path, json=body), 403) == "foreign-token"
        assert kind_of(nobody.request(method, path, json=body), 401) == "no-token"
        order = list(roles)
        for role, http in roles.items():
            answer = http.request(method, path, json=body)
            if order.index(role) < order.index(needed):
                assert kind_of(answer, 403) == "foreign-token", (role, method, path)
                assert f"one of the kind {needed}" in answer.json()["detail"]
            else:
                assert answer.status_code not in (401, 403), (role, method, path)
    assert kind_of(roles["admin"].post("/v1/checkin", json={}), 403) == "foreign-token"
    assert kind_of(roles["admin"].post("/v1/enrol", json={}), 403) == "foreign-token"
    assert kind_of(nobody.post("/v1/enrol", json={}), 401) == "no-token"


def test_only_an_enrolment_token_has_uses(server):
    wanted = {"kind": "viewer", "uses": 3}
    assert kind_of(server.admin.http.post("/v1/tokens", json=wanted), 400) == "malformed-request"
    assert kind_of(server.admin.http.post("/v1/tokens", json={"kind": "client"}), 400) == "malformed-request"


def test_the_update_of_a_client_that_is_revoked_during_the_upload_does_not_count(server):
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


def test_a_client_that_asks_too_often_is_refused_and_no_other(tmp_path):
    with running(tmp_path / "server", requests_a_second=0.001, burst=3) as server:
        hostile, honest = server.enrol(), server.enrol()
        for _ in range(3):
            hostile.check_in()
        answer = hostile.http.post("/v1/checkin", json={})
        assert kind_of(answer, 429) == "too-many-requests"
        assert answer.headers["retry-after"] == "1"
        check_progress(server, [honest])
