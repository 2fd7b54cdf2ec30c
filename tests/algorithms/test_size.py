"""An algorithm is its paper: few lines of code."""

import ast
from pathlib import Path

import pytest

import offbeat.algorithms

FOLDER = Path(offbeat.algorithms.__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.py"))
LIMITS = {"fedbuff": 25, "fedasync": 25}


def lines_of_code(text):
    """Return the number of lines without blanks, comments, docstrings and imports."""
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if is_import or is_text:
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    numbered = enumerate((line.strip() for line in text.splitlines()), start=1)
    return sum(number not in skipped and line != "" and not line.startswith("#") for number, line in numbered)


@pytest.mark.parametrize("name", FILES)
def test_an_algorithm_fits_on_a_screen(name):
    assert lines_of_code((FOLDER / f"{name}.py").read_text("utf-8")) <= LIMITS.get(name, 60)
