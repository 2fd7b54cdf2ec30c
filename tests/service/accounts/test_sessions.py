"""Sessions: their ends and limits, and what they may do."""

import pytest
from offbeat_core.tokens import token_hash

from offbeat.service.accounts import sessions
from offbeat.service.accounts.issued_tokens import IN_FOLDER


@pytest.mark.parametrize(("role", "allowed"), [("viewer", 1), ("operator", 2), ("admin", 3)])
def test_a_session_may_do_what_its_role_may(accounts, refused, role, allowed):
    token = accounts.sessions.begin("ada", role)
    assert token.startswith("obs_")
    assert accounts.role_of(token) == role
    for number, needed in enumerate(["viewer", "operator", "admin"]):
        assert accounts.is_valid(token, needed) is (number < allowed)
    assert refused(accounts.check, token, "client") == "foreign-token"
    assert refused(accounts.enrol, token, "site") == "foreign-token"


def test_a_session_ends_after_eight_hours(folder, refused):
    accounts = folder.open()
    token = accounts.sessions.begin("ada", "viewer")
    folder.now += 8 * 3600 - 1
    assert accounts.is_valid(token, "viewer")
    folder.now += 1
    assert refused(accounts.check, token, "viewer") == "expired-token"
    with pytest.raises(Exception, match="the token has expired: log in again"):
        accounts.check(token, "viewer")
    accounts.sessions.begin("bob", "viewer")
    assert refused(accounts.check, token, "viewer") == "unknown-token"  # it takes no memory any more


def test_a_restart_ends_sessions_and_keeps_tokens(folder, refused):
    accounts = folder.open()
    session, token = accounts.sessions.begin("ada", "admin"), accounts.issued.make("admin")
    again = folder.open()
    assert again.is_valid(token, "admin")
    assert refused(again.check, session, "admin") == "unknown-token"


def test_one_person_has_ten_sessions_and_all_have_a_thousand(accounts, monkeypatch):
    monkeypatch.setattr(sessions, "_MOST", 15)
    other = accounts.sessions.begin("bob", "viewer")
    own = [accounts.sessions.begin("ada", "viewer") for _ in range(12)]
    assert [accounts.is_valid(token, "viewer") for token in own] == [False] * 2 + [True] * 10
    assert accounts.is_valid(other, "viewer")
    more = [accounts.sessions.begin(f"person {number}", "viewer") for number in range(5)]
    assert not accounts.is_valid(other, "viewer")
    assert [accounts.is_valid(token, "viewer") for token in (own[2], own[3], *more)] == [True, True, *[True] * 5]
    assert len(accounts.sessions.accounts) == 15
    accounts.sessions.begin("last", "viewer")
    assert not accounts.is_valid(own[2], "viewer")


def test_the_audit_log_has_persons_and_ids(accounts):
    session, token = accounts.sessions.begin("ada", "viewer"), accounts.issued.make("viewer", name="ada")
    assert accounts.actor_of(session) == "sub:ada"
    assert accounts.actor_of(token) == token_hash(token)[:12]


def test_a_person_may_have_the_name_of_the_token_in_the_folder(folder):
    accounts = folder.open()
    token = accounts.sessions.begin(IN_FOLDER, "admin")
    accounts.issued.keep_in_folder("admin", None)
    assert accounts.is_valid(token, "admin")
    folder.now += 9 * 3600
    with pytest.raises(Exception, match="log in again"):
        accounts.check(token, "admin")
