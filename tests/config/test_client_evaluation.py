from collections.abc import Callable

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.client_evaluation import client_columns, lower_is_better
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import EvaluateSection

Load = Callable[..., Experiment]

HOLDOUT, ON_CLIENTS = "population.holdout=0.2", "evaluate.on_clients=5"
PRIVATE = "{ clip_norm = 1.0, noise_multiplier = 1.0, min_clients = 2, max_participations = 5 }"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ([ON_CLIENTS], "evaluate.on_clients needs held-out examples: set population.holdout, for instance to 0.2"),
        ([HOLDOUT, ON_CLIENTS, f"privacy={PRIVATE}"], r"evaluate.on_clients does not go with \[privacy\]: .*"),
        ([HOLDOUT, ON_CLIENTS, f"algorithms.fedbuff.privacy={PRIVATE}"], r".* does not go with \[privacy\]: .*"),
        ([HOLDOUT, "evaluate.on_clients=0"], "evaluate.on_clients = 0: .*greater than or equal to 1"),
        (["population.holdout=1.0"], "population.holdout = 1.0: .*less than 1"),
        (
            [HOLDOUT, ON_CLIENTS, "evaluate.metrics=['my.py:client_accuracy', 'accuracy']"],
            "evaluate.metrics: with evaluate.on_clients, client_accuracy names two columns: rename the metric",
        ),
        (
            [HOLDOUT, ON_CLIENTS, "evaluate.metrics=['my.py:examples']"],
            "evaluate.metrics: with evaluate.on_clients, examples names two columns: rename the metric",
        ),
    ],
)
def test_clients_that_cannot_evaluate(changes: list[str], line: str, experiment: Load) -> None:
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
    ("section", "lower"),
    [
        ({}, {"loss", "training_loss", "mae"}),
        ({"better": "lower"}, {"loss", "training_loss", "mae", "accuracy"}),
        ({"better": "higher", "metrics": ["mae", "accuracy"]}, {"loss", "training_loss"}),
        ({"better": "higher", "metrics": ["training_loss", "mae"]}, {"loss", "training_loss", "mae"}),
    ],
)
def test_directions(section: dict[str, object], lower: set[str]) -> None:
    evaluate = EvaluateSection.model_validate({"every_seconds": 1.0, "on_clients": 3, **section})
    assert lower_is_better(evaluate, ["accuracy", "mae"]) == lower


def test_without_metrics_only_the_loss_has_a_direction() -> None:
    evaluate = EvaluateSection(every_seconds=1.0, on_clients=3, metrics=(), better="lower")
    assert lower_is_better(evaluate, []) == {"loss", "training_loss"}
