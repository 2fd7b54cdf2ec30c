"""A client's file imports one module of Offbeat, and otherwise the user's own."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("examples/*/client.py")), ROOT / "src/offbeat/templates/service/client.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_clients_file_imports_offbeat_client_alone(file: Path) -> None:
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in imported if name and name.startswith("offbeat")} == {"offbeat.client"}
