from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from offbeat.algorithms import ALGORITHMS
from offbeat.report.plot_style import line_styles
from tests.report.example_runs import a_run

ALWAYS = ["fedavg", "fedbuff", "fedasync", "fedfa", "scaffold", "mifa"]


def named(label, algorithm=None):
    return a_run(label, config={"algorithms": {label: {"algorithm": algorithm} if algorithm else {}}})


def test_an_algorithm_has_the_same_colour_in_every_comparison():
    alone = line_styles([named("fedbuff")])["fedbuff"]
    among = line_styles([named(name) for name in [*reversed(list(ALGORITHMS)), "my.py:Mine"]])
    assert among["fedbuff"].colour == alone.colour
    without = line_styles([named(name) for name in ALGORITHMS])
    assert {name: among[name].colour for name in without} == {name: style.colour for name, style in without.items()}
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


def test_six_algorithms_have_six_colours_and_no_dashes():
    names = ["fedavg", "fedluck", "area", "my.py:Mine", "fedfa", "fednova"]
    for number in range(2, 7):
        styles = line_styles([named(f"label{place}", name) for place, name in enumerate(names[:number])]).values()
        assert len({style.colour for style in styles}) == len({style.dark_colour for style in styles}) == number
        assert all(style.dash == () for style in styles)


def test_the_best_known_algorithms_are_solid_and_colours_are_shared_evenly():
    styles = line_styles([named(name) for name in ("port", "fedluck", "area", "fadas", *ALWAYS, "ace", "fednova")])
    assert all(styles[name].dash == () for name in ALWAYS)
    shared = Counter(style.colour for style in styles.values())
    assert list(shared.values()) == [2] * 6


# How each kind of eye sees linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
EYES = {
    "all cones": np.eye(3),
    "no red cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no blue cones": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def oklab(linear):
    """Return OKLab (Ottosson, 2020) of linear RGB, both ``(3,)``."""
    cones = [
        [0.41222147, 0.53633254, 0.05144599],
        [0.2119035, 0.68069955, 0.10739696],
        [0.08830246, 0.28171884, 0.6299787],
    ]
    axes = [
        [0.21045426, 0.79361779, -0.00407205],
        [1.9779985, -2.42859221, 0.45059371],
        [0.02590404, 0.78277177, -0.80867577],
    ]
    return np.array(axes) @ np.cbrt(np.array(cones) @ np.clip(linear, 0, 1))


@pytest.mark.parametrize("look", ["colour", "dark_colour"])
def test_every_eye_can_tell_the_colours_apart(look):
    colours = [linear(getattr(style, look)) for style in line_styles([named(name) for name in ALWAYS]).values()]
    for eye, matrix in EYES.items():
        seen = [oklab(np.array(matrix) @ colour) for colour in colours]
        distances = [np.linalg.norm(one - other) for one, other in combinations(seen, 2)]
        assert min(distances) > (0.13 if eye == "all cones" else 0.07), eye  # 0.02 is just noticeable


def linear(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels])


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def test_each_colour_has_the_contrast_of_a_graphic_on_its_page():
    styles = line_styles([named(f"label{number}", f"m:{number}") for number in range(200)]).values()
    white, dark = 1.05, luminance("#15181C") + 0.05  # WCAG 2.2, 1.4.11: at least 3 to 1
    assert len({style.colour for style in styles}) == 6
    assert all(white / (luminance(style.colour) + 0.05) >= 3 for style in styles)
    assert all((luminance(style.dark_colour) + 0.05) / dark >= 4.5 for style in styles)
