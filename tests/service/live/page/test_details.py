"""A site's curves, events, settings and faults of access on the live page, in real Chromium."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.service.conftest import running
from tests.service.hosting.conftest import hosting
from tests.service.http_client import ONES
from tests.service.live.page.conftest import eventually, sign_in

CONFIG = {"algorithm": {"algorithm": "fedbuff", "buffer_size": 2}, "service": {"clients": 5}}


@pytest.fixture
def served(page, tmp_path):
    """A server with two clients, one of which is ahead, its page open."""
    with running(tmp_path / "server", config=CONFIG, lease_seconds=60.0) as server:
        server.peers = [server.enrol(name=name) for name in ("ward-1", "ward-2")]
        for peer in (*server.peers, server.peers[0]):
            assert peer.send(peer.check_in(), ONES)["counted"]
        server.service.engine.state.best = {"version": 1, "metric": "accuracy", "value": 0.875, "sha256": "0" * 64}
        sign_in(page, server.url, server.admin.token)
        eventually(lambda: len(page.texts("#sites tbody tr")) == 2)
        yield server


def rows(page, section):
    return [tuple(text.split()) for text in page.texts(f"{section} details tbody tr")]


@pytest.mark.long
def test_the_curves_of_a_site_that_is_selected_by_keyboard(page, served):
    assert not page.find("#site").is_displayed()
    name = page.find("#sites tbody tr:first-child .name")
    name.send_keys(Keys.ENTER)
    eventually(lambda: page.find("#site-title").text == "ward-1")
    page.find("#site details summary").click()
    eventually(lambda: [count for _, count in rows(page, "#site")] == ["1", "2"])
    peer = served.peers[0]
    assert peer.send(peer.check_in(), ONES)["counted"]
    eventually(lambda: [count for _, count in rows(page, "#site")] == ["1", "2", "3"])
    page.find("#site-show").send_keys("staleness")
    eventually(lambda: [staleness for _, staleness in rows(page, "#site")] == ["0", "0", "0"])
    assert "Staleness of ward-1" in page.find("#site .plot").get_attribute("aria-label")
    page.find("#site-close").send_keys(Keys.ENTER)
    assert not page.find("#site").is_displayed()
    assert page.driver.switch_to.active_element == name
    assert page.console() == []


@pytest.mark.long
def test_the_best_version_is_beside_the_newest(page, served):
    tiles = dict(zip(page.texts("#tiles dt"), page.texts("#tiles dd:not(.note)"), strict=True))
    assert (tiles["Version"], tiles["Best accuracy"]) == ("1", "0.875")
    assert "version 1" in page.texts("#tiles dd.note")[-1]


@pytest.mark.long
def test_events_and_the_audit_log_a_page_at_a_time(page, served):
    for number in range(60):
        served.admin.http.post("/v1/tokens", json={"kind": "viewer", "name": f"name-{number}"})
    page.find("#log > summary").click()

    def lines():  # at once, since rows come and go
        return page.run("return [...document.querySelectorAll('#log tbody tr')].map(row => row.innerText)")

    eventually(lambda: len(lines()) == 50)
    assert "token made" in lines()[0]
    assert "name-59" in lines()[0]
    page.find("#log-after").click()
    eventually(lambda: "name-9" in lines()[0])
    assert page.find("#log-before").is_enabled()
    page.find("#log-kind").send_keys("audit")
    eventually(lambda: "name-59" in lines()[0])
    page.find("#log-after").click()
    eventually(lambda: "server started" in lines()[-1])
    assert not page.find("#log-after").is_enabled()
    assert page.console() == []


@pytest.mark.long
def test_the_settings_are_folded(page, served):
    assert not page.texts("#settings tbody tr")
    page.find("#settings > summary").click()
    shown = eventually(lambda: page.texts("#settings tbody tr"))
    assert {"algorithm.algorithm fedbuff", "algorithm.buffer_size 2", "service.clients 5"} <= set(shown)


@pytest.mark.long
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_all_is_within_reach_and_axe_core_finds_no_serious_fault(width, dark, page, served):
    page.look(width, dark)
    page.find("#sites tbody tr:first-child .name").click()
    for summary in page.all("#log > summary, #settings > summary"):
        page.run("arguments[0].click()", summary)
    eventually(lambda: page.texts("#settings tbody tr") and page.texts("#log tbody tr"))
    eventually(lambda: page.find("#site .plot").is_displayed())
    assert page.run("return document.documentElement.scrollWidth") <= width
    acts = [one for one in page.all("button, select, input") if one.is_displayed()]
    assert len(acts) > 15
    for one in acts:
        page.run("arguments[0].scrollIntoView({block: 'center', inline: 'nearest'})", one)
        left, right = page.run("const box = arguments[0].getBoundingClientRect(); return [box.left, box.right]", one)
        assert 0 <= left < right <= width, one.accessible_name
    (revoke,) = [one for one in acts if one.accessible_name == "Revoke ward-2"]
    page.run("document.querySelector('#sites .wide').scrollLeft = 0", revoke)
    assert page.run("return arguments[0].getBoundingClientRect().right", revoke) <= width  # without a scroll sideways
    assert page.barriers() == []


@pytest.mark.long
def test_a_run_of_several_has_its_page_below_a_path(page, tmp_path):
    with hosting(tmp_path / "server") as server:
        server.create("night", algorithm="fedbuff", labels=["all"])
        assert server.enrol("ward-1", "all").work() == "night"
        server.create("day", algorithm="fedbuff", labels=["all"])
        url = f"{server.url}/runs/night"
        sign_in(page, url, server.admin.token)
        eventually(lambda: page.texts("#sites tbody tr"))
        page.find("#sites tbody tr:first-child .name").click()
        eventually(lambda: page.find("#site-title").text == "ward-1")
        page.find("#settings > summary").click()
        eventually(lambda: page.texts("#settings tbody tr"))
        page.find("#pause").click()
        eventually(lambda: page.find("#done").text == "The run is paused")
        assert [run["state"] for run in server.runs().values()] == ["paused", "at work"]
        page.find("#log > summary").click()
        eventually(lambda: "run paused" in page.find("#log tbody").text)
        assert all(asked.startswith(f"{url}/") for asked in page.requested())
        assert page.console() == []
        page.find("#sign-out").click()
        page.driver.get(f"{server.url}/")
        assert page.find("#sign-in").is_displayed()
        page.driver.get("about:blank")
