"""The live page in real Chromium: what it draws, and what it refuses."""

import itertools
import time

import pytest
from selenium.webdriver.common.keys import Keys

from offbeat.service.live.snapshots import Snapshots
from offbeat.service.refusal import Refusal
from tests.service.conftest import running
from tests.service.live.page.conftest import cells, eventually, federation, sign_in, tile

NAMES = ["Aachen", "Bergen", "Coimbra"]
HOSTILE = [
    '<img src=x onerror="document.title=1">',
    "</td><script>document.title=1</script>",
    "reversed &amp; <b>bold</b>",
]
PIXELS = """
    const canvas = document.querySelector(arguments[0] + " canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const probe = document.createElement("i");
    probe.className = "uplot";
    document.body.append(probe);
    probe.style.color = getComputedStyle(document.documentElement).getPropertyValue("--line");
    const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 240 && wanted.every((part, k) => Math.abs(part - data[i + k]) <= 2)) found += 1;
    }
    return found;
"""
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A server that three real clients have trained; tests only look at it."""
    with federation(tmp_path_factory.mktemp("trained"), NAMES) as server:
        assert server.peer("oba_wrong").http.get("/v1/status").status_code == 401
        server.admin.http.post("/v1/tokens", json={"kind": "enrolment", "name": HOSTILE[0], "uses": 3})
        yield server


def rows(page, section):
    """Return the rows of the table of a chart, opened."""
    page.find(f"{section} summary").click()
    eventually(lambda: page.texts(f"{section} details tbody tr"))  # they come after the click
    return [tuple(text.split()) for text in page.texts(f"{section} details tbody tr")]


def test_it_stays_live_through_a_front(page, tmp_path):
    with running(tmp_path / "server", front_processes=1) as server:
        sign_in(page, server.url, server.admin.token)
        eventually(lambda: page.find("#connection").text == "Live")
        page.run("""
            window.seen = new Set();
            const shown = document.querySelector("#connection");
            new MutationObserver(() => window.seen.add(shown.textContent)).observe(
                shown, {childList: true, characterData: true, subtree: true, attributes: true});
        """)
        for _ in range(3):
            assert server.enrol().check_in() is not None
            time.sleep(1)
        eventually(lambda: tile(page, "Enrolled").startswith("3"))
        assert set(page.run("return [...window.seen]")) <= {"Live"}


@pytest.mark.long
def test_without_a_token_there_is_a_field_and_nothing_else(page, trained):
    page.visit(f"{trained.url}/")
    assert page.find("#sign-in").is_displayed()
    assert not page.find("#page").is_displayed()
    assert page.driver.title == "Offbeat"
    assert [element.tag_name for element in page.all("input, button") if element.is_displayed()] == ["input", "button"]
    assert page.driver.switch_to.active_element.get_attribute("id") == "token"
    assert page.console() == []
    assert not [url for url in page.requested() if "/v1/" in url]


@pytest.mark.long
def test_a_wrong_token_is_refused_and_forgotten(page, trained):
    page.visit(f"{trained.url}/")
    page.find("#token").send_keys("oba_wrong", Keys.ENTER)
    assert eventually(lambda: page.find("#sign-in-problem").text).startswith("this server does not know the token")
    assert not page.find("#page").is_displayed()
    assert page.run("return sessionStorage.length") == 0
    page.find("#token").send_keys(trained.admin.token, Keys.ENTER)
    eventually(lambda: page.find("#page").is_displayed())
    page.driver.refresh()  # the tab keeps the token
    eventually(lambda: page.find("#page").is_displayed())
    page.find("#sign-out").click()
    assert page.find("#sign-in").is_displayed()
    page.driver.refresh()
    assert not page.find("#page").is_displayed()


@pytest.mark.long
def test_a_page_that_gets_no_data_says_why(page, trained, monkeypatch):
    async def refused(*_, **__):
        raise Refusal("no-space", "the disk is full")

    monkeypatch.setattr(Snapshots, "answer", refused)
    page.visit(f"{trained.url}/#token={trained.admin.token}")
    eventually(lambda: "the disk is full" in page.find("#sign-in-problem").text)
    monkeypatch.undo()
    eventually(lambda: page.find("#connection").text == "Live")
    assert not page.find("#sign-in").is_displayed()


@pytest.mark.long
def test_a_page_that_stays_open_keeps_both_kinds_of_evaluations_and_the_beginning(page, trained):
    page.visit(f"{trained.url}/")
    kept = page.run("""
        return import("/live/history.js").then(({History}) => {
          const history = new History();
          for (let version = 1; version <= 20000; version++) {
            history.take({versions: [], evaluations: [[version, {accuracy: 0.5}], [version, {client_accuracy: 0.5}]]});
          }
          return ["accuracy", "client_accuracy"].map(name => history.series(name, "version").map(point => point.x));
        });""")
    for versions in kept:
        assert 300 < len(versions) <= 4096
        assert max(second - first for first, second in itertools.pairwise([0, *versions])) <= 64
        assert versions[-1] == 20000


def test_it_draws_the_run(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    assert page.driver.current_url == f"{trained.url}/"  # without the token
    status = trained.admin.http.get("/v1/status").json()
    assert int(tile(page, "Version")) == status["version"] >= 6
    assert int(tile(page, "Counted updates")) == status["counted"]
    assert tile(page, "Enrolled") == "3"
    for chart in ("#quality", "#versions", "#participation"):
        assert page.run(PIXELS, chart) > 50, chart
    values = [float(value) for _, value in rows(page, "#quality")]
    assert values[0] == 0.5
    assert values == sorted(values)
    assert [int(version) for _, version in rows(page, "#versions")][-1] == status["version"]
    assert sum(int(row[-1]) for row in rows(page, "#staleness")) == status["counted"]
    counts = [int(row[-1]) for row in rows(page, "#participation")]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == status["counted"]
    assert "at most 4 counts" in page.find("#staleness .summary").text
    assert page.find("#participation .summary").text.startswith("Gini coefficient 0.")
    kinds = dict(text.split() for text in page.texts("#refusals tbody tr"))
    assert int(kinds["unknown-token"]) >= 1
    assert page.find("#buffer-text").text == f"{status['counted'] % 2} of 2 updates"
    eventually(lambda: page.texts("#sites tbody tr"))
    assert sorted(cells(page, row)[0].partition(" client")[0] for row in (1, 2, 3)) == NAMES
    assert sum(int(cells(page, row)[3]) for row in (1, 2, 3)) == status["counted"]
    assert not page.find("#privacy").is_displayed()
    assert page.console() == []
    assert [url for url in page.requested() if not url.startswith(f"{trained.url}/")] == []


@pytest.mark.long
def test_the_name_of_a_target_is_to_the_right_of_the_axis(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    drawn = page.run("""
        const seen = [], draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
          if (text === "the end") seen.push(this.textAlign);
          return draw.call(this, text, ...more);
        };
        return import("/live/charts.js").then(async ({LineChart}) => {
          const chart = new LineChart(document.querySelector("#versions"));
          const texts = {xTitle: "", yTitle: "", label: "", targetText: "the end"};
          chart.show({x: [0, 1], y: [0, 9], isCount: true, target: 10, ...texts});
          await new Promise(done => setTimeout(done, 200));
          return seen;
        });""")
    assert set(drawn) == {"left"}


@pytest.mark.long
def test_problems_come_first_and_none_is_one_calm_line(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    assert page.find("#problems").text == "Nothing needs attention."
    trained.service.engine.publisher.problem = "version 9 cannot be made"
    try:
        eventually(lambda: page.texts("#problems li"))
        assert page.texts("#problems li") == trained.admin.http.get("/v1/status").json()["problems"]
        assert page.texts("#problems li")[0].startswith("There is no new model (version 9")
        assert page.find("#problems").location["y"] < page.find("#tiles").location["y"]
        assert page.barriers() == []
    finally:
        trained.service.engine.publisher.problem = None
    eventually(lambda: page.find("#problems").text == "Nothing needs attention.")


@pytest.mark.long
def test_another_metric_over_versions(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    assert page.texts("#metric option") == ["accuracy", "loss"]
    page.find("#metric").send_keys("loss")
    page.find("#over").send_keys("versions")
    values = rows(page, "#quality")
    assert [int(version) for version, _ in values] == list(range(1, len(values) + 1))
    assert float(values[0][1]) == 1.0
    assert "loss" in page.find("#quality .plot").get_attribute("aria-label")
    page.find("#quality .plot").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.find("#quality .readout").text == "Version 2: loss 0.5"


@pytest.mark.long
def test_a_page_that_was_left_asks_for_nothing_and_goes_on_when_one_comes_back(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    page.driver.get("about:blank")
    page.requested()
    time.sleep(3)
    assert page.requested() == []
    page.driver.back()
    eventually(lambda: page.find("#connection").text == "Live")


@pytest.mark.long
@pytest.mark.parametrize("width", [400, 320])
def test_a_narrow_screen_does_not_scroll_sideways(width, page, trained):
    page.visit(f"{trained.url}/", width=width)
    assert page.run(OVERFLOW) == 0
    sign_in(page, trained.url, trained.admin.token, width=width)
    eventually(lambda: page.texts("#sites tbody tr"))
    eventually(lambda: page.texts("#tokens tbody tr"))
    for summary in page.all("summary"):
        page.run("arguments[0].click()", summary)
    assert page.run(OVERFLOW) == 0
    assert page.all("#pause")[0].is_displayed()


@pytest.mark.long
def test_a_dark_screen_has_colours_of_its_own(page, trained):
    sign_in(page, trained.url, trained.admin.token, dark=True)
    background = "return getComputedStyle(document.body).backgroundColor"
    assert page.run(background) == "rgb(21, 24, 28)"
    eventually(lambda: page.run(PIXELS, "#versions") > 50)
    page.look(dark=False)
    assert page.run(background) == "rgb(255, 255, 255)"
    eventually(lambda: page.run(PIXELS, "#versions") > 50)  # drawn again


@pytest.mark.long
def test_a_screen_reader_finds_names_and_is_not_flooded(page, trained):
    sign_in(page, trained.url, trained.admin.token)
    eventually(lambda: page.texts("#sites tbody tr"))
    controls = "button, input, select, progress, [role=img], [tabindex='0']"
    controls = [found for found in page.all(controls) if found.is_displayed()]
    assert len(controls) > 20
    assert [found.get_attribute("outerHTML") for found in controls if not found.accessible_name] == []
    live = page.all("[aria-live]:not([aria-live=off]), [role=status], [role=alert]")
    assert {found.get_attribute("id") for found in live} == {"connection", "done", "problems", "sign-in-problem"}
    assert all(header.get_attribute("scope") for header in page.all("th"))
    levels = [int(found.tag_name[1]) for found in page.all("main h1, main h2, main h3")]
    assert levels[0] == 1
    assert set(levels[1:]) == {2}


@pytest.mark.long
def test_the_age_of_a_lease_grows_until_it_is_renewed(page, tmp_path):
    with federation(tmp_path, NAMES[:1], versions=1) as server:
        peer = server.enrol()
        visit = peer.check_in()
        sign_in(page, server.url, server.admin.token)

        def lease():
            *_, age, left = page.texts("#visits tbody tr:first-child > *")
            return (int(age.removesuffix(" s")), int(left.removesuffix(" s"))) if left else None

        eventually(lambda: (found := lease()) and found[0] >= 4)  # renewals of less than 3 s are left out
        age, left = lease()
        assert age + left == pytest.approx(60, abs=1)
        assert peer.http.post(f"/v1/visits/{visit['number']}/heartbeat").status_code == 200
        eventually(lambda: lease()[0] < age)


def test_names_from_the_network_stay_text(page, tmp_path):
    with federation(tmp_path, HOSTILE[:2], versions=2) as server:
        peer = server.enrol(name=HOSTILE[2])
        assert peer.check_in()
        sign_in(page, server.url, server.admin.token)
        eventually(lambda: len(page.texts("#sites tbody tr")) == 3)
        shown = page.run("return [...document.querySelectorAll('#sites .name')].map(node => node.textContent)")
        assert sorted(shown) == sorted(HOSTILE)
        eventually(lambda: page.run("return document.querySelector('#visits tbody th')?.textContent") == HOSTILE[2])
        assert page.all("main img, main script, main b") == []
        assert page.driver.title.startswith("fedbuff, version")
        assert page.console() == []
