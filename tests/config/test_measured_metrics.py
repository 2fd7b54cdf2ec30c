from collections.abc import Callable

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import EarlyStopSection, EvaluateSection
from offbeat.config.measured_metrics import best_metric, client_columns, early_stop, lower_is_better, server_early_stop
from offbeat.early_stop import EarlyStop

Load = Callable[..., Experiment]

CLIENTS = HOLDOUT, ON_CLIENTS = "population.holdout=0.2", "evaluate.on_clients=5"
BOTH = ["accuracy", "mae"]
TARGET = "stop.target=0.5"
PRIVATE = "{ clip_norm = 1.0, noise_multiplier = 1.0, min_clients = 2, max_participations = 5 }"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ([ON_CLIENTS], "evaluate.on_clients needs held-out examples: set population.holdout, for instance to 0.2"),
        ([*CLIENTS, f"privacy={PRIVATE}"], r"evaluate.on_clients does not go with \[privacy\]: .*"),
        ([*CLIENTS, f"algorithms.fedbuff.privacy={PRIVATE}"], r".* does not go with \[privacy\]: .*"),
        (
            [*CLIENTS, "evaluate.metrics=['my.py:client_accuracy', 'accuracy']"],
            "evaluate.metrics: with evaluate.on_clients, client_accuracy names two columns: rename the metric",
        ),
        (
            [*CLIENTS, "evaluate.metrics=['my.py:examples']"],
            "evaluate.metrics: with evaluate.on_clients, examples names two columns: rename the metric",
        ),
        ([TARGET, "stop.metric=acuracy"], "stop.metric = 'acuracy': must be one of accuracy, loss"),
        (
            [TARGET, "stop.metric=client_accuracy"],
            ".*: clients measure nothing: set evaluate.on_clients",
        ),
        (
            [TARGET, *CLIENTS, "stop.metric=client_f1"],
            ".*'client_f1': must be one of .*client_loss_worst.*",
        ),
        ([TARGET, "stop.target=80"], "stop.target = 80: an accuracy is between 0 and 1, for instance 0.8"),
        (
            [TARGET, *CLIENTS, "stop.target=80", "stop.metric=client_accuracy_p10"],
            ".* = 80: an accuracy is .*",
        ),
    ],
)
def test_mistakes(changes: list[str], line: str, experiment: Load) -> None:
    with pytest.raises(OffbeatError, match=f"tiny.toml: {line}$"):
        experiment(*changes)


def test_each_part_may_be_alone(experiment: Load) -> None:
    experiment(HOLDOUT, f"privacy={PRIVATE}")
    experiment("evaluate.metrics=['my.py:client_accuracy', 'accuracy']")
    assert client_columns(experiment(HOLDOUT).evaluate, ("accuracy",)) == []


def test_the_settings_of_a_run_say_whether_clients_evaluate(experiment: Load) -> None:
    resolved = experiment("population.holdout=0.0").resolved("fedavg", 1, "digits")
    assert resolved["population"]["holdout"] == 0
    assert "on_clients" not in resolved["evaluate"]
    resolved = experiment(HOLDOUT, ON_CLIENTS).resolved("fedavg", 1, "digits")
    assert (resolved["population"]["holdout"], resolved["evaluate"]["on_clients"]) == (0.2, 5)


def test_columns_of_the_history() -> None:
    evaluate = EvaluateSection(every_seconds=1.0, on_clients=3)
    names = client_columns(evaluate, ("my.py:recall", "training_loss"))
    assert names[0] == "clients_evaluated"
    assert {"client_loss", "client_recall", "client_recall_worst"} <= set(names)
    assert len(names) == 1 + 2 * 6


@pytest.mark.parametrize(
    ("section", "metrics", "lower"),
    [
        ({}, BOTH, {"loss", "training_loss", "mae"}),
        ({"better": "lower"}, BOTH, {"loss", "training_loss", "mae", "accuracy"}),
        ({"better": "higher", "metrics": ["mae", "accuracy"]}, BOTH, {"loss", "training_loss"}),
        ({"better": "higher", "metrics": ["training_loss", "mae"]}, BOTH, {"loss", "training_loss", "mae"}),
        ({"better": "lower", "metrics": []}, [], {"loss", "training_loss"}),
    ],
)
def test_directions(section: dict[str, object], metrics: list[str], lower: set[str]) -> None:
    evaluate = EvaluateSection.model_validate({"every_seconds": 1.0, "on_clients": 3, **section})
    assert lower_is_better(evaluate, metrics) == lower


def ends(stop: EarlyStop | None, **values: float) -> bool:
    assert stop is not None
    stop.note(0, values)
    return stop.is_reached


def of(experiment: Experiment) -> EarlyStop | None:
    return early_stop(experiment.stop, experiment.evaluate, experiment.metrics)


def test_a_file_without_it_has_no_such_end(experiment: Load) -> None:
    assert of(experiment()) is None
    assert set(experiment().resolved("fedavg", 1, "digits")["stop"]) == {"virtual_seconds"}


@pytest.mark.parametrize(
    ("changes", "metric", "lower"),
    [
        ([], "accuracy", False),
        (["evaluate.metrics=['mae', 'accuracy']"], "mae", True),
        (["evaluate.metrics=['mae', 'accuracy']", "evaluate.better=higher"], "mae", False),
        (["evaluate={ every_seconds = 20.0, metrics = [] }"], "loss", True),
        (["evaluate.metrics=['training_loss', 'accuracy']"], "training_loss", True),
        (["stop.metric=loss"], "loss", True),
        (["evaluate.metrics=['my.py:f1']"], "f1", False),
        ([*CLIENTS, "stop.metric=client_accuracy_worst"], "client_accuracy_worst", False),
        ([*CLIENTS, "stop.metric=client_loss"], "client_loss", True),
        ([*CLIENTS, "evaluate.metrics=['my.py:f1', 'mae']", "stop.metric=client_f1_mean"], "client_f1_mean", False),
        ([*CLIENTS, "evaluate.metrics=['my.py:f1', 'mae']", "stop.metric=client_mae_p90"], "client_mae_p90", True),
    ],
)  # fmt: skip
def test_the_metric_and_its_direction(changes: list[str], metric: str, lower: bool, experiment: Load) -> None:
    here = experiment(TARGET, *changes)
    assert ends(of(here), **{metric: 0.4}) is lower
    assert ends(of(here), **{metric: 0.6}) is not lower


EVALUATE = EvaluateSection(every_versions=2)
BY_CLIENTS = EvaluateSection(every_versions=2, on_clients=4)


class TestServer:
    def test_the_test_set_comes_first(self) -> None:
        stop = EarlyStopSection(target=0.5)
        for evaluate in (EVALUATE, BY_CLIENTS):
            assert ends(server_early_stop(stop, evaluate, ["accuracy"], has_test_set=True), accuracy=0.6)
        assert ends(server_early_stop(stop, BY_CLIENTS, ["accuracy"], has_test_set=False), client_accuracy=0.6)
        assert ends(server_early_stop(stop, BY_CLIENTS, [], has_test_set=False), client_loss=0.4)

    def test_clients_may_measure_anything(self) -> None:
        for metric, lower in (("client_recall_p10", False), ("client_mae_worst", True)):
            stop = EarlyStopSection(target=0.5, metric=metric)
            assert ends(server_early_stop(stop, BY_CLIENTS, [], has_test_set=True), **{metric: 0.4}) is lower

    @pytest.mark.parametrize(
        ("name", "evaluate", "metrics", "lower"),
        [
            ("accuracy", EVALUATE, ["accuracy"], False),
            ("loss", EVALUATE, ["accuracy"], True),
            ("mae", EVALUATE, ["mae"], True),
            ("client_mae_p90", BY_CLIENTS, [], True),
            ("client_recall", BY_CLIENTS, [], False),
            ("risk", EvaluateSection(every_versions=2, metrics=("my.py:risk",), better="lower"), ["my.py:risk"], True),
        ],
    )
    def test_the_best_version_has_a_metric_with_a_direction(
        self, name: str, evaluate: EvaluateSection, metrics: list[str], lower: bool
    ) -> None:
        assert best_metric(name, evaluate, metrics, has_test_set=True) == (name, lower)

    def test_mistakes_about_the_best_version(self) -> None:
        assert best_metric(None, None, [], has_test_set=True) is None
        for name, evaluate, has_test_set, line in (
            ("accuracy", None, True, r"^service.keep_best needs evaluations: set evaluate.every_versions$"),
            ("acuracy", EVALUATE, True, r"^service.keep_best = 'acuracy': must be one of accuracy, loss$"),
            ("client_f1", EVALUATE, True, r"^service.keep_best = 'client_f1': clients measure nothing: set evaluate"),
            ("accuracy", BY_CLIENTS, False, r"^service.keep_best = 'accuracy': must be one of client_accuracy, client"),
        ):
            with pytest.raises(ValueError, match=line):
                best_metric(name, evaluate, ["accuracy"], has_test_set=has_test_set)

    def test_mistakes(self) -> None:
        stop = EarlyStopSection(patience=3)
        with pytest.raises(ValueError, match=r"need evaluations: set evaluate\.every_versions"):
            server_early_stop(stop, None, [], has_test_set=True)
        with pytest.raises(ValueError, match=r"'client_f1': clients measure nothing: set evaluate\.on_clients"):
            server_early_stop(EarlyStopSection(patience=3, metric="client_f1"), EVALUATE, [], has_test_set=True)
        with pytest.raises(ValueError, match="'accuracy': must be one of client_loss"):
            server_early_stop(EarlyStopSection(patience=3, metric="accuracy"), BY_CLIENTS, [], has_test_set=False)
        assert server_early_stop(EarlyStopSection(), None, [], has_test_set=True) is None
