"""The finding of a report, in planted worlds: seldom wrong, and this test fails if the statistics are."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from offbeat.report import finding as findings
from offbeat.report import summary
from offbeat.statistics import all_pairs

FOLDER = Path(__file__).parents[2] / "benchmarks"
# Of 60 comparisons: 6 % and three standard errors more, 94 % and three less.
TABLES, MOST_FALSE, LEAST_COVERED = 60, 9, 51


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)  # as for a script that is run
    specification = importlib.util.spec_from_file_location("planted_worlds", FOLDER / "planted_worlds.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    specification.loader.exec_module(module)
    return module


def is_sound(tally: Any) -> bool:
    return tally.false <= MOST_FALSE and tally.covered >= LEAST_COVERED


def world(planted: Any, name: str) -> Any:
    return next(one for one in planted.WORLDS if one.name == name)


def test_there_are_twelve_worlds(planted: Any) -> None:
    assert len({one.name for one in planted.WORLDS}) == 12


@pytest.mark.parametrize(
    "name",
    [
        "two names of one algorithm",
        "six names of one, few evaluations",
        "faster by step size alone",
        "slow ones miss the target",
    ],
)
def test_the_finding_is_seldom_wrong(planted: Any, name: str) -> None:
    assert is_sound(planted.judge(world(planted, name), TABLES))


def test_one_that_is_twice_as_fast_is_found(planted: Any) -> None:
    tally = planted.judge(world(planted, "100 % faster, of four"), 20)
    assert tally.stated >= 0.75 * tally.different


@pytest.mark.parametrize(
    ("name", "module", "broken", "value"),
    [
        # Bonferroni's correction, Student's quantile, the rounding to evaluations, and the warning are left out.
        ("six names of one, few evaluations", summary, "_log_rounding", lambda _: 0.0),
        ("four names of one", all_pairs, "_max_t", lambda *_: 1.9),
        ("two names of one algorithm", all_pairs, "_critical", lambda *_: 1.96),
        ("faster by step size alone", findings, "_unequal_steps", lambda _: ()),
    ],
)
def test_broken_statistics_are_seen(
    planted: Any, monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType, broken: str, value: Any
) -> None:
    monkeypatch.setattr(module, broken, value)
    assert not is_sound(planted.judge(world(planted, name), TABLES))
