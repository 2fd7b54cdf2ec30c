"""The login of people on the live page, in real Chromium and with a real provider."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.service.live.page.conftest import eventually
from tests.service.login.conftest import with_real_provider


@pytest.fixture
def served(page, tmp_path):
    with with_real_provider(tmp_path / "server") as server:
        yield server
        page.command("Network.clearBrowserCookies")


def log_in(page, name):
    page.find("#log-in").click()
    eventually(lambda: page.all("input[name=login]"))
    page.find("input[name=login]").send_keys(name)
    page.find("input[name=password]").send_keys("any", Keys.ENTER)
    eventually(lambda: page.all("#connection") and page.find("#connection").text == "Live")


def test_a_person_logs_in_acts_and_logs_out(page, served):
    page.visit(f"{served.url}/")
    assert page.find("#log-in").is_displayed()
    assert page.find("#token").is_displayed()
    assert page.find("#sign-in-problem").text == ""
    assert page.barriers() == []
    log_in(page, "olga")
    assert page.driver.current_url == f"{served.url}/"
    assert page.run("return [document.cookie, sessionStorage.length]") == ["", 0]  # no script can read the session
    assert page.find("#pause").is_displayed()
    assert not page.find("#tokens").is_displayed()  # olga is an operator
    eventually(lambda: page.texts("#tiles dd"))
    page.find("#pause").click()
    eventually(lambda: page.find("#done").text == "The run is paused")
    assert served.service.engine.run.is_paused
    page.driver.refresh()
    eventually(lambda: page.find("#connection").text == "Live")
    page.find("#sign-out").click()
    eventually(lambda: page.find("#sign-in").is_displayed())
    page.driver.refresh()
    eventually(lambda: page.find("#sign-in").is_displayed())
    assert served.service.accounts.sessions.accounts == {}


@pytest.mark.long
def test_a_login_that_an_admin_ends_asks_again(page, served):
    page.visit(f"{served.url}/")
    log_in(page, "victor")
    assert not page.find("#pause").is_displayed()
    (session,) = [one for one in served.admin.http.get("/v1/tokens").json()["tokens"] if one["name"] == "sub:victor"]
    assert served.admin.http.delete(f"/v1/tokens/{session['id']}").status_code == 204
    eventually(lambda: page.find("#sign-in-problem").text == "this server does not know the token: log in again")
    page.find("#log-in").click()  # the provider still knows victor
    eventually(lambda: page.all("#connection") and page.find("#connection").text == "Live")


@pytest.mark.long
def test_a_callback_that_nobody_began_is_a_page_with_a_way_back(page, served):
    page.visit(f"{served.url}/v1/login/callback?code=x&state=y")
    assert page.find(".problem").text.startswith("This login was not begun in this browser")
    assert page.barriers() == []
    page.find("a").click()
    eventually(lambda: page.all("#log-in"))
