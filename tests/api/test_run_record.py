import tomllib

import pytest

import offbeat
from offbeat.algorithms import FedAvg, FedBuff, LocalPlan
from offbeat.report.collect import collect
from offbeat.runs.run_all import run_all
from offbeat.training.models import mlp


@pytest.mark.parametrize("label", ["fedavg", "fedbuff"])
def test_is_written_as_a_run_of_the_same_settings(label, experiment, progress, files, tmp_path, tiny):
    tiny["population"]["holdout"] = 0.25
    here = experiment("model={ name = 'mlp', hidden = [5] }", "seeds=[3]", "evaluate.on_clients=4")
    (run,) = run_all(here, [label], tmp_path / "runs", progress(here))
    history = offbeat.simulate(
        lambda: mlp((1, 8, 8), 10, [5]),
        "digits",
        {"fedavg": FedAvg(cohort=4), "fedbuff": FedBuff(buffer_size=2, concurrency=4)}[label],
        population=tiny["population"],
        local=tiny["local"],
        server=tiny["server"],
        evaluate_every_seconds=20.0,
        evaluate_on_clients=4,
        virtual_seconds=60.0,
        seed=3,
        progress=False,
    )
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
