"""The API reference has every public name, and an example at each, which runs."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/api"
PACKAGES = ("offbeat", "offbeat.algorithms", "offbeat.testing", "offbeat.client", "offbeat_client")
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "flower")  # Flower is not installed here


def page(name):
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def shown(name):
    """Return the objects of a page by their paths."""
    paths = re.findall(r"^::: (\S+)\.(\w+)$", page(name), re.MULTILINE)
    return {f"{module}.{one}": getattr(importlib.import_module(module), one) for module, one in paths}


def docstring(path, thing):
    """Return the docstring of a class, a function, or a variable, which has it in its source only."""
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return inspect.getdoc(thing)
    name = path.rpartition(".")[2]
    sources = [*ROOT.glob("src/offbeat/algorithms/**/*.py"), ROOT / "packages/client/offbeat_client/visit.py"]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    return re.search(rf'^{name}\b[^\n]* = [^\n]*\n"""(.*?)"""', text, re.DOTALL | re.MULTILINE)[1]


def test_every_public_name_is_on_a_page():
    found = [thing for name in PAGES for thing in shown(name).values()]
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            assert any(getattr(package, name) is thing for thing in found), f"{package.__name__}.{name}"


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (imports,) = re.findall(r"^```python\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)
    names = {}
    exec(imports, names)
    faults = []
    for path, thing in shown(name).items():
        example = doctest.DocTestParser().get_doctest(docstring(path, thing), dict(names), path, None, None)
        assert example.examples, f"{path} has no example"
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=faults.append)
    assert not faults, "".join(faults)
