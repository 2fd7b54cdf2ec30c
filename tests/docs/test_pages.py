"""Tests that the docs are right.

Code runs, experiment files load, links lead somewhere, and the site builds.
"""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from offbeat_core.sent_update import upload_bytes
from offbeat_private.helper.roster import parse_roster

import offbeat
from offbeat.compression import qsgd
from offbeat.config import experiment_file, host_file, server_file

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
FILES = [
    *PAGES,
    *sorted((ROOT / "examples").rglob("*.ipynb")),
    *sorted((ROOT / "experiments").rglob("*.toml")),
    *sorted((ROOT / "studies").rglob("*.toml")),
]
# Not the slash in a relative path, a web address or a closing tag, nor the server's own paths.
ABSOLUTE_PATH = re.compile(
    r"(?:^|(?<=[\s\"'`(\[=,:|])|(?<=file://))/(?!(?:v\d|dev|models|runs|srv)/)\w[\w.-]*/", re.MULTILINE
)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}(?: [^\n]*)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_reference_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "reference.md").read_text(encoding="utf-8") == module.reference(), "run `make reference`"


def test_the_coordinator_can_be_driven_as_the_docs_say():
    (example,) = blocks(DOCS / "concepts/virtual-time.md", "python")
    names = {}
    exec(example, names)
    assert names["coordinator"].statistics.counted == 3


def test_a_simulation_from_python_is_as_short_as_the_docs_say(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example, report, devices, _ = blocks(
        DOCS / "concepts/python.md", "python"
    )  # the last one needs the tutorial's runs
    assert len([line for line in example.splitlines() if line and not line.startswith(("import", "from"))]) < 10
    names = {}
    exec(example, names)
    history = names["history"]
    assert history.counted.iloc[-1] == 1000
    assert history.accuracy.iloc[-1] > 0.9
    assert "accuracy" in capsys.readouterr().out
    exec(report, names)
    assert "fedasync" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    exec(devices, names)
    assert names["history"].seconds.iloc[-1] == 1800
    # Nobody is available from 600 to 1,200 seconds.
    assert names["history"].set_index("seconds").counted.loc[660:1200].nunique() == 1


@pytest.mark.parametrize("index", [0, 1], ids=["PyTorch", "Hugging Face"])
def test_ones_own_model_and_data_take_less_than_30_lines(index, capsys, monkeypatch):
    """With half of the page's updates."""
    simulate = offbeat.simulate

    def shorter(*given, updates, **more):
        return simulate(*given, updates=updates // 2, **more)

    monkeypatch.setattr(offbeat, "simulate", shorter)
    example = blocks(DOCS / "concepts/data-and-models.md", "python")[index]
    assert len([line for line in example.splitlines() if line]) < 30
    names = {}
    exec(example, names)
    history = names["history"]
    assert history.accuracy.iloc[-1] > 0.9 > history.accuracy.iloc[0]
    assert "accuracy" in capsys.readouterr().out


def test_the_page_on_compression_counts_right():
    page = (DOCS / "concepts/compression.md").read_text(encoding="utf-8")
    experiment = experiment_file.load(ROOT / "experiments/compression.toml")
    length = 64 * 64 + 64 + 64 * 10 + 10
    assert f"{length:,} parameters" in page
    sizes = [upload_bytes(experiment.plan(label), length) for label in experiment.algorithms]
    for size in sizes:
        row = f"| {size:,} | {size * experiment.stop.updates / 1e6:.1f} MB |"
        assert page.count(row) == sizes.count(size), row
    enough = next(bits for bits in range(2, 17) if qsgd(bits).is_contraction(length))
    assert f"from {enough} bits on" in page
    assert f"share = {experiment.plan('top-k').compression.parameters[0][1]}" in page


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "reproduce.md"], ids=lambda page: page.stem)
def test_toml_is_valid(page, tmp_path):
    """A whole experiment by itself, a part of one in place of the quickstart's."""
    quickstart = tomllib.loads((ROOT / "experiments/quickstart.toml").read_text(encoding="utf-8"))
    server = example = tomllib.loads((ROOT / "src/offbeat/templates/service/server.toml").read_text(encoding="utf-8"))
    for name, code in re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```', page.read_text("utf-8"), re.S | re.M):
        (tmp_path / name).write_text(code, encoding="utf-8")
    for block in blocks(page, "toml"):
        table = tomllib.loads(block)
        if {"terms", "clients"} <= set(table):
            parse_roster(table, page)
            continue
        if "admission" in table:  # a run on a server of several runs
            run = {key: example.get(key, {}) for key in ("model", "local", "algorithm")} | table
            host = host_file.HostFile.model_validate({"service": {"folder": "server"}})
            host_file.parse_run(tomli_w.dumps(run), "run", host, tmp_path)
            continue
        if {"service", "webhook", "login", "fronts"} & set(table):
            server = example if "service" in table else server  # other sections go into the file before
            merged = {
                key: value if "algorithm" in value else server.get(key, {}) | value for key, value in table.items()
            }
            server = server | merged
            (tmp_path / "server.toml").write_text(tomli_w.dumps(server), encoding="utf-8")
            server_file.load(tmp_path / "server.toml")
            continue
        is_whole = {"data", "model", "local", "population", "stop", "evaluate", "algorithms"} <= set(table)
        path = tmp_path / "experiment.toml"
        # A table that names what it is stands for itself.
        merged = {
            key: quickstart.get(key, {}) | value if isinstance(value, dict) and "name" not in value else value
            for key, value in table.items()
        }
        path.write_text(block if is_whole else tomli_w.dumps({**quickstart, **merged}), encoding="utf-8")
        experiment = experiment_file.load(path)
        assert set(table) <= set(experiment.model_dump())


@every_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if re.match(r"[a-z]+://", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(there), f"{page.name} links to {target}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_said_of_folders_that_only_we_have(file):
    assert not ABSOLUTE_PATH.search(file.read_text(encoding="utf-8"))


def test_the_glossary_has_each_term_once():
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = [term for cell in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE) for term in cell.split(", ")]
    terms = [term for term in terms if term not in {"term", "---"}]
    assert len(terms) > 40
    assert sorted(set(terms)) == sorted(terms)


def test_an_absolute_path_is_found_wherever_it_stands():
    path = f"{ROOT}/"
    for text in (path, f"in `{path}`", f"see\n{path}", f"({path})", f'"{path}"', f"<file://{path}>", f"x={path}"):
        assert ABSOLUTE_PATH.search(text), text
    for text in ("docs/concepts/", "../shared/x", "./a/b", "https://host/a/b/", "<b>x</b>/a", "and / or", "1/2/3"):
        assert not ABSOLUTE_PATH.search(text), text


def test_the_site_builds_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) > len([*DOCS.rglob("*.md")])  # and the one for pages that are not there
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img|iframe)[^>]* src=\"?(https?:)?//", html), page
        assert not re.search(r"<link[^>]* rel=\"?(stylesheet|preconnect|preload|icon)[^>]* href=\"?(https?:)?//", html)
    assert "Add an algorithm" in (tmp_path / "site/contributing.html").read_text(encoding="utf-8")


def _prose(page):
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page):
    """The anchors of a page's headings, as GitHub and MkDocs both make them from ours."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
