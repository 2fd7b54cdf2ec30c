"""The pages on algorithms say what is there: hyper-parameters, defaults, commands, experiments, figures."""

import re
from pathlib import Path

import pytest

from offbeat.algorithms import ALGORITHMS
from offbeat.experiments import config
from offbeat.experiments.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/algorithms"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def rows(text):
    """The cells of a page's tables, a list a row."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_every_algorithm_has_a_page():
    assert [page.stem for page in PAGES] == sorted(ALGORITHMS)
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert [cells[0] for cells in rows(index) if cells[0].startswith("[")] == [
        f"[{page.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]({page.name})"
        for page in (FOLDER / f"{name}.md" for name in ALGORITHMS)
    ]


@every_page
def test_the_table_has_every_hyper_parameter_with_its_default(page):
    kind = ALGORITHMS[page.stem]
    values = hyper_parameters_of(kind())
    table = {cells[0]: cells[1:] for cells in rows(page.read_text(encoding="utf-8"))}
    for key in default_hyper_parameters(kind):
        default = f"`{as_inline_toml(values[key])}`" if key in values else "none"
        assert default in table[f"`{key}`"], key


@every_page
def test_the_page_and_the_file_name_the_command(page):
    file = f"experiments/algorithms/{page.stem}.toml"
    command = f"offbeat compare {file} --jobs 2"
    assert command in page.read_text(encoding="utf-8")
    head = (ROOT / file).read_text(encoding="utf-8").partition("\n\n")[0]
    assert command in head.replace("\n# ", " ")


@every_page
def test_the_experiment_is_one_of_the_algorithm(page):
    experiment = config.load(ROOT / "experiments/algorithms" / f"{page.stem}.toml")
    assert experiment.name == page.stem
    assert page.stem in {table.algorithm or label for label, table in experiment.algorithms.items()}


@every_page
def test_the_figure_is_there(page):
    shown = re.findall(r"!\[[^]]+\]\((\S+)\)", page.read_text(encoding="utf-8"))
    assert f"../images/algorithms/{page.stem}.png" in shown
    assert all((page.parent / figure).stat().st_size < 300_000 for figure in shown)
