"""The package that users install: its dependencies and files. `make wheel` tries the wheel itself."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"offbeat_client", "offbeat_core", "offbeat_private"}
PROJECT, CLIENT, STUDIES = (
    tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in (ROOT, ROOT / "packages/client", ROOT / "studies")
)


def names(requirements):
    return {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in requirements}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


@pytest.mark.parametrize(
    ("project", "folder", "ours"),
    [
        (PROJECT, "src", {"offbeat", *OURS}),
        (CLIENT, "packages/client", OURS),
        (STUDIES, "studies/offbeat_studies", {"offbeat", "offbeat_studies", *OURS}),
    ],
)
def test_each_import_is_a_dependency_or_an_extra(project, folder, ours):
    known = names(project["dependencies"]).union(*map(names, project.get("optional-dependencies", {}).values()))
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(module.partition(".")[0], path)
    distributions = packages_distributions()
    missing = {
        module: path
        for module, path in found.items()
        if module not in ours | sys.stdlib_module_names
        and not {name.lower().replace("_", "-") for name in distributions.get(module, [module])} & known
    }
    # pydantic_core comes with pydantic at an exact version, starlette with fastapi; a template has modules of its own.
    assert set(missing) <= {"pydantic_core", "starlette", "data", "model"}, missing


def test_offbeat_needs_the_client_of_its_own_version():
    assert f"offbeat-client[helper]=={CLIENT['version']}" in PROJECT["dependencies"]
    assert CLIENT["version"] == PROJECT["version"]
    assert set(CLIENT["optional-dependencies"]["helper"]) <= set(PROJECT["dependencies"])
    assert "torch" not in names(CLIENT["dependencies"])


def test_the_studies_need_the_offbeat_of_their_own_version():
    assert STUDIES["version"] == PROJECT["version"]
    assert f"offbeat=={PROJECT['version']}" in STUDIES["dependencies"]
    third_party = {line for line in STUDIES["dependencies"] if not line.startswith("offbeat")}
    assert third_party <= set(PROJECT["dependencies"])


def test_the_templates_are_the_experiments_and_the_notebook_of_the_checkout():
    templates = ROOT / "src/offbeat/templates"
    for linked, original in {
        "experiments/quickstart.toml": "experiments/quickstart.toml",
        "experiments/algorithms/half_is_slow.csv": "experiments/algorithms/half_is_slow.csv",
        "notebook/first_steps.ipynb": "examples/first_steps.ipynb",
    }.items():
        assert (templates / linked).samefile(ROOT / original)


def test_the_images_of_the_template_have_this_version_and_a_torch_that_it_takes():
    text = (ROOT / "src/offbeat/templates/service/Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall("^ARG OFFBEAT=(.+)$", text, re.MULTILINE)) == {PROJECT["version"]}
    (torch,) = re.findall('"(torch[^"]*)"', text)
    assert torch in PROJECT["dependencies"]


def test_the_citation_names_the_version_and_the_licence():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
