import tomllib

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import TensorDataset

import offbeat
from offbeat.algorithms import FedAvg, FedBuff, LocalPlan
from offbeat.report.collect import collect
from offbeat.runs.run_all import run_all
from offbeat.training.models import mlp


def pair(dataset):
    return (
        TensorDataset(torch.from_numpy(dataset.train_inputs), torch.from_numpy(dataset.train_labels)),
        TensorDataset(torch.from_numpy(dataset.test_inputs), torch.from_numpy(dataset.test_labels)),
    )


@pytest.mark.parametrize(
    ("label", "kind"), [("fedavg", "name"), ("fedbuff", "name"), ("fedbuff", "pair"), ("fedavg", "dataset")]
)
def test_has_the_numbers_of_a_run_of_the_same_settings(
    label, kind, experiment, progress, files, tmp_path, tiny, digits
):
    tiny["population"]["holdout"] = 0.25
    here = experiment("model={ name = 'mlp', hidden = [5] }", "seeds=[3]", "evaluate.on_clients=4")
    (run,) = run_all(here, [label], tmp_path / "runs", progress(here))
    history = offbeat.simulate(
        lambda: mlp((1, 8, 8), 10, [5]),
        {"name": "digits", "pair": pair(digits), "dataset": digits}[kind],
        {"fedavg": FedAvg(cohort=4), "fedbuff": FedBuff(buffer_size=2, concurrency=4)}[label],
        population=tiny["population"],
        local=LocalPlan(steps=3, batch_size=8, lr=0.1) if kind == "pair" else tiny["local"],
        server=tiny["server"],
        evaluate_every_seconds=20.0,
        evaluate_on_clients=4,
        virtual_seconds=60.0,
        seed=3,
        output=tmp_path / "output",
        progress=False,
    )
    assert list(history.columns) == list(run.history)
    for name, column in run.history.items():
        assert history[name].tolist() == column.tolist(), name
    assert pd.read_parquet(tmp_path / "output" / "history.parquet").equals(history)
    for name in ("events.parquet", "history.parquet", "clients.parquet"):
        mine, theirs = pq.read_table(tmp_path / "output" / name), pq.read_table(run.path / name)
        assert mine.to_pydict() == theirs.to_pydict()
        assert mine.schema.types == theirs.schema.types
    assert (tmp_path / "output" / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()

    if kind != "name":  # the settings say which data they were
        return
    path = history.record.write(tmp_path / "ours", label)
    assert path == tmp_path / "ours" / f"{label}-seed3"
    ours, theirs = files(path), files(run.path)
    mine, other = (tomllib.loads(one.pop("config.toml").decode()) for one in (ours, theirs))
    assert ours == theirs
    # Only the file has a target, and a name for the model.
    assert mine.pop("model") == {
        "name": "python:function", "arguments": {}, "loss": "cross_entropy", "batch_norm": "refuse",
    }  # fmt: skip
    assert mine.pop("name") == label
    del other["model"], other["name"], other["evaluate"]["target"]
    assert mine == other
    (read,) = collect([path])
    assert (read.label, read.seed, read.finished) == (label, 3, True)
    assert read.real_seconds == history.record.real_seconds > 0


def written(history, folder, label):
    """Return the configuration of a history's run under another label."""
    return tomllib.loads((history.record.write(folder, label) / "config.toml").read_text(encoding="utf-8"))


def test_what_a_file_cannot_have_is_named(simulate, tmp_path):
    history = simulate(
        population={"clients": 12, "step_seconds": lambda client: client + 1.0}, local=LocalPlan(2, 8, (0.2, 0.1))
    )
    config = written(history, tmp_path, "falling")
    assert config["population"]["step_seconds"] == "given in Python"
    assert config["local"]["lr"] == [0.2, 0.1]
    assert config["algorithms"]["falling"]["algorithm"] == "fedbuff"


class Own(FedBuff):
    """An algorithm with a hyper-parameter that TOML cannot have."""

    def __init__(self, *, factor):
        super().__init__(buffer_size=2, concurrency=4)
        self.factor = factor


class Secretive(FedBuff):
    """An algorithm that does not keep its hyper-parameter."""

    def __init__(self, *, factor):
        super().__init__(buffer_size=2, concurrency=4)


@pytest.mark.parametrize(("kind", "kept"), [(Own, {"factor": "(1+2j)"}), (Secretive, {})])
def test_an_algorithm_of_the_users(kind, kept, simulate, tmp_path):
    history = simulate(algorithm=kind(factor=1 + 2j))
    expected = {"mine": {"algorithm": f"python:{kind.__name__}", **kept}}
    assert written(history, tmp_path, "mine")["algorithms"] == expected
