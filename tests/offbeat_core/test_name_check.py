"""Names that others read in lists and logs."""

import pytest
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.http.enrolment import identify
from offbeat_core.errors import OffbeatError
from offbeat_core.name_check import check_name
from offbeat_private.helper.roster import parse_roster

from tests.offbeat_private.helper.conftest import LOCAL, TERMS
from tests.offbeat_private.helper.test_roster import CLIENTS
from tests.service.conftest import running
from tests.service.http_client import kind_of

HIDDEN = {
    "ward\x1b[2J": "001B",
    "ward\n3": "000A",
    "ward\u20283": "2028",
    "ward \u202e3": "202E",
    "war\u00add": "00AD",
    "ward\ufeff": "FEFF",
    "ward\u200d": "200D",
    "\u200cward": "200C",
    "病\u200d\u200d院": "200D",
    "ward\u3164": "3164",
    "ward\u00a0": "00A0",
    "ward\ue000": "E000",
    "w\ufe01": "FE01",
    "ward\U000e0100": "E0100",
}


@pytest.mark.parametrize(("name", "code"), HIDDEN.items(), ids=HIDDEN.values())
def test_a_name_that_could_hide_or_change_the_text_around_it_is_refused(name, code):
    with pytest.raises(ValueError, match=rf"^a name has visible characters only, not U\+{code}$"):
        check_name(name)


ANY_SCRIPT = ["", "ward 3", "Würzburg", "\u0627\u0644\u0645\u0631\u06a9\u0632\u200c\u0647\u0627", "病院"]
EMOJI = ["👩\u200d⚕\ufe0f", "❤\ufe0f\u200d🔥"]


@pytest.mark.parametrize("name", ANY_SCRIPT + EMOJI)
def test_any_script_and_emoji_may_be_in_a_name(name):
    assert check_name(name) == name


def test_a_server_takes_no_such_name(tmp_path):
    with running(tmp_path / "server") as server:
        enrols = server.peer(server.enrolment_token)
        for name in ("ward\x1b[2J", "war\u00add"):
            for who, path, rest in ((enrols, "enrol", {}), (server.admin, "tokens", {"kind": "viewer"})):
                assert kind_of(who.http.post(f"/v1/{path}", json={"name": name, **rest}), 400) == "malformed-request"
        assert len(server.service.accounts) == 0


def test_a_client_asks_for_no_such_name(server, connection, tmp_path):
    with ClientFolder(tmp_path) as folder, pytest.raises(OffbeatError, match=r"^the client's name cannot be used: "):
        identify(connection, folder, "obe_1", "ward\u202e3")
    assert server.heard == []


def test_a_roster_has_no_such_name(tmp_path):
    clients = {("a\u200bb" if name == "client-0" else name): key for name, key in CLIENTS.items()}
    with pytest.raises(OffbeatError, match="a name has visible characters only, not U"):
        parse_roster({"terms": TERMS, "local": LOCAL, "clients": clients}, tmp_path / "roster.toml")
