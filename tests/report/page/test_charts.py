"""Charts in real Chromium: switches, hover, zoom, toggles, colours."""

import re

import pytest
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.long

PIXELS = """
    const canvas = document.querySelector(arguments[1]);
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const wanted = getComputedStyle(document.querySelector(arguments[0])).color.match(/\\d+/g).map(Number);
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 240 && wanted.every((part, k) => Math.abs(part - data[i + k]) <= 2)) found += 1;
    }
    return found;
"""


@pytest.fixture
def chart(browser, report):
    browser.open(report)
    return browser


def choose(chart, group, value, section="curves"):
    chart.find(f'#{section} [data-name="{group}"] input[value="{value}"]').click()


def title(chart, section="curves"):
    return chart.find(f"#{section} .plot").get_attribute("aria-label")


def pixels(chart, label, section="curves"):
    """Return how many pixels of a chart have the colour of a label."""
    return chart.run(PIXELS, f".line-{label}", f"#{section} canvas")


def hover(chart, share, section="curves"):
    """Move the mouse to a share of the chart's width; return what is read there."""
    over = chart.find(f"#{section} .u-over")
    chart.run("arguments[0].scrollIntoView({block: 'center'})", over)
    chart.mouse().move_to_element_with_offset(over, round((share - 0.5) * over.size["width"]), 0).perform()
    return readout(chart, section)


def readout(chart, section="curves"):
    return chart.find(f"#{section} .readout").text


def cursor(chart, share):
    """Return the x under the mouse at a share of the chart's width."""
    return float(re.search(r"[\d.]+$", hover(chart, share).replace(",", ""))[0])


def values(chart):
    """Return what the legend says of each label."""
    return dict(zip(chart.texts("#curves .legend b"), chart.texts("#curves .legend small"), strict=True))


def test_the_curves_can_be_over_time_visits_bytes_and_versions(chart):
    assert chart.texts('#curves [data-name="over"] label') == ["virtual time", "visits", "bytes", "versions"]
    assert "test accuracy over virtual time (minutes)" in title(chart)
    for value, axis, end in (
        ("updates", "visits of clients", 9),
        ("bytes", "clients (B)", 6),
        ("versions", "model", 3),
    ):
        choose(chart, "over", value)
        assert axis in title(chart)
        assert cursor(chart, 0.5) == pytest.approx(end / 2, rel=0.02)
    assert chart.find("#curves-title").text == "Test accuracy over versions"


def test_another_measure(chart):
    chart.find("#measure").send_keys("test loss")
    assert "test loss over virtual time" in title(chart)
    assert chart.find("#curves-title").text == "Test loss over virtual time"
    assert set(values(chart).values()) == {"1"}


def test_the_mouse_reads_the_values_of_all_labels(chart):
    assert readout(chart) == "At the end:"
    assert values(chart)["fedbuff"].startswith("93.0 %")
    # Halfway, at 150 s, between 60 and 80 % (and 3 % for the mean of the seeds).
    assert hover(chart, 0.5).startswith("virtual time (minutes): 2.")
    assert float(values(chart)["fedbuff"].partition(" ")[0]) == pytest.approx(73, abs=0.2)
    assert float(values(chart)["fedavg"].partition(" ")[0]) == pytest.approx(28, abs=0.2)


def test_logarithmic_axes(chart):
    choose(chart, "over", "updates")
    linear = pixels(chart, 0)
    choose(chart, "x", "log")
    # From the first visits on, 3, to the last, 9: halfway is √27.
    assert cursor(chart, 0.5) == pytest.approx(27**0.5, rel=0.03)
    choose(chart, "y", "log")
    assert pixels(chart, 0) != linear
    assert chart.console() == []


def test_a_click_on_a_label_hides_its_line(chart):
    before = {label: pixels(chart, label) for label in range(3)}
    (button,) = [found for found in chart.all("#curves .legend button") if "fedavg" in found.text]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert before[1] > 100
    assert pixels(chart, 1) == 0
    assert pixels(chart, 0) > 100
    choose(chart, "over", "bytes")  # a switch keeps it hidden
    assert pixels(chart, 1) == 0
    choose(chart, "over", "seconds")
    (button,) = [found for found in chart.all("#curves .legend button") if "fedavg" in found.text]
    button.send_keys(Keys.SPACE)
    assert pixels(chart, 1) == before[1]


def test_curves_that_coincide_are_all_seen(chart):
    note = chart.find("#participation .side .note")
    assert note.text == "Curves that coincide take turns: fedbuff, fedavg, slow."
    buttons = {button.text.split()[0]: button for button in chart.all("#participation .legend button")}
    buttons["slow"].click()  # which has the colour of fedbuff
    assert note.text == "Curves that coincide take turns: fedbuff, fedavg."
    chart.wait_until_drawn()
    assert min(pixels(chart, label, "participation") for label in (0, 1)) > 50
    buttons["fedbuff"].click()
    assert not note.is_displayed()
    assert not chart.find("#curves .side .note").is_displayed()


def test_dragging_zooms_and_a_button_resets(chart):
    over = chart.find("#curves .u-over")
    width, height = over.size["width"], over.size["height"]
    button = chart.find("#curves .reset")
    assert not button.is_displayed()
    mouse = chart.mouse().move_to_element_with_offset(over, 0, -height // 4).click_and_hold()
    mouse.move_by_offset(width // 4, height // 2).release().perform()
    assert button.is_displayed()
    assert cursor(chart, 0.01) == pytest.approx(2.5, abs=0.05)
    assert cursor(chart, 0.99) == pytest.approx(3.75, abs=0.05)
    chart.find("#smoothing").send_keys(Keys.ARROW_RIGHT)  # keeps the zoom
    assert cursor(chart, 0.01) == pytest.approx(2.5, abs=0.05)
    button.click()
    assert not button.is_displayed()
    assert cursor(chart, 0.99) == pytest.approx(5, rel=0.02)


def test_smoothing_is_off_until_it_is_asked_for(chart):
    assert chart.find("#smoothed").text == "off"
    hover(chart, 2 / 3)  # the third of four evaluations
    exact = values(chart)["fedbuff"]
    assert exact.startswith("83.0 %") or exact.startswith("82.9 %") or exact.startswith("83.1 %")
    chart.find("#smoothing").send_keys(Keys.ARROW_RIGHT)
    assert chart.find("#smoothed").text == "over 3 points"
    hover(chart, 2 / 3)
    # The mean of 63, 83 and 93 %.
    assert float(re.match(r"[\d.]+", values(chart)["fedbuff"])[0]) == pytest.approx(79.67, abs=0.5)


def test_each_seed_has_a_line(chart):
    assert chart.texts('#curves [data-name="lines"] span') == ["mean and seeds", "each seed"]  # too few for a band
    mean = pixels(chart, 0)
    assert values(chart)["fedavg"].count("%") == 1
    choose(chart, "lines", "seeds")
    assert values(chart)["fedavg"] == "42.0 % · 44.0 %"
    assert pixels(chart, 0) != mean


def test_the_keyboard_reads_values(chart):
    plot = chart.find("#curves .plot")
    plot.send_keys(Keys.ARROW_RIGHT)
    assert readout(chart) == "virtual time (minutes): 0"
    plot.send_keys(Keys.ARROW_RIGHT * 25)
    assert readout(chart) == "virtual time (minutes): 2.5"


def test_a_dark_screen_and_paper_have_colours_of_their_own(browser, report):
    browser.open(report, dark=True)
    dark = browser.run("return getComputedStyle(document.querySelector('.line-0')).color")
    assert pixels(browser, 0) > 100
    browser.look(dark=False)
    browser.wait_until_drawn()
    assert browser.run("return getComputedStyle(document.querySelector('.line-0')).color") != dark
    assert pixels(browser, 0) > 100  # drawn again
    browser.look(dark=True, media="print")
    browser.wait_until_drawn()
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert pixels(browser, 0) > 100
    assert not browser.find("#curves .controls").is_displayed()
    browser.look()


def test_sorted_curves_of_clients(chart):
    assert chart.texts("#on-clients .legend b") == ["fedbuff"]
    assert chart.texts("#on-clients .legend small") == ["median 50.0 %"]
    assert hover(chart, 0.995, "on-clients").startswith("clients, the worst first (%): ")
    assert chart.texts("#participation .legend small")[0] == "0.5 % of the clients; 99 % have none"
    choose(chart, "x", "log", "participation")
    assert chart.console() == []


def test_the_time_line_names_the_visit_under_the_mouse(chart):
    over = chart.find("#timeline .u-over")
    chart.run("arguments[0].scrollIntoView({block: 'center'})", over)
    texts = set()
    for step in range(-20, 21):
        chart.mouse().move_to_element_with_offset(over, 0, step * over.size["height"] // 42).perform()
        texts.add(chart.find("#timeline figcaption span").text)
    assert any(re.fullmatch(r"client \d+, [\d.]+ to [\d.]+: counted, staleness [012]", text) for text in texts), texts
