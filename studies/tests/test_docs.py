"""The tables on the page on figures are those of figures' files."""

import re
import tomllib
from pathlib import Path

import pytest

from offbeat_studies.papers.figures.figure_file import FigureTables, own_tables
from offbeat_studies.papers.figures.theorem import TheoremTables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts/reproduce.md").read_text(encoding="utf-8")
WHOLE = {
    "reproduction": {"paper": "p", "figure": "f", "question": "q"},
    "scales": {"quick": {"minutes": 1}},
    "claims": [{"name": "n", "quantity": "best", "of": "a", "relation": "at least", "value": 0.5, "paper": "p"}],
}


@pytest.mark.parametrize("block", re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
def test_a_table_of_the_page_is_valid(block):
    table = own_tables(tomllib.loads(block))
    if "theory" in table:
        claims = [{**WHOLE["claims"][0], "quantity": "slope", "of": next(iter(table["theory"]["sweeps"]))}]
        TheoremTables.model_validate(WHOLE | {"claims": claims} | table)
    else:
        assert table
        FigureTables.model_validate(WHOLE | table)
