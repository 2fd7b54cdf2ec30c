from pathlib import Path

import pytest

from offbeat.runs.settings import by_label, differences, same_world, settings_differences, world_of
from tests.report.example_runs import a_run


def test_labels_and_runs_stay_in_order():
    runs = [a_run("b", 1), a_run("a"), a_run("b", 0)]
    assert list(by_label(runs).items()) == [("b", [runs[0], runs[2]]), ("a", [runs[1]])]


@pytest.mark.parametrize(
    ("config", "same"),
    [
        ({}, True),
        ({"local": {"lr": 0.1}}, True),
        ({"evaluate": {"every_seconds": 1.0}}, True),
        ({"stop": {"updates": 7}}, False),
        ({"server": {"lease_seconds": 9.0}}, False),
    ],
)
def test_another_world_is_another_setting_that_all_share(config, same):
    assert same_world(a_run("a"), a_run("b", config=config)) is same


def test_the_world_is_one_line():
    runs = [a_run("fedbuff", seed) for seed in (3, 1)]
    assert world_of(runs) == "digits, mlp, 1,200 clients, up to 40 min of virtual time or 9 versions, seeds 1, 3"
    own = a_run("a", config={"data": {"name": "/some/folder/my.py:load"}, "stop": {"updates": 5}})
    assert world_of([own]) == "my.py:load, mlp, 1,200 clients, up to 5 updates, seed 0"


def test_ends_by_a_metric_are_named():
    stop = {"updates": 5, "target": 0.9, "patience": 3, "metric": "client_accuracy"}
    run = a_run("a", config={"stop": stop})
    assert world_of([run]).endswith("up to 5 updates or a target of 0.9 or 3 evaluations without a better one, seed 0")


def test_differences_between_worlds_are_described():
    population = {"clients": 50, "partition": {"name": "dirichlet", "alpha": 0.9}}
    runs = [a_run("a"), a_run("b", 4, config={"population": population, "server": {"lease_seconds": 9.0}}), a_run("c")]
    text = world_of(runs)
    assert text.startswith(
        "The settings differ in population.clients, population.partition.alpha, server.lease_seconds. "
        "a, c: digits, mlp, 1,200 clients, up to 40 min of virtual time or 9 versions, seed 0; b: "
    )
    assert text.endswith("b: digits, mlp, 50 clients, up to 40 min of virtual time or 9 versions, seed 4")
    # Local settings of an algorithm do not make another world.
    assert world_of([a_run("a"), a_run("b", config={"local": {"lr": 0.1}})]).startswith("digits")


def test_other_settings_that_differ_are_named_too():
    often = {"evaluate": {"metrics": ["accuracy"], "every_seconds": 5.0}}
    assert world_of([a_run("a"), a_run("b", config=often)]).startswith(
        "The settings differ in evaluate.every_seconds. digits, mlp"
    )
    by_version = {"evaluate": {"metrics": ["accuracy"], "every_versions": 5}}
    assert settings_differences([a_run("a", config=often), a_run("b", config=by_version)]) == [
        "evaluate.every_seconds",
        "evaluate.every_versions",
    ]
    assert same_world(a_run("a", config=often), a_run("b", config=by_version))


def elsewhere(folder, label, lr, steps=5):
    return a_run(label, config={"local": {"lr": lr, "steps": steps}}, path=Path(folder) / label)


@pytest.mark.parametrize(
    ("runs", "keys"),
    [
        ([("x", "a", 0.1), ("x", "b", 0.2)], []),  # an algorithm's own
        ([("x", "a", 0.1), ("x", "b", 0.2), ("y", "b", 0.2)], []),
        ([("x", "a", 0.1), ("x", "b", 0.2), ("y", "b", 0.1)], ["local.lr"]),
        ([("x", "a", 0.1), ("x", "b", 0.2), ("y", "c", 0.2, 6)], ["local.steps"]),
        ([("x", "a", 0.1), ("x", "b", 0.2), ("y", "c", 0.3)], ["local.lr"]),
    ],
)
def test_local_settings_are_compared_between_experiments(runs, keys):
    runs = [elsewhere(*run) for run in runs]
    assert settings_differences(runs) == keys


def test_differences():
    assert differences([{"a": 1, "b": {"c": [1], "d": 2}}, {"a": 1, "b": {"c": [2], "d": 2}}]) == ["b.c"]
    assert differences([{"a": 1}, {"a": 1, "b": 3}]) == ["b"]
    assert differences([{"a": 1, "b": 3}, {"a": 1}]) == ["b"]
    assert differences([{"a": 1}]) == []
