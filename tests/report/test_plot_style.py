from dataclasses import replace

from offbeat.algorithms import ALGORITHMS
from offbeat.report.plot_style import line_styles
from tests.report.example_runs import a_run


def named(label, algorithm=None):
    return a_run(label, config={"algorithms": {label: {"algorithm": algorithm} if algorithm else {}}})


def test_an_algorithm_has_the_same_colour_in_every_comparison():
    alone = line_styles([named("fedbuff")])["fedbuff"]
    among = line_styles([named(name) for name in reversed(list(ALGORITHMS))])
    assert among["fedbuff"].colour == alone.colour
    assert line_styles([replace(named("fedbuff"), label="x/fedbuff")])["x/fedbuff"] == alone


def test_the_variants_of_an_algorithm_share_its_colour_and_differ_in_dashes():
    styles = line_styles([named("fedbuff"), named("fedavg"), named("slow", "fedbuff"), named("slower", "fedbuff")])
    assert styles["fedbuff"].colour == styles["slow"].colour == styles["slower"].colour != styles["fedavg"].colour
    assert styles["fedbuff"].dash == styles["fedavg"].dash == ()
    assert len({styles[label].dash for label in ("fedbuff", "slow", "slower")}) == 3


def test_any_number_of_algorithms_can_be_told_apart():
    names = [*ALGORITHMS, *(f"my.py:Mine{number}" for number in range(40))]
    styles = line_styles([named(f"label{place}", name) for place, name in enumerate(names)])
    looks = [(style.colour, style.dash) for style in styles.values()]
    assert len(set(looks)) == len(looks)
    builtin = [styles[f"label{place}"] for place in range(len(ALGORITHMS))]
    assert all(style.dash == () for style in builtin[:12])  # as long as there are colours


def luminance(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_each_colour_has_the_contrast_of_a_graphic_on_its_page():
    styles = line_styles([named(f"label{number}", f"m:{number}") for number in range(200)]).values()
    white, dark = 1.05, luminance("#15181C") + 0.05  # WCAG 2.2, 1.4.11: at least 3 to 1
    assert len({style.colour for style in styles}) == 16
    assert all(white / (luminance(style.colour) + 0.05) >= 3 for style in styles)
    assert all((luminance(style.dark_colour) + 0.05) / dark >= 4.5 for style in styles)
