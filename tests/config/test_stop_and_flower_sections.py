from collections.abc import Callable
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError
from pydantic import ValidationError

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import EarlyStopSection, FlowerSection


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["stop.metric=accuracy"], "stop: metric is for target and patience: set one of them, or leave it out"),
        (["stop.patience=0"], "stop.patience = 0: .*greater than or equal to 1"),
        (["stop.target=nan"], "stop.target = nan: .*finite number"),
        (
            ["stop={ target = 0.9 }"],
            "stop: set virtual_seconds, versions or updates, too: the metric may never get there",
        ),
    ],
)
def test_mistakes(changes: list[str], line: str, experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(OffbeatError, match=f"tiny.toml: {line}$"):
        experiment(*changes)


def test_a_metric_may_end_the_run_with_a_target_or_a_patience() -> None:
    assert not EarlyStopSection().is_early
    assert EarlyStopSection(target=0.0).is_early
    assert EarlyStopSection(patience=3).is_early


def section(folder, **values):
    return FlowerSection.model_validate(values, context={"folder": folder})


def test_an_app_is_an_import_path_relative_to_the_file():
    assert section(Path("/here"), app="my_app.client_app:app").app == "my_app.client_app:app"
    assert section(Path("/here"), app="mine.py:app").app == "/here/mine.py:app"
    with pytest.raises(ValidationError, match="must be an import path"):
        section(Path("/here"), app="my_app")


def test_settings_are_plain_values():
    settings = {"local-epochs": 2, "lr": 0.5, "name": "a", "fast": True}
    assert section(Path(), app="a:b", run_config=settings).run_config == settings
    assert section(Path(), app="a:b").run_config == {}
    with pytest.raises(ValidationError):
        section(Path(), app="a:b", run_config={"list": [1]})
