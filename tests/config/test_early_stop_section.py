from collections.abc import Callable

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.early_stop_section import EarlyStopSection
from offbeat.config.experiment_file import Experiment


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
