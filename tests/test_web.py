import re
from importlib import resources

import offbeat.web


def text(name):
    return resources.files(offbeat.web).joinpath(name).read_text(encoding="utf-8")


def test_the_plot_library_has_its_licence_and_the_version_that_is_named():
    (version,) = re.findall(r"uPlot \(v([\d.]+)\)", text("uplot.js")[:200])
    assert f"uPlot {version}" in str(offbeat.web.__doc__)
    assert text("uplot.LICENSE").startswith("The MIT License (MIT)")


def test_the_plot_library_can_stand_in_a_page_and_asks_for_nothing():
    assert "</script" not in text("uplot.js").lower()
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|\beval\(|new Function", text("uplot.js"))
    assert not re.search(r"</style|url\(|@import", text("uplot.css").lower())
