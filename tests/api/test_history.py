import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from offbeat.algorithms import FedBuff
from offbeat.api.history import History
from offbeat.api.run_record import RunRecord
from offbeat.simulation.totals import Evaluation


@pytest.fixture
def history():
    rows = [Evaluation(0.0, 0, 0, 0, 0, 100, 0, 0.0, 2.5, {"accuracy": 0.1}),
            Evaluation(5.0, 2, 4, 1, 0, 200, 90, 0.25, 1.5, {"accuracy": 0.6})]  # fmt: skip
    events = pd.DataFrame({"client": [3, 1]})
    record = RunRecord("fedbuff", 1, {}, {}, rows, pa.table({}), [], {}, 1.0)
    return History(rows, model=torch.nn.Linear(1, 1), algorithm=FedBuff(), events=events, record=record)


def test_is_a_table(history):
    assert list(history.columns) == [
        "seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up", "displacement", "loss", "accuracy",
    ]  # fmt: skip
    assert history.accuracy.tolist() == [0.1, 0.6]
    assert history.events.client.tolist() == [3, 1]
    assert isinstance(history.algorithm, FedBuff)


def test_parts_and_results_are_plain_tables(history, tmp_path):
    for part in (history[["seconds", "loss"]], history[history.version > 0], history.copy(), history.assign(x=1)):
        assert type(part) is pd.DataFrame
    history.to_parquet(tmp_path / "history.parquet")
    assert pd.read_parquet(tmp_path / "history.parquet").equals(history)
    assert pd.concat([history, history]).shape == (4, 10)


def test_the_models_file_loads_where_layers_share_a_parameter(simulate, tmp_path):
    class Tied(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
            self[2].weight = self[1].weight

    history = simulate(Tied, output=tmp_path)
    model = Tied()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert all(map(torch.equal, model.parameters(), history.model.parameters()))


def test_a_simulation_ends_with_its_model_algorithm_and_visits(simulate, digits, tmp_path):
    algorithm = FedBuff(buffer_size=2, concurrency=4)
    history = simulate(algorithm=algorithm, output=tmp_path)
    inputs, labels = torch.from_numpy(digits.test_inputs), torch.from_numpy(digits.test_labels)
    assert not history.model.training
    assert all(parameter.grad is None for parameter in history.model.parameters())
    right = (history.model(inputs).argmax(dim=1) == labels).float().mean().item()
    assert history.accuracy.iloc[-1] == pytest.approx(right)
    written = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(value, written[name]) for name, value in history.model.named_parameters())
    assert history.algorithm is not algorithm
    assert history.algorithm.version == history.version.iloc[-1]
    assert history.events.equals(pd.read_parquet(tmp_path / "events.parquet"))
    assert (history.events.outcome == "counted").sum() == history.counted.iloc[-1]
