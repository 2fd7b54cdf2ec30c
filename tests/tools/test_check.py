"""The tests that ``make check`` runs."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check", ROOT / "tools/check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(check, tmp_path, monkeypatch):
    """Return a function that gives the tests of changed files in a small checkout."""
    files = {
        "src/offbeat/runs/record.py": "",
        "packages/client/offbeat_core/units.py": "",
        "tests/conftest.py": "",
        "tests/helper.py": "",
        "tests/runs/conftest.py": "",
        "tests/runs/test_record.py": "import math",
        "tests/runs/test_record_kills.py": "from tests import helper",
        "tests/runs/test_other.py": "from offbeat.runs.record import Record",
        "tests/offbeat_core/test_units.py": "",
        "tests/test_users.py": "import tests.helper\nfrom offbeat_core import units",
        "studies/offbeat_studies/papers/figure.py": "",
        "studies/tests/papers/test_figure.py": "",
        "studies/tests/papers/test_users.py": "from offbeat_studies.papers import figure\nimport offbeat_core.units",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(check, "STUDIES", tmp_path / "studies")
    monkeypatch.setattr(check, "SOURCES", (tmp_path / "src", tmp_path / "packages/client", tmp_path / "studies"))
    return lambda *names: {
        path.relative_to(tmp_path).as_posix().removeprefix("tests/")
        for path in check.tests_of(tmp_path / name for name in names)
    }


def test_a_modules_tests_have_its_name_or_import_it(tree):
    assert tree("src/offbeat/runs/record.py") == {
        f"runs/test_{name}.py" for name in ("record", "record_kills", "other")
    }
    user = "studies/tests/papers/test_users.py"
    assert tree("packages/client/offbeat_core/units.py") == {"offbeat_core/test_units.py", "test_users.py", user}
    assert tree("studies/offbeat_studies/papers/figure.py") == {"studies/tests/papers/test_figure.py", user}


def test_a_test_module_and_what_tests_share(tree):
    assert tree("tests/runs/test_other.py") == {"runs/test_other.py"}
    assert tree("tests/helper.py") == {"runs/test_record_kills.py", "test_users.py"}
    assert tree("tests/runs/conftest.py") == tree("src/offbeat/runs/record.py")
    assert tree("docs/index.md", "src/offbeat/gone.py") == set()


def test_what_many_import_is_left_to_the_whole_suite(tree, check, monkeypatch, capsys):
    monkeypatch.setattr(check, "MANY", 0)
    assert tree("src/offbeat/runs/record.py") == {"runs/test_record.py", "runs/test_record_kills.py"}
    assert "1 test modules import offbeat.runs.record: make unit runs them" in capsys.readouterr().err
