import pytest
from offbeat_core.lr_decay import LR_DECAYS, LrDecay, exponential, inverse_square_root, step

from offbeat.config.lr_decay_table import lr_decay_from_table
from tests.error_line import error_line

TABLES = {
    "exponential": ({"factor": 0.5}, exponential(0.5)),
    "step": ({"every": 4, "factor": 0.5}, step(4, factor=0.5)),
    "inverse_square_root": ({"versions": 3.0}, inverse_square_root(versions=3.0)),
}


def test_no_decay_is_forgotten_above() -> None:
    assert set(TABLES) == set(LR_DECAYS)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_a_decay_with_its_parameters(name: str) -> None:
    table, decay = TABLES[name]
    assert lr_decay_from_table("key", {"name": name, **table}) == decay


def test_defaults_are_written_out() -> None:
    assert lr_decay_from_table("key", {"name": "step", "every": 4}) == LrDecay("step", (("every", 4), ("factor", 0.1)))


def test_none_means_no_decay() -> None:
    assert lr_decay_from_table("key", {"name": "none"}) is None


def test_a_mistake_is_one_line() -> None:
    line = error_line(lr_decay_from_table, "key", {"name": "step", "every": 2.5})
    assert line.startswith("key.every = 2.5: ")
