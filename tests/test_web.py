import re
import tomllib
from importlib import resources
from pathlib import Path

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


def test_all_files_of_the_pages_are_in_the_wheel():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    package = Path(offbeat.web.__file__).parents[1]
    patterns = project["tool"]["setuptools"]["package-data"]["offbeat"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in (package / "web").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert len(files) > 12
    assert {path for path in files if path.suffix != ".py"} <= packed
