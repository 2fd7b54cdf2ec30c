"""docs/privacy/threat-model.md: each claim names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_attack_has_a_test():
    page = (ROOT / "docs/privacy/threat-model.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| attack | what happens | test |\n| --- | --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert len(rows) >= 10
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for row in rows:
        *_, tests, _ = row.split("|")
        names = re.findall(r"`(test_\w+\.py)`", tests)
        assert names, row
        assert set(names) <= known, row
