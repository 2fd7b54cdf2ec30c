"""Epochs and steps by client in a simulation, compared with algorithms written out."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

import offbeat
from offbeat.algorithms import FedAvg, FedBuff, FedNova
from offbeat.population.partition.by_owner import from_file
from offbeat.uniform_numbers import example_order

SIZES = [7, 23, 3, 12, 1]
BATCH, LR, ROUNDS, SEED = 5, 0.2, 3, 1
TOTAL = sum(SIZES)
INPUTS = torch.from_numpy(np.random.default_rng(1).normal(size=(TOTAL, 6)).astype(np.float32))
LABELS = torch.from_numpy(np.random.default_rng(2).integers(3, size=TOTAL))


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return nn.Linear(6, 3)


def vector(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.fixture
def population(tmp_path):
    rows = [f"{client},{row}" for row, client in enumerate(np.repeat(np.arange(len(SIZES)), SIZES))]
    path = tmp_path / "clients.csv"
    path.write_text("\n".join(["client,example", *rows]), encoding="utf-8")
    return {"clients": len(SIZES), "partition": {"name": "file", "path": str(path)}}


def simulate(population: dict[str, Any], algorithm: Any, **changes: Any) -> Any:
    local = {"batch_size": BATCH, "lr": LR} | changes.pop("local")
    settings = {"versions": ROUNDS, "evaluate_every_versions": ROUNDS, "seed": SEED, "progress": False}
    data = (INPUTS, LABELS), (INPUTS, LABELS)
    return offbeat.simulate(net(), data, algorithm, population=population, local=local, **settings | changes)


def client_update(model: torch.Tensor, shard: Any, client: int, visit: int, passes: list[int]) -> torch.Tensor:
    """ClientUpdate of McMahan et al., Algorithm 1; ``passes`` is how many minibatches of each pass are taken."""
    module = net()
    nn.utils.vector_to_parameters(model.clone(), module.parameters())
    for epoch, minibatches in enumerate(passes):
        order = example_order(SEED, client, visit, len(shard), (epoch + 1) * len(shard))[epoch * len(shard) :]
        for batch in torch.from_numpy(shard)[order].split(BATCH)[:minibatches]:
            module.zero_grad()
            cross_entropy(module(INPUTS[batch]), LABELS[batch]).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= LR * parameter.grad
    return vector(module)


def by_hand(population: dict[str, Any], passes: list[list[int]], *, nova: bool) -> torch.Tensor:
    shards = from_file(Path(population["partition"]["path"]), TOTAL, len(SIZES))
    model, shares = vector(net()), torch.tensor(SIZES) / TOTAL
    for visit in range(ROUNDS):
        ends = [client_update(model, shards[client], client, visit, passes[client]) for client in range(len(SIZES))]
        deltas = model - torch.stack(ends)
        steps = torch.tensor([float(sum(each)) for each in passes])
        factors = shares if not nova else (shares * steps).sum() * shares / steps
        model = model - factors @ deltas
    return model


# ⌈n / 5⌉ = 2, 5, 1, 3, 1 minibatches a pass; 1.5 passes are 3, 8 (7.5), 2 (1.5), 5 (4.5) and 2 (1.5) of them.
PASSES = {
    2: [[2, 2], [5, 5], [1, 1], [3, 3], [1, 1]],
    1.5: [[2, 1], [5, 3], [1, 1], [3, 2], [1, 1]],
    0.2: [[1], [1], [1], [1], [1]],
}


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("trainer", "epochs", "kind"),
    [*product(["loop", "vmap"], PASSES, [FedAvg, FedNova]), ("processes", 1.5, FedNova)],
)
def test_equals_the_algorithm_written_out(kind, epochs, trainer, population):
    history = simulate(population, kind(cohort=len(SIZES)), local={"epochs": epochs}, trainer=trainer)
    expected = by_hand(population, PASSES[epochs], nova=kind is FedNova)
    torch.testing.assert_close(vector(history.model), expected, rtol=0, atol=1e-6)


def test_a_visit_takes_the_time_of_its_steps(population):
    history = simulate(
        population | {"step_seconds": [1.0, 1.0, 2.0, 1.0, 1.0]},
        FedAvg(cohort=len(SIZES)),
        local={"epochs": 2},
        versions=1,
    )
    events = history.events.set_index("client").sort_index()
    seconds = events["ended_seconds"] - events["assigned_seconds"]
    assert seconds.round(2).tolist() == [4, 10, 4, 6, 2]
    assert events["bytes_up"].nunique() == 1


def test_steps_may_be_a_function(population, tmp_path, monkeypatch):
    """It is asked for the number of examples, and recorded by its name; an import path does the same."""
    asked = []

    def quarter(examples):
        asked.append(examples)
        return np.int64(1 + examples // 4)

    algorithm = FedNova(cohort=len(SIZES))
    history = simulate(population, algorithm, local={"steps": quarter}, output=tmp_path / "out")
    assert set(asked) == set(SIZES)
    assert history.record.config["local"]["steps"] == "python:quarter"
    (tmp_path / "mine.py").write_text("def quarter(examples):\n    return 1 + examples // 4\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    other = simulate(population, algorithm, local={"steps": "mine.py:quarter"})
    assert torch.equal(vector(other.model), vector(history.model))
    fixed = simulate(population, algorithm, local={"steps": 1})
    assert not torch.allclose(vector(fixed.model), vector(history.model))


@pytest.mark.parametrize(
    ("local", "more", "message"),
    [
        ({"steps": lambda examples: examples / 4}, {}, r"local.steps = 'python:function' returned 0.25 for 1 example:"),
        ({"steps": lambda: 3}, {}, r"local.steps = 'python:function' failed for 1 example: TypeError"),
        ({"epochs": 2, "steps": 3}, {}, r"local: set exactly one of steps and epochs$"),
        ({"epochs": 0}, {}, r"local.epochs = 0: must be greater than 0$"),
        ({"epochs": 10**7}, {}, r"local.epochs = 1e\+07 is 10,000,000 steps for 1 example: at most 1,000,000 are"),
        ({"local_epochs": 2}, {}, r"unknown key local.local_epochs: did you mean 'epochs'\?"),
        (
            {"epochs": 2},
            {"privacy": {"min_clients": 2, "clip_norm": 1.0, "noise_multiplier": 1.0, "max_participations": 3}},
            r"\[privacy\] needs the same number of steps for all clients, or the time of a visit would tell how many",
        ),
    ],
)
def test_mistakes_are_one_line(local, more, message, population):
    with pytest.raises(OffbeatError, match=rf"^{message}"):
        simulate(population, FedBuff(buffer_size=3, concurrency=3), local=local, **more)
