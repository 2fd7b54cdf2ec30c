from pathlib import Path

import pytest

from offbeat.config.server_file import load
from offbeat.errors import OffbeatError

SERVER = """
[service]
folder = "run"
clients = 4

[data]
name = "digits"

[model]
name = "softmax"

[local]
steps = 1
batch_size = 8
lr = 0.1

[evaluate]
every_versions = 10
metrics = ["accuracy"]

[algorithm]
algorithm = "fedbuff"
"""


def test_the_metrics_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(SERVER, encoding="utf-8")
    evaluate = load(path).evaluate
    assert evaluate is not None
    assert (evaluate.every_versions, evaluate.metrics) == (10, ("accuracy",))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("every_versions = 10", "every_seconds = 10.0", "evaluate.every_seconds is for simulations"),
        ('[data]\nname = "digits"\n', "", "evaluate needs a test set"),
        ('["accuracy"]', '["accuracy", "training_loss"]', "training_loss is for simulations"),
        ('["accuracy"]', '["training_los"]', "did you mean 'training_loss'"),
    ],
)
def test_metrics_must_be_functions_with_free_names(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert before in SERVER
    path = tmp_path / "server.toml"
    path.write_text(SERVER.replace(before, after), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
