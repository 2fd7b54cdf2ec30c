"""The admin's actions on the live page, in real Chromium."""

import signal

import pytest
from safetensors.torch import load
from selenium.webdriver.common.keys import Keys

from tests.e2e.server_process import Server
from tests.service.conftest import running
from tests.service.http_client import ONES
from tests.service.live.page.conftest import cells, eventually, sign_in, tile


@pytest.fixture
def served(page, tmp_path):
    """A server with two clients, its page open."""
    with running(tmp_path / "server", stop_versions=10) as server:
        peers = [server.enrol(name=name) for name in ("ward-1", "ward-2")]
        for _ in range(2):
            for peer in peers:
                assert peer.send(peer.check_in(), ONES)["counted"]
        server.peers = peers
        sign_in(page, server.url, server.admin.token)
        eventually(lambda: len(page.texts("#sites tbody tr")) == 2)
        yield server


def button(page, name):
    (found,) = [one for one in page.all("button") if one.is_displayed() and one.accessible_name == name]
    return found


def press(page, name):
    page.run("arguments[0].scrollIntoView({block: 'center'})", button(page, name))
    button(page, name).click()


def answer(page, value=None):
    """Answer the dialog that is open."""
    assert page.find("#ask").get_attribute("open")
    if value is not None:
        page.find("#ask-value").send_keys(Keys.CONTROL, "a")
        page.find("#ask-value").send_keys(value)
    page.find("#ask-yes").click()


def done(page, text):
    eventually(lambda: page.find("#done").text == text)


@pytest.mark.long
def test_a_site_is_renamed_while_the_focus_stays_where_it_was(page, served):
    rename = button(page, "Rename ward-1")
    page.run("arguments[0].focus()", rename)
    served.enrol(name="ward-3")
    eventually(lambda: len(page.texts("#sites tbody tr")) == 3)
    assert page.driver.switch_to.active_element == rename
    rename.send_keys(Keys.ENTER)
    page.find("#ask-value").send_keys("ward one", Keys.ENTER)
    done(page, "Renamed to ward one")
    assert page.driver.switch_to.active_element == rename  # a dialog gives it back
    eventually(lambda: cells(page, 1)[0].startswith("ward one"))
    press(page, "Rename ward one")
    press(page, "Cancel")
    assert not page.find("#ask").get_attribute("open")
    press(page, "Rename ward one")
    answer(page, "North wing")
    done(page, "Renamed to North wing")
    eventually(lambda: cells(page, 1)[0].startswith("North wing"))
    listed = served.admin.http.get("/v1/admin/clients").json()["clients"]
    assert [site["name"] for site in listed] == ["North wing", "ward-2", "ward-3"]
    assert page.console() == []


@pytest.mark.long
def test_a_site_and_a_token_are_revoked_after_a_question_and_the_model_is_downloaded(page, served):
    press(page, "Revoke ward-2")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.find("#ask").get_attribute("open")
    assert served.peers[1].http.post("/v1/checkin", json={}).status_code == 200
    press(page, "Revoke ward-2")
    answer(page)
    done(page, "ward-2 is revoked")
    assert served.peers[1].http.post("/v1/checkin", json={}).status_code == 401
    eventually(lambda: cells(page, 2)[2] == "revoked")
    assert not button(page, "Revoke ward-2").is_enabled()
    page.find("#new-token [name=name]").send_keys("Ward 9")
    page.find("#new-token [name=uses]").send_keys("2")
    press(page, "Make the token")
    token = eventually(lambda: page.find("#made-token-text").get_attribute("value"))
    assert served.peer(token).http.post("/v1/enrol", json={}).status_code == 201
    eventually(lambda: any(text.startswith("Ward 9") for text in page.texts("#tokens tbody tr")))
    press(page, "Revoke Ward 9")
    answer(page)
    done(page, "The token Ward 9 is revoked")
    assert served.peer(token).http.post("/v1/enrol", json={}).status_code == 401
    press(page, "Download the model")
    expected = served.admin.http.get("/v1/admin/model")
    name = expected.headers["content-disposition"].partition('filename="')[2].rstrip('"')
    assert load(page.saved_bytes(name)).keys() == load(expected.content).keys()
    done(page, f"Downloaded {name}")


def test_the_run_is_paused_resumed_and_extended_also_after_its_end(page, served):
    peers = served.peers
    press(page, "Pause")
    done(page, "The run is paused")
    eventually(lambda: page.find("#problems").text == "The run waits for an admin to resume it")
    assert served.admin.http.get("/v1/status").json()["paused"] is True
    assert peers[0].check_in() is None
    press(page, "Resume")
    done(page, "The run is resumed")
    eventually(lambda: page.find("#problems").text == "Nothing needs attention.")
    for _ in range(8):
        for peer in peers:
            assert peer.send(peer.check_in(), ONES)["counted"]
    eventually(lambda: page.find("#problems").text.startswith("The run has ended"))
    press(page, "Extend …")
    answer(page, "12")
    done(page, "The run ends at version 12")
    eventually(lambda: page.find("#problems").text == "Nothing needs attention.")
    assert served.admin.http.get("/v1/status").json()["finished"] is False
    assert peers[0].check_in()
    eventually(lambda: "of 12" in page.find("#tiles").text)
    press(page, "Extend …")
    page.run("document.getElementById('ask-value').removeAttribute('min')")
    answer(page, "11")
    assert eventually(lambda: "Refused: " in page.find("#done").text)


def test_a_role_sees_what_it_may_do_and_no_more(page, served):
    acts = {"Pause", "Extend …", "Download the model", "Rename ward-1", "Revoke ward-1", "Make the token"}
    may = {"viewer": set(), "operator": acts - {"Make the token"}, "admin": acts}
    for role, expected in may.items():
        made = served.admin.http.post("/v1/tokens", json={"kind": role}).json()["token"]
        page.driver.get("about:blank")
        sign_in(page, served.url, made)
        eventually(lambda: len(page.texts("#sites tbody tr")) == 2)
        eventually(lambda: page.find("#connection").text == "Live")
        shown = {one.accessible_name for one in page.all("button") if one.is_displayed()}
        assert shown & acts == expected
        assert page.find("#tokens").is_displayed() == (role == "admin")
        assert page.console() == []


@pytest.mark.long
def test_an_admin_whose_token_is_revoked_is_signed_out(page, served):
    made = served.admin.http.post("/v1/tokens", json={"kind": "admin", "name": "wall"}).json()["token"]
    page.driver.get("about:blank")
    sign_in(page, served.url, made)
    (listed,) = [token for token in served.admin.http.get("/v1/tokens").json()["tokens"] if token["name"] == "wall"]
    served.admin.http.delete(f"/v1/tokens/{listed['id']}")
    served.enrol()
    eventually(lambda: page.find("#sign-in").is_displayed())
    assert "revoked" in page.find("#sign-in-problem").text
    assert not page.find("#page").is_displayed()
    assert page.run("return sessionStorage.length") == 0


@pytest.mark.long
def test_it_reconnects_to_a_server_that_was_killed(page, launcher, tmp_path):
    algorithm = 'algorithm = "fedbuff"\nbuffer_size = 1\nconcurrency = 4'
    with Server(launcher, tmp_path, algorithm, 6, 4, versions=99) as server:
        server.start()
        token = server.token("admin")
        server.version()
        sign_in(page, server.url, token)
        server.kill(signal.SIGKILL)
        eventually(lambda: "does not answer" in page.find("#connection").text)
        assert tile(page, "Version") == "0"  # what was known stays
        server.start()
        server.version()
        eventually(lambda: page.find("#connection").text == "Live", 60)
        assert page.find("#page").is_displayed()
        errors = [text for text in page.console() if "Failed to load resource" not in text]
        assert [text for text in errors if "ERR_" not in text] == []
