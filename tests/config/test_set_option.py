from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.local_plan import Epochs

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import ALTERNATIVES
from offbeat.config.set_option import read_changed
from tests.error_line import error_line

Load = Callable[..., Experiment]


@pytest.fixture
def change(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that changes a small file."""
    path = tmp_path / "x.toml"
    path.write_text("seeds = [1]\n[local]\nlr = 0.1\nsteps = 3\n", encoding="utf-8")
    return lambda *changes: read_changed(path, changes, ALTERNATIVES)


@pytest.mark.parametrize(
    ("change_", "section", "value"),
    [
        ("local.lr=0.5", "local", {"lr": 0.5, "steps": 3}),
        (" local.lr = 0.5 ", "local", {"lr": 0.5, "steps": 3}),
        ("local.lr=oops", "local", {"lr": "oops", "steps": 3}),
        ("local.lr=", "local", {"lr": "", "steps": 3}),
        ("seeds=[7, 8]", "seeds", [7, 8]),
        ('name="other"', "name", "other"),
        ('partition={ name = "iid" }', "partition", {"name": "iid"}),
        ("algorithms.b.local.steps=9", "algorithms", {"b": {"local": {"steps": 9}}}),
        ("local.error_feedback=true", "local", {"lr": 0.1, "steps": 3, "error_feedback": True}),
        ("local.epochs=2", "local", {"lr": 0.1, "epochs": 2}),
        ("local.steps=9", "local", {"lr": 0.1, "steps": 9}),
    ],
)
def test_a_key_is_changed_or_made(change_: str, section: str, value: Any, change: Callable[..., Any]) -> None:
    before = change()
    assert change(change_) == before | {section: value}


def test_the_last_one_counts(change: Callable[..., Any]) -> None:
    assert change("local.lr=0.5", "local.steps=4", "local.lr=0.25")["local"] == {"lr": 0.25, "steps": 4}


@pytest.mark.parametrize("text", ["local.lr", "=3", ".lr=3", "local.=3", "local..lr=3", "", "="])
def test_a_malformed_one_shows_the_form(text: str, change: Callable[..., Any]) -> None:
    assert f"--set {text}: write it as section.key=value" in error_line(change, text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("local.lr.x=3", "--set local.lr.x=3: lr is a value, not a section"),
        ("seeds.0=3", "--set seeds.0=3: seeds is a value, not a section"),
        ("local.lr=0.1\nsteps=3", "--set local.lr: the value must be one line"),
    ],
)
def test_other_mistakes(text: str, line: str, change: Callable[..., Any]) -> None:
    assert error_line(change, text) == line


def test_an_experiment_checks_them_like_its_file(experiment: Load) -> None:
    assert "unknown key lokal: did you mean 'local'?" in error_line(experiment, "lokal.lr=0.1")
    by_epochs = experiment("local.epochs=2", "algorithms.fedavg.local.steps=4", "algorithms.fedbuff.local.lr=0.5")
    assert [by_epochs.plan(label).steps_by for label in ("fedavg", "fedbuff")] == [None, Epochs(2)]
    compression = (
        "local.compression={ name = 'top_k', share = 0.5 }",
        "algorithms.fedasync.local.compression.name=none",
    )
    assert experiment(*compression).plan("fedasync").compression is None
