import math
from dataclasses import replace

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from offbeat.sweeps.page.page import finding, sweep_page
from offbeat.sweeps.page.parallel_data import parallel_data
from offbeat.sweeps.record import Searched
from offbeat.sweeps.search_space import Choices, Numbers
from offbeat.sweeps.trials import Trial

SPACE = {
    "local.lr": Numbers(0.01, 1.0, log=True),
    "size": Choices((2, 5, 10)),
    "kind": Choices(("a", {"name": "</b>"})),
}
SEARCHED = Searched(
    "tiny", "accuracy", "higher", (1, 2), 20, {"fedbuff": SPACE, "fedavg": {"n": Numbers(1, 3, False, True)}}
)


def trial(number, lr, size, kind, value):
    point = {"local.lr": lr, "size": size, "kind": SPACE["kind"].values[kind]}
    return Trial("fedbuff", number, point, value, value if math.isfinite(value) else -math.inf)


TRIALS = {
    "fedbuff": [
        trial(0, 0.01, 2, 0, 0.1),
        trial(1, 0.1, 5, 1, 0.5),
        trial(2, 0.99, 10, 0, 0.9),
        trial(3, 1.0, 10, 1, math.nan),
        trial(4, 0.2, 5, 0, 0.7),
        trial(5, 0.5, 2, 1, 0.8),
    ],
    "fedavg": [],
}


def test_it_names_the_best_and_what_lies_at_an_edge():
    page = sweep_page(SEARCHED, TRIALS, [], "offbeat sweep")
    assert "Best accuracy: 90.0 % by fedbuff." in page
    assert "<li>fedbuff: local.lr = 0.99 is at the upper end of 0.01 to 1 (log)</li>" in page
    assert "<li>fedbuff: size = 10 is at the upper end of 2 | 5 | 10</li>" in page
    assert "6 of 20 trials so far, 1 diverged" in page
    assert "0 of 3 trials so far" in page
    assert "</b>" not in page  # settings are text
    assert "No trial has a result yet." in sweep_page(SEARCHED, {label: [] for label in TRIALS}, [], "")


def test_with_a_target_the_time_to_it_comes_first():
    later, sooner = (replace(TRIALS["fedbuff"][n], seconds=s, score=1 / (1 + s)) for n, s in ((2, 60.0), (5, 30.0)))
    searched = replace(SEARCHED, target=0.75)
    missed = replace(TRIALS["fedbuff"][4], score=0.7 - 0.75)
    page = sweep_page(searched, {"fedbuff": [later, sooner, missed], "fedavg": []}, [], "")
    assert "Soonest at 75 %: fedbuff after 30.0 s." in page
    assert '<th scope="col">accuracy</th><th scope="col">Time to 75 %</th>' in page
    assert '<td data-value="0.9">90.0 %</td><td data-value="60.0">1 min</td>' in page
    assert '<td data-value="0.7">70.0 %</td><td>missed</td>' in page
    assert "by the time to 75 %, where it was missed by the mean of the last 10 evaluations of accuracy, over" in page


def test_the_first_line_names_who_missed_the_target():
    searched, best = replace(SEARCHED, target=0.75), {"fedbuff": TRIALS["fedbuff"][4]}
    assert finding(searched, best) == "No trial reached 75 %. Best accuracy: 70.0 % by fedbuff."
    best["fedavg"] = Trial("fedavg", 0, {"n": 1}, 0.8, 1 / (1 + 90.0), 90.0)
    best["fedbuff"] = replace(best["fedbuff"], score=0.7 - 0.75)
    assert finding(searched, best) == "Soonest at 75 %: fedavg after 1 min 30 s; not reached by fedbuff."


def test_a_tuning_was_followed_by_a_comparison():
    page = sweep_page(SEARCHED, TRIALS, [], "", is_tuning=True)
    assert "Tuning of tiny" in page
    assert "best.toml" not in page


def test_places_on_the_axes_by_hand():
    data = parallel_data(SEARCHED, "fedbuff", TRIALS["fedbuff"])
    assert [axis["name"] for axis in data["axes"]] == ["local.lr", "size", "kind", "accuracy"]
    assert data["axes"][0]["ticks"] == [{"at": 0, "text": "0.01"}, {"at": 0.5, "text": "0.1"}, {"at": 1, "text": "1"}]
    # A tenth of the measure's axis is for the trials that diverged; 0.5 is in the middle of the rest.
    assert [one["places"] for one in data["trials"][1:4]] == [[0.5, 0.5, 1, 0.55], [0.9978, 1, 0, 1], [1, 1, 1, 0]]
    assert [one["fifth"] for one in data["trials"]] == [3, 2, 0, 4, 1, 0]
    assert data["trials"][3]["texts"][-1] == "diverged"


def test_the_best_are_on_top_where_lower_is_better():
    searched = Searched("tiny", "loss", "lower", (1,), 20, {"a": {"n": Numbers(0, 4, False)}})
    own = [Trial("a", n, {"n": n}, value, -value) for n, value in enumerate([1.0, 3.0, 2.0])]
    assert [one["places"][-1] for one in parallel_data(searched, "a", own)["trials"]] == [1, 0, 0.5]
    wide = [Trial("a", n, {"n": n}, value, -value) for n, value in enumerate([1.0, 1e4, 1e2])]
    assert [one["places"][-1] for one in parallel_data(searched, "a", wide)["trials"]] == [1, 0, 0.5]


@pytest.mark.long
def test_trials_are_picked_on_an_axis(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(sweep_page(SEARCHED, TRIALS, [], "offbeat sweep"), encoding="utf-8")
    for width, dark in ((400, False), (1920, True), (1280, False)):
        browser.open(path, width, dark)
        browser.wait_until_drawn()
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.console() == browser.requested() == []
    assert browser.barriers() == []
    assert len(browser.all("polyline")) == 6
    handle = browser.all(".handle")[1]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", handle)
    # The upper third of the axis has the two trials of size 10.
    ActionChains(browser.driver).move_to_element_with_offset(handle, 0, -150).click_and_hold().move_by_offset(
        0, 100
    ).release().perform()
    shown = [row for row in browser.all("tr[data-trial]") if row.is_displayed()]
    assert [row.get_attribute("data-trial") for row in shown] == ["2", "3"]
    browser.mouse().move_to_element(shown[1]).perform()
    assert "trial 3: local.lr 1, size 10, kind </b>, accuracy diverged" in browser.texts(".readout")
    browser.find(".all").click()
    assert len([row for row in browser.all("tr[data-trial]") if row.is_displayed()]) == 6
