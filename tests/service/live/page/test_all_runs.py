"""The page of all runs, in real Chromium."""

import json

import pytest
from selenium.webdriver.common.keys import Keys

from offbeat.service.hosting import runs
from tests.service.hosting.conftest import hosting
from tests.service.hosting.test_host_login import trusting
from tests.service.live.page.conftest import eventually
from tests.service.live.page.test_actions import answer, button, done, press
from tests.service.login.conftest import browser_at  # noqa: F401

OVERFLOW = "return document.documentElement.scrollWidth - innerWidth"
HOSTILE = "<img src=x onerror=alert(1)><b>&amp;"


@pytest.fixture
def served(page, tmp_path, monkeypatch):
    """A server with runs in most states and three sites, one of them revoked."""
    monkeypatch.setattr(runs, "_RETRY_SECONDS", 3600.0)  # a run that has failed stays so
    with hosting(tmp_path / "server") as server:
        server.create("retina", algorithm="fedasync", versions=500)
        server.create("short", algorithm="fedasync", versions=1)
        server.create("broken", algorithm="fedasync", labels=["none"])
        server.sites = [server.enrol("ward 3", "gpu", "eu"), server.enrol(HOSTILE)]
        for _ in range(3):
            for site in server.sites:
                assert site.work()
        server.fail("broken")
        assert server.admin.http.delete(f"/v1/sites/{server.enrol('old').number}").status_code == 204
        yield server


def open_page(page, server, token=None, **look):
    page.visit(f"{server.url}/#token={token or server.admin.token}", **look)
    eventually(lambda: page.find("#connection").text == "Live")
    eventually(lambda: page.texts("#sites tbody tr"))


def row(page, table, name):
    """Return the texts of the row of this name."""
    rows = page.run(
        "return [...document.querySelectorAll(arguments[0])].map(row => [...row.cells].map(cell => cell.textContent))",
        f"#{table} tbody tr",
    )
    (found,) = [cells for cells in rows if cells[0].startswith(name)]
    return found


def test_it_shows_problems_runs_and_sites_of_one_moment(page, served):
    open_page(page, served)
    assert page.driver.current_url == f"{served.url}/"  # without the token
    assert page.driver.title == "3 runs · Offbeat"
    now = served.admin.http.get("/v1/status").json()
    assert page.texts("#problems li") == now["problems"]
    assert page.texts("#problems li")[0].startswith("broken has failed (ValueError: planted), and")
    assert page.find("#problems").location["y"] < page.find("#tiles").location["y"]
    counted = sum(run["counted"] or 0 for run in now["runs"])
    assert counted == 6
    assert page.texts("#tiles dd:not(.note)") == ["3", "3", "0", "6"]
    assert page.texts("#tiles .note") == ["1 at work", "1 revoked", "0 wait for work", ""]
    assert page.texts("#runs tbody th") == ["retina", "broken", "short"]  # those that are over last
    assert row(page, "runs", "retina")[1:8] == ["at work", "fedasync", "5 of 500", "2 of 3", "0", "0", "5"]
    assert row(page, "runs", "short")[1:4] == ["over", "fedasync", "1 of 1"]
    assert row(page, "runs", "broken")[2:8] == ["–"] * 6
    assert row(page, "sites", "ward 3")[2:4] == ["eu, gpu", "retina, short"]
    assert row(page, "sites", "old")[1].startswith("revoked")
    assert row(page, "sites", HOSTILE)[0] == f"{HOSTILE} site-1"
    assert page.all("main img, main b") == []
    assert page.console() == []
    assert [url for url in page.requested() if not url.startswith(f"{served.url}/")] == []


def test_a_run_begins_is_paused_extended_and_ended_by_the_keyboard(page, served, tmp_path):
    file = tmp_path / "Lungs 2.toml"
    file.write_text(json.dumps({"algorithm": "fedasync", "versions": 9}))
    open_page(page, served)
    page.find("#new-run [name=file]").send_keys(str(file))
    assert page.find("#new-run [name=name]").get_attribute("value") == "lungs-2"
    page.find("#new-run [name=name]").send_keys(Keys.ENTER)
    done(page, "lungs-2 has begun")
    eventually(lambda: "lungs-2" in page.texts("#runs tbody th"))
    assert row(page, "runs", "lungs-2")[3] == "0 of 9"
    assert served.runs()["lungs-2"]["state"] == "at work"
    for name, outcome, state in (("Pause", "paused", "paused"), ("Resume", "resumed", "at work")):
        button(page, f"{name} lungs-2").send_keys(Keys.ENTER)
        done(page, f"lungs-2 is {outcome}")
        assert served.runs()["lungs-2"]["state"] == state
        eventually(lambda state=state: row(page, "runs", "lungs-2")[1] == state)
    for name, versions in (("lungs-2", "20"), ("short", "3")):
        button(page, f"Extend {name}").send_keys(Keys.ENTER)
        eventually(lambda: page.find("#ask").get_attribute("open"))
        answer(page, versions)
        done(page, f"{name} ends at version {versions}")
        assert served.runs()[name]["stop_versions"] == int(versions)
    eventually(lambda: row(page, "runs", "short")[1] == "at work")
    button(page, "End lungs-2").send_keys(Keys.ENTER)
    page.find("#ask-yes").send_keys(Keys.ENTER)
    done(page, "lungs-2 has ended")
    assert served.runs()["lungs-2"]["state"] == "over"
    assert not button(page, "Pause broken").is_enabled()
    file.write_text("{}")
    page.find("#new-run [name=file]").send_keys(str(file))
    page.find("#new-run [name=name]").send_keys(Keys.ENTER)
    done(page, "Refused: run lungs-2: unknown algorithm")


@pytest.mark.long
def test_a_site_is_labelled_renamed_and_revoked_and_tokens_get_labels(page, served):
    open_page(page, served)
    press(page, "Label ward 3")
    answer(page, "eu, cpu")
    done(page, "ward 3 has other labels")
    eventually(lambda: row(page, "sites", "ward 3")[2] == "cpu, eu")
    press(page, "Label ward 3")
    page.find("#ask-value").send_keys(Keys.CONTROL, "a")
    page.find("#ask-value").send_keys(Keys.DELETE, Keys.ENTER)  # none
    eventually(lambda: row(page, "sites", "ward 3")[2] == "–")
    press(page, "Rename ward 3")
    answer(page, "North wing")
    done(page, "Renamed to North wing")
    eventually(lambda: "North wing site-0" in page.texts("#sites tbody th"))
    press(page, "Revoke North wing")
    answer(page)
    done(page, "North wing is revoked")
    assert served.sites[0].root.http.post("/v1/work", json={}).status_code == 401
    eventually(lambda: not button(page, "Revoke North wing").is_enabled())
    page.find("#new-token [name=labels]").send_keys("gpu eu")
    press(page, "Make the token")
    token = eventually(lambda: page.find("#made-token-text").get_attribute("value"))
    assert served.peer(token).http.post("/v1/enrol", json={}).status_code == 201
    assert served.admin.http.get("/v1/sites").json()["sites"][-1]["labels"] == ["eu", "gpu"]
    made = [token["id"] for token in served.admin.http.get("/v1/tokens").json()["tokens"]][-1]
    eventually(lambda: made in page.texts("#tokens tbody th"))
    assert row(page, "tokens", made)[1] == "enrolment for eu, gpu"


@pytest.mark.long
def test_sites_come_in_pages(page, served):
    for number in range(3, 52):
        served.enrol(f"site {number}")
    open_page(page, served)
    eventually(lambda: page.find("#sites-range").text == "1 to 50 of 52")
    press(page, "Next")
    eventually(lambda: page.texts("#sites tbody .name") == ["site 50", "site 51"])
    assert page.find("#sites-range").text == "51 to 52 of 52"
    press(page, "Previous")
    eventually(lambda: len(page.texts("#sites tbody tr")) == 50)


def test_who_has_signed_in_is_so_at_each_run_and_back(page, served):
    open_page(page, served)
    page.find("#runs a").click()
    eventually(lambda: page.all("#tiles dd") and page.find("#title").text == "Offbeat · fedasync")
    assert page.driver.current_url == f"{served.url}/runs/retina/"
    page.driver.refresh()
    eventually(lambda: page.find("#connection").text == "Live")
    page.find("#all-runs").click()
    eventually(lambda: page.texts("#runs tbody th"))
    assert page.driver.current_url == f"{served.url}/"
    assert page.find("#connection").text == "Live"
    page.find("#runs a").click()
    eventually(lambda: page.all("#title") and page.find("#connection").text == "Live")
    page.find("#sign-out").click()
    page.visit(f"{served.url}/")
    assert page.find("#sign-in").is_displayed()
    assert page.run("return sessionStorage.length") == 0


@pytest.mark.long
def test_a_token_of_one_run_stays_that_runs(page, served):
    made = served.peer(served.admin.token, "retina").http.post("/v1/tokens", json={"kind": "viewer"}).json()["token"]
    page.visit(f"{served.url}/runs/retina/#token={made}")
    eventually(lambda: page.find("#connection").text == "Live")
    page.find("#all-runs").click()
    eventually(lambda: page.all("#new-run") and page.find("#sign-in").is_displayed())
    page.driver.back()
    eventually(lambda: page.all("#title") and page.find("#connection").text == "Live")


def test_a_role_sees_what_it_may_do_and_no_more(page, served):
    acts = {"Pause retina", "End retina", "Label ward 3", "Revoke ward 3"}
    for role, expected in {
        "viewer": set(),
        "operator": acts,
        "admin": acts | {"Begin the run", "Make the token"},
    }.items():
        open_page(page, served, served.token(role))
        shown = {one.accessible_name for one in page.all("button") if one.is_displayed()}
        assert shown & (acts | {"Begin the run", "Make the token"}) == expected
        assert page.find("#tokens").is_displayed() == (role == "admin")
        assert page.console() == []
        page.run("sessionStorage.clear()")
        page.driver.get("about:blank")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1280])
def test_every_screen_can_be_read_without_barriers(width, dark, page, served):
    page.visit(f"{served.url}/", width=width, dark=dark)
    assert page.find("#sign-in").is_displayed()
    assert page.barriers() == []
    open_page(page, served, width=width, dark=dark)
    eventually(lambda: page.texts("#tokens tbody tr"))
    assert page.run(OVERFLOW) == 0
    assert page.barriers() == []
    controls = [found for found in page.all("button, input, select, a, [tabindex='0']") if found.is_displayed()]
    assert len(controls) > 20
    assert [found.get_attribute("outerHTML") for found in controls if not found.accessible_name] == []
    levels = [int(found.tag_name[1]) for found in page.all("main h1, main h2, main h3")]
    assert levels == [1, 2, 2, 2]
    reachable = page.run("return [...document.querySelectorAll('#runs .actions button, #sites .actions button')]"
                         ".map(button => button.getBoundingClientRect().right)")  # fmt: skip
    assert max(reachable) <= width  # without scrolling sideways
    press(page, "End retina")
    assert page.barriers() == []


@pytest.mark.long
def test_a_login_is_one_for_all_pages_and_ends_on_each(page, tmp_path, browser_at):  # noqa: F811
    with trusting(tmp_path / "server") as fooled:
        url = fooled.server.url
        fooled.server.create("retina", algorithm="fedasync")
        person = browser_at(url)
        assert fooled.log_in(person).status_code == 303
        page.visit(f"{url}/")
        assert page.find("#log-in").get_attribute("href") == f"{url}/v1/login"
        page.driver.add_cookie({"name": "offbeat", "value": person.http.cookies["offbeat"]})
        page.driver.refresh()
        eventually(lambda: page.texts("#runs tbody th"))
        press(page, "Pause retina")
        done(page, "retina is paused")
        page.find("#runs a").click()
        eventually(lambda: page.all("#title") and page.find("#connection").text == "Live")
        assert page.run("return sessionStorage.length") == 0
        page.find("#sign-out").click()
        eventually(lambda: page.find("#sign-in").is_displayed())
        eventually(lambda: fooled.server.service.accounts.sessions.accounts == {})
        page.visit(f"{url}/")
        eventually(lambda: page.find("#sign-in").is_displayed())
