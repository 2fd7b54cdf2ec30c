"""Enrolment and admin tokens: listed, revoked, expired, and kept out of command lines."""

import re
import stat

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.accounts.issued_tokens import IN_FOLDER
from offbeat.service.accounts.registry import Account
from tests.offbeat_command import offbeat_output
from tests.service.conftest import running
from tests.service.http_client import kind_of


def test_tokens_are_listed_without_the_tokens(folder, accounts):
    token = accounts.issued.make("enrolment", uses=2, seconds=60.0, name="ward 3")
    accounts.issued.make("admin")
    accounts.enrol(token, "")
    folder.now += 10.0
    for opened in (accounts, folder.open()):
        ward, admin = opened.issued.infos()
        assert (ward.kind, ward.name, ward.state, ward.uses) == ("enrolment", "ward 3", "valid", 1)
        assert ward.expires_seconds == 50.0
        assert re.fullmatch(r"[0-9a-f]{12}", ward.id)
        assert (admin.kind, admin.name, admin.uses, admin.expires_seconds) == ("admin", "", None, None)
    folder.now += 50.0
    assert accounts.issued.infos()[0].state == "expired"


def test_a_revoked_token_ends_at_once_and_stays_revoked(folder, accounts, refused):
    token, another = (accounts.issued.make("enrolment") for _ in range(2))
    accounts.issued.revoke(accounts.issued.infos()[0].id)
    assert refused(accounts.issued.revoke, "nothing") == "no-such-token"
    for opened in (accounts, folder.open()):
        assert refused(opened.check, token, "enrolment") == "revoked-token"
        assert [info.state for info in opened.issued.infos()] == ["revoked", "valid"]
        assert opened.is_valid(another, "enrolment")


def test_only_the_folders_other_tokens_of_the_kind_are_revoked(folder, accounts):
    old, new = (accounts.issued.make("enrolment", name=IN_FOLDER) for _ in range(2))
    kept = [("enrolment", new), ("enrolment", accounts.issued.make("enrolment"))]
    kept.append(("admin", accounts.issued.make("admin", name=IN_FOLDER)))
    accounts.issued.keep_in_folder("enrolment", new)
    for opened in (accounts, folder.open()):
        assert not opened.is_valid(old, "enrolment")
        assert all(opened.is_valid(token, kind) for kind, token in kept)
    accounts.issued.keep_in_folder("admin", None)
    assert [accounts.is_valid(token, kind) for kind, token in kept] == [True, True, False]


def test_commands_make_tokens_in_files_of_their_owner_list_and_revoke_them(tmp_path):
    folder, one, two = tmp_path / "server", tmp_path / "one", tmp_path / "two"
    make, options = ("server", "tokens", "make", folder), ("--uses", 1, "--name", "ward 3", "--output", one)
    with running(folder) as server:
        assert offbeat_output(*make, "enrolment", *options) == f"{one}: a new enrolment token\n"
        offbeat_output(*make, "admin", "--hours", 1e-9, "--output", two)
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        peer = server.peer(one.read_text().strip())
        assert peer.http.post("/v1/enrol", json={}).status_code == 201
        assert kind_of(server.peer(two.read_text().strip()).http.get("/v1/status"), 401) == "expired-token"
        shown = offbeat_output("server", "tokens", "list", folder)
        assert re.search(r"^[0-9a-f]{12}: admin, expired$", shown, re.M)
        assert re.search(r"^[0-9a-f]{12}: admin, valid, in the server's folder$", shown, re.M)
        (ward,) = re.findall(r"^([0-9a-f]{12}): enrolment, used up, ward 3$", shown, re.M)
        assert offbeat_output("server", "tokens", "revoke", folder, ward) == f"{ward}: revoked\n"
        assert f"{ward}: enrolment, revoked, ward 3\n" in offbeat_output("server", "tokens", "list", folder)
        with pytest.raises(OffbeatError, match=r"cannot write .*File exists"):
            offbeat_output(*make, "admin", "--output", one)
        with pytest.raises(OffbeatError, match="--uses is for enrolment tokens"):
            offbeat_output(*make, "admin", "--uses", 1, "--output", tmp_path / "three")
    with pytest.raises(OffbeatError, match="does not answer"):
        offbeat_output(*make, "admin", "--output", tmp_path / "three")
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize(
    ("account", "state"),
    [
        (Account("admin"), "valid"),
        (Account("enrolment", uses=1, expires=11.0), "valid"),
        (Account("enrolment", expires=10.0), "expired"),
        (Account("enrolment", uses=0, expires=9.0), "used up"),
        (Account("enrolment", uses=0, expires=9.0, revoked=True), "revoked"),
    ],
)
def test_the_state_of_a_token(account, state):
    assert account.state(10.0) == state
