"""Pages in real Chromium: layout, styles, policy, tables."""

import csv
import io
import json

import pytest

from tests.report.page.saved_runs import rendered, saved


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True), (1920, False)])
def test_the_page_fits_asks_for_nothing_and_logs_nothing(browser, report, width, dark):
    browser.open(report, width, dark)
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
    for chart in browser.all(".plot canvas"):
        assert 200 <= chart.size["width"] <= width
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(","))) < 120) is dark
    assert browser.console() == []
    assert browser.requested() == []


@pytest.mark.parametrize("number", [2, 6])
def test_the_tables_that_matter_are_not_cut_on_a_usual_screen(browser, number, tmp_path):
    labels = ["fedavg", "fedbuff", "fedfa", "fedasync", "a-long-label-of-one", "scaffold"][:number]
    totals = {"counted": 38_866, "lost": 1_180, "version": 7_773, "bytes_down": 376_612_345, "bytes_up": 374_712_345}
    visits = [(seed, seed % 2, 0.0, 10.0, "counted") for seed in range(9)]
    runs = [
        saved(
            tmp_path, label, seed, (0.1, 0.5 + seed / 30, 0.6 + seed / 20), visits,
            totals={name: value + 1234 * seed for name, value in totals.items()},
            seconds=(0, 9000 + 5000 * seed, 90_000),
        )
        for label in labels
        for seed in (1, 2, 3)
    ]  # fmt: skip
    times = {"clients": 60, "waiting_seconds": 12.0, "working_seconds": 30.0}
    for run in runs:
        (run.path / "client_time.json").write_text(json.dumps(times), encoding="utf-8")
    path = tmp_path / "report.html"
    path.write_text(rendered(runs)[0], encoding="utf-8")
    browser.open(path, 1280)
    wide = "return [...document.querySelectorAll('#results, #costs')].map(one => [one.parentElement, one.id])"
    for frame, name in browser.run(wide):
        assert browser.run("return arguments[0].scrollWidth - arguments[0].clientWidth", frame) == 0, name
    browser.look(media="print")
    bottom = "arguments[0].getBoundingClientRect().bottom"
    for spread in browser.all("#costs small"):
        assert browser.run(f"return {bottom} - {bottom.replace('[0]', '[0].parentElement')}", spread) <= 1
    browser.look()


@pytest.mark.parametrize("dark", [False, True])
def test_axe_core_finds_no_serious_fault(browser, report, dark):
    browser.open(report, 1280, dark)
    for details in browser.all("details"):
        browser.run("arguments[0].open = true", details)
    assert browser.barriers() == []


def test_the_policy_refuses_other_scripts_styles_and_requests(browser, report):
    browser.open(report)
    browser.run("""
        const script = document.createElement("script");
        script.textContent = "window.attacked = true";
        document.body.append(script);
        const image = new Image();
        image.src = "https://example.com/x.png";
        document.body.append(image);
        document.body.setAttribute("style", "color: red");
        return fetch("https://example.com/").catch(() => null);
    """)
    assert browser.run("return window.attacked") is None
    assert browser.run("return getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    assert len([line for line in browser.console() if "Content Security Policy" in line]) >= 4


def test_texts_from_files_stay_texts(browser, tmp_path):
    evil = "</script><script>window.attacked = true</script><img src=x onerror='window.attacked = 1'>\"'&<!--"
    runs = [saved(tmp_path, "fedavg"), saved(tmp_path / "other", "fedbuff")]
    runs[0].config["name"] = evil
    object.__setattr__(runs[1], "label", evil)
    path = tmp_path / "report.html"
    path.write_text(rendered(runs, title=evil, command=evil)[0], encoding="utf-8")
    browser.open(path)
    assert browser.run("return window.attacked") is None
    assert browser.all("img") == []
    assert browser.console() == []
    assert browser.driver.title == evil
    for selector in ("h1", "header code", "#results tbody tr:last-child th", "#curves .legend li:last-child b"):
        assert evil in browser.texts(selector), selector
    configurations = browser.run("return [...document.querySelectorAll('pre')].map(found => found.textContent)")
    assert json.dumps(evil)[1:-1] in configurations[0]  # as in TOML


def labels(browser):
    return [text.strip() for text in browser.texts("#results tbody th")]


@pytest.mark.long
def test_a_click_on_a_header_sorts_the_table(browser, report):
    browser.open(report)
    assert labels(browser) == ["fedbuff", "fedavg", "slow"]
    (final,) = [found for found in browser.all("#results .sort") if found.text == "Final accuracy"]
    header = final.find_element("xpath", "..")
    final.click()
    assert labels(browser) == ["fedbuff", "slow", "fedavg"]
    assert header.get_attribute("aria-sort") == "descending"
    final.click()
    assert labels(browser) == ["fedavg", "slow", "fedbuff"]
    assert header.get_attribute("aria-sort") == "ascending"
    browser.find("#results .sort").click()
    assert labels(browser) == ["fedavg", "fedbuff", "slow"]
    assert header.get_attribute("aria-sort") is None


@pytest.mark.long
def test_a_value_that_is_missing_is_sorted_last_in_both_directions(browser, report):
    browser.open(report)
    (time,) = [found for found in browser.all("#results .sort") if found.text == "Time to 50 %"]
    for order in (["slow", "fedbuff", "fedavg"], ["fedbuff", "slow", "fedavg"]):
        time.click()
        assert labels(browser) == order


@pytest.mark.long
def test_a_table_is_saved_as_csv(browser, report):
    browser.open(report)
    browser.find('[data-table="results"]').click()
    header, *rows = csv.reader(io.StringIO(browser.saved("results.csv")))
    assert header[0] == "Algorithm"
    assert [row[0] for row in rows] == ["fedbuff", "fedavg", "slow"]
    column = header.index("Final accuracy")
    assert [float(row[column]) for row in rows] == pytest.approx([0.93, 0.43, 0.73])
    written = header.index("Final accuracy (as written)")
    assert rows[0][written] == browser.texts("#results tbody tr:first-child td")[2]
    assert "±" in rows[0][written] or " to " in rows[0][written]
    browser.find('[data-table="versions"]').click()
    assert browser.saved("versions.csv") == "Package,Version\ntorch,2.9\nnumpy,2.3\n"
    assert browser.console() == []


@pytest.mark.long
def test_a_page_without_script_still_has_its_table(browser, report):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report)
        assert "need JavaScript" in browser.find("noscript").text
        assert labels(browser) == ["fedbuff", "fedavg", "slow"]
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
