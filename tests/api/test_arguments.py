"""Conversions of arguments; the mistakes in them are tested with ``offbeat.simulate``."""

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.lr_decay import exponential

from offbeat.algorithms import Compression, FedBuff, LocalPlan
from offbeat.api.arguments import (
    algorithm_of,
    experiment_of,
    label_of,
    local_of,
    metrics_of,
    named_by_arguments,
    population_of,
)
from offbeat.config.experiment_sections import StopSection
from offbeat.config.given_objects import Given


def experiment(**changes):
    """Return a small experiment, with other sections."""
    sections = {
        "name": "a",
        "data": {"name": "digits"},
        "model": {"name": Given.of(torch.nn.Linear)},
        "local": {"steps": 2, "batch_size": 3, "lr": 0.5},
        "population": {"clients": 4},
        "stop": {"versions": 3},
        "evaluate": {"every_versions": 1},
        "algorithms": {"a": {"algorithm": "fedbuff"}},
    }
    return experiment_of({**sections, **changes})


@named_by_arguments
def call(error: Exception | None = None, *, virtual_seconds: float = 1.0) -> str:
    """Return the name of a setting, or raise the error."""
    if error:
        raise error
    return setting("stop.virtual_seconds")


def test_errors_name_arguments_within_the_function() -> None:
    assert call() == "virtual_seconds"
    assert setting("stop.virtual_seconds") == "stop.virtual_seconds"
    assert call.__doc__ == "Return the name of a setting, or raise the error."
    with pytest.raises(KeyError):
        call(KeyError("stop.versions"))
    assert setting("stop.virtual_seconds") == "stop.virtual_seconds"


def test_a_misspelt_argument_gets_a_hint() -> None:
    line = r"^unknown argument virtual_second: did you mean 'virtual_seconds'\? Allowed: error, virtual_seconds$"
    with pytest.raises(OffbeatError, match=line):
        call(virtual_second=1.0)  # pyright: ignore[reportCallIssue]


def test_a_plan_is_one_or_a_table():
    plan = LocalPlan(steps=2, batch_size=3, lr=0.5)
    assert experiment().plan("a") == experiment(local=local_of(plan)).plan("a") == plan


def test_a_plan_has_what_a_table_has_not():
    plan = LocalPlan(
        np.int64(2), 3, (0.5, 0.25), compression=Compression("top_k", (("share", 0.5),)), lr_decay=exponential(0.5)
    )
    assert experiment(local=local_of(plan)).plan("a") == plan


def test_an_experiment_without_nones_and_numpy():
    here = experiment(stop={"versions": np.int64(3), "updates": None}, server=None, seeds=[np.int64(7)])
    assert here.stop == StopSection(versions=3)
    assert experiment(stop={"versions": torch.tensor(3)}).stop == StopSection(versions=3)
    assert here.seeds == (7,)
    with pytest.raises(OffbeatError, match=r"^stop\.versions = 0: must be"):
        experiment(stop={"versions": 0})


def test_all_mistakes_come_at_once():
    with pytest.raises(OffbeatError) as caught:
        experiment(stop={"versions": 0}, device="gpu", precision="half")
    assert [line.partition(" = ")[0] for line in caught.value.lines] == ["device", "precision", "stop.versions"]


def test_metrics_by_name_or_by_function():
    assert metrics_of(None) is None
    assert metrics_of("accuracy") == metrics_of(["accuracy"]) == ["accuracy"]
    found = metrics_of({"first": len})
    assert found is not None
    assert [(metric.name, metric.value) for metric in found if isinstance(metric, Given)] == [("first", len)]


def test_a_population_is_a_number_or_a_table_with_arrays():
    assert population_of(np.int64(3)) == {"clients": 3}
    table = {"clients": 3, "availability": {"name": "always"}, "when_away": "lose"}
    # What the section refuses stays with it.
    for wrong in ({"step_seconds": np.float64(2.0)}, {"step_seconds": torch.tensor(3.0)}, {"availability": "always"}):
        assert population_of(table | wrong) == table | wrong
    found = population_of({"clients": 3, "step_seconds": [1.0, 2.0, 3.0], "up_bytes_per_second": abs})
    assert (found["step_seconds"].value, found["up_bytes_per_second"].value) == ([1.0, 2.0, 3.0], abs)
    assert found["step_seconds"].name == "given in Python"


class Own(FedBuff):
    name = "/own algorithm!"


def test_a_label_is_a_name_for_a_folder():
    assert [label_of(one) for one in ("fedavg", "my.py:Own", FedBuff(), Own())] == [
        "fedavg", "Own", "fedbuff", "own-algorithm-",
    ]  # fmt: skip


def test_an_algorithm_has_its_name_or_that_of_its_class():
    found = [algorithm_of(one) for one in (FedBuff(buffer_size=3), Own(), "fedbuff")]
    assert [one.name for one in found] == ["fedbuff", "python:Own", "fedbuff"]
    assert [one.value.buffer_size for one in found] == [3, 10, 10]
