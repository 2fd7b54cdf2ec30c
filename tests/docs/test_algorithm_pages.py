"""The pages on algorithms say what is there: hyper-parameters, defaults, commands, experiments, figures."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbeat.algorithms import ALGORITHMS, Update
from offbeat.cli.main import app
from offbeat.config import experiment_file
from offbeat.config.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of
from offbeat.report.collect import collect

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/algorithms"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
CHAPTERS = [
    "The rule",
    "Hyper-parameters",
    "When it wins, and when not",
    "Theory",
    "Related algorithms",
    "What it costs",
    "Privacy",
    "Source",
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def rows(text):
    """The cells of a page's tables, a list a row."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_index_has_a_row_for_every_page():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    titles = {page.name: page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in PAGES}
    shown = [cells[0] for cells in rows(index) if cells[0].startswith("[")]
    assert sorted(shown) == sorted(f"[{title}]({name})" for name, title in titles.items())


def test_the_page_on_own_algorithms_lists_every_field_of_an_update():
    page = (ROOT / "docs/how-to/own-algorithm.md").read_text(encoding="utf-8")
    fields = page.partition("| field of `Update` |")[2].partition("##")[0]
    listed = [name for cells in rows(fields) for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(listed) == sorted(Update._fields)


@every_page
def test_every_page_has_the_same_chapters(page):
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == CHAPTERS


def test_every_page_is_of_an_algorithm():
    assert {page.stem for page in PAGES} <= set(ALGORITHMS)


@pytest.fixture
def chores(tmp_path, monkeypatch):
    """Return tools/algorithms.py, looking at a copy of the documents."""
    spec = importlib.util.spec_from_file_location("chores", ROOT / "tools/algorithms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path in ("docs/algorithms", "docs/images/algorithms", "experiments"):
        shutil.copytree(ROOT / path, tmp_path / path)
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_what_an_algorithm_lacks_is_listed(chores):
    def of_port():
        return [line for line in chores.missing() if line.startswith("port: ")]

    def rewrite(name, pattern, text):
        path = chores.ROOT / name
        path.write_text(re.sub(pattern, text, path.read_text("utf-8")), "utf-8")

    assert of_port() == []
    for path in ("docs/algorithms/port.md", "experiments/algorithms/port.toml", "docs/images/algorithms/port.png"):
        (chores.ROOT / path).unlink()
    rewrite("docs/algorithms/index.md", r"\(port\.md\)", "")
    rewrite("experiments/all-algorithms.toml", r"\[algorithms\.port\]", "[algorithms.other]\nalgorithm = 'fedbuff'")
    rewrite("CHANGELOG.md", r"(?i)port", "")
    assert of_port() == [
        "port: no page, docs/algorithms/port.md",
        "port: no experiment, experiments/algorithms/port.toml",
        "port: no figure, docs/images/algorithms/port.png",
        "port: no row in docs/algorithms/index.md",
        "port: no table in experiments/all-algorithms.toml",
        "port: no line in CHANGELOG.md",
    ]


def test_a_class_that_is_not_re_exported_is_one_line(chores, monkeypatch, capsys):
    assert chores.main(["exports"]) == 0
    monkeypatch.delattr("offbeat.algorithms.Port")
    assert chores.main(["exports"]) == 1
    assert capsys.readouterr().out == (
        "src/offbeat/algorithms/__init__.py does not re-export Port: "
        "add `from offbeat.algorithms.port import Port`, and 'Port' to __all__\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Mine"], "NAME=Mine: write it as a module is named"),
        (["class"], "NAME=class: "),
        (["mine", "a b"], "CLASS=a b: "),
        (["fedbuff"], "fedbuff or Fedbuff is taken"),
        (["mine", "FedBuff"], "mine or FedBuff is taken"),
    ],
)
def test_a_skeleton_under_a_wrong_name_is_refused(chores, arguments, message):
    with pytest.raises(SystemExit, match=message):
        chores.main(["new", *arguments])
    assert not (chores.ROOT / "src").exists()


@every_page
def test_the_table_has_every_hyper_parameter_with_its_default(page):
    kind = ALGORITHMS[page.stem]
    values = hyper_parameters_of(kind())
    table = {cells[0]: cells[1:] for cells in rows(page.read_text(encoding="utf-8"))}
    for key in default_hyper_parameters(kind):
        default = f"`{as_inline_toml(values[key])}`" if key in values else "none"
        assert default in table[f"`{key}`"], key


@every_page
def test_the_page_names_its_command_experiment_and_figure(page):
    file = f"experiments/algorithms/{page.stem}.toml"
    command = f"offbeat compare {file} --jobs 2"
    text = page.read_text(encoding="utf-8")
    assert command in text
    head = (ROOT / file).read_text(encoding="utf-8").partition("\n\n")[0]
    assert command in head.replace("\n# ", " ")
    experiment = experiment_file.load(ROOT / file)
    assert experiment.name == page.stem
    assert page.stem in {table.algorithm or label for label, table in experiment.algorithms.items()}
    shown = re.findall(r"!\[[^]]+\]\((\S+)\)", text)
    assert f"../images/algorithms/{page.stem}.png" in shown
    assert all((page.parent / figure).stat().st_size < 300_000 for figure in shown)


def test_mifa_makes_twenty_times_the_versions_of_a_cohort_of_all(tmp_path):
    """In the world of its page; digits, since what is learnt does not matter to when versions are made."""
    changes = ["data.name=digits", "seeds=[4]", "evaluate.every_seconds=432000.0"]
    options = [part for change in changes for part in ("--set", change)]
    options += ["--algorithm", "mifa", "--algorithm", "fedlaavg-all", "--output", str(tmp_path)]
    file = str(ROOT / "experiments/algorithms/mifa.toml")
    assert CliRunner().invoke(app, ["run", file, *options], catch_exceptions=False).exit_code == 0
    versions = {run.label: run.history["version"][-1] for run in collect([tmp_path])}
    assert versions["fedlaavg-all"] >= 5  # one a day
    assert versions["mifa"] >= 20 * versions["fedlaavg-all"]
