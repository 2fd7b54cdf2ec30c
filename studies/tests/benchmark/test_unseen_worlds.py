"""The page on the advice has what the worlds that nobody had run before say."""

import importlib.util
import re
from pathlib import Path

import pytest

from offbeat.advice.advice import AFTERWARDS
from offbeat_studies.benchmark.world import read_world

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/which-algorithm.md").read_text(encoding="utf-8")
UNSEEN = ROOT / "studies/offbeat_studies/benchmark/unseen"


def test_the_command_has_the_hits_of_the_page() -> None:
    rows = re.findall(r"^\| `\w+` \| `\w+` \| (\S+) \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    choice, fedavg, fedbuff = (sum("*" not in cell for cell in column) for column in zip(*rows, strict=True))
    assert f"in {len(rows)} worlds that were run afterwards {choice}, {fedbuff}, {fedavg}" == AFTERWARDS


@pytest.mark.parametrize("path", sorted(UNSEEN.glob("*.toml")), ids=lambda path: path.stem)
def test_the_row_of_a_world(path: Path) -> None:
    specification = importlib.util.spec_from_file_location("unseen_worlds", ROOT / "benchmarks/unseen_worlds.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    (choice,) = re.findall(rf"^\| `{path.stem}` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert f"\n{module.line(read_world(str(path)), choice)}\n" in PAGE
