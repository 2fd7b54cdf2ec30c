"""The package that users install: its dependencies and files. `make wheel` tries the wheel itself."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements):
    return {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in requirements}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_each_import_is_a_dependency_or_an_extra():
    known = names(PROJECT["dependencies"]).union(*map(names, PROJECT["optional-dependencies"].values()))
    ours = {"offbeat", "offbeat_client"}
    found = {}
    for path in SOURCES.rglob("*.py"):
        for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(module.partition(".")[0], path)
    distributions = packages_distributions()
    missing = {
        module: path
        for module, path in found.items()
        if module not in ours | sys.stdlib_module_names
        and not {name.lower().replace("_", "-") for name in distributions.get(module, [module])} & known
    }
    # pydantic_core comes with pydantic at an exact version, starlette with fastapi.
    assert set(missing) <= {"pydantic_core", "starlette"}, missing


def test_the_templates_are_the_experiments_and_the_notebook_of_the_checkout():
    templates = SOURCES / "offbeat/templates"
    for linked, original in {
        "experiments/quickstart.toml": "experiments/quickstart.toml",
        "experiments/algorithms/half_is_slow.csv": "experiments/algorithms/half_is_slow.csv",
        "notebook/first_steps.ipynb": "examples/first_steps.ipynb",
    }.items():
        assert (templates / linked).samefile(ROOT / original)


def test_the_citation_names_the_version_and_the_licence():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
