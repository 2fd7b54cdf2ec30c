"""The API reference has every public name, and an example at each, which runs."""

import doctest
import importlib
import inspect
import re
import shutil
from pathlib import Path

import pytest
import torch
from offbeat_core.serving.certificates import make_certificates

from offbeat.algorithms import FedBuff
from tests.service.conftest import running

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/api"
PACKAGES = ("offbeat", "offbeat.algorithms", "offbeat.testing", "offbeat.client", "offbeat_client")
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "flower")  # see tests/flower/test_docs.py


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


def run_example(page_name, path, thing, given, edit=str):
    """Run the example at an object of a page, after the page's imports; return what went wrong, and the names."""
    (imports,) = re.findall(r"^```python\n(.*?)^```", page(page_name), re.DOTALL | re.MULTILINE)
    names, faults = dict(given), []
    exec(imports, names)
    example = doctest.DocTestParser().get_doctest(edit(docstring(path, thing)), names, path, None, None)
    assert example.examples, f"{path} has no example"
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=faults.append, clear_globs=False)
    return "".join(faults), example.globs


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    faults = [run_example(name, path, thing, {})[0] for path, thing in shown(name).items()]
    assert not any(faults), "".join(faults)


def fit(model, visit):
    return model, 80


CALLS = {  # what examples that call a server take for granted
    ("client", "offbeat_client.run"): {"gradient": lambda model: model["weight"]},
    ("client", "offbeat_client.run_client"): {"Hospital": lambda client: fit},
    ("torch-client", "offbeat.client.run_client"): {
        "module": torch.nn.Linear(64, 10),
        "inputs": torch.ones(1, 80, 64),
        "labels": torch.arange(80).reshape(1, 80) % 10,
    },
}


def test_no_other_example_is_left_out():
    skipped = [
        (name, path) for name in PAGES for path, thing in shown(name).items() if "+SKIP" in docstring(path, thing)
    ]
    assert skipped == list(CALLS)


@pytest.mark.parametrize(("name", "path"), CALLS)
def test_examples_that_call_a_server_take_part_in_its_run(name, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    certificates = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    shutil.copy(certificates.ca, "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", "ca.pem")  # for the example without ``ca``
    with running(
        tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1), clients=1, model=torch.zeros(650),
        layout=[("weight", (10, 64)), ("bias", (10,))], certificates=certificates, stop_versions=3,
    ) as served:  # fmt: skip
        given = {**CALLS[name, path], "token": served.enrolment_token}

        def against(text):
            return text.replace("  # doctest: +SKIP", "").replace("https://host:8443", served.url)

        faults, names = run_example(name, path, shown(name)[path], given, against)
        assert not faults
        assert names["counted"] == 3
