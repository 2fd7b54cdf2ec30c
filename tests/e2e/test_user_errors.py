"""Errors of users: each ends in one line that names it, and exit code 2.

The rules themselves are tested beside the modules that hold them; here is one case of each place they come from.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import zeros

from offbeat.runs.directory import unfinished_path

OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

from offbeat.algorithms import FedBuff

Linear = lambda outputs: nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()

def data(nan=False):
    pair = TensorDataset(torch.full((40, 1, 8, 8), float("nan") if nan else 0.0), torch.arange(40) % 10)
    return pair, pair

def one_data():
    return data()[0]

def leaves():
    raise SystemExit(7)

nan_metric = lambda outputs, labels: float("nan")

def soon(client, last, clients):
    return last + 1 if last < 3 else last + 0.5

class Strong(FedBuff):
    def __init__(self, *, strength: float = 0.5):
        if strength > 1:
            raise ValueError("strength is too much")
        super().__init__()
        self.strength = strength
"""

FILES = {
    "own.py": OWN,
    "raising.py": "import os\nraise RuntimeError('on import')\n",
    "few.csv": "step_seconds\n1\n2\n",
    "order.csv": "client,start_seconds,end_seconds\n0,0,10\n1,0,5\n0,5,20\n",
    "words.csv": "client,example\n0,first\n",
    "trace.log": "0 1\n1 2\n1 3\n",
    "list.toml": "local = [1",
}

PATTERN = "algorithms.mine={ algorithm = 'async_comm_sgd', pattern = { name = 'own.py:soon', longest_gap = 2 } }"

# A wrong change, as --set; and parts of the line.
SETTINGS: list[tuple[str, list[str]]] = [
    # the file
    ("local.lrr=1", ["tiny.toml: unknown key local.lrr", "did you mean 'lr'?"]),
    ("local.lr", ["--set local.lr", "section.key=value"]),
    ("algorithms.fedbuf.cohort=1", ["algorithms.fedbuf: unknown algorithm 'fedbuf'", "did you mean 'fedbuff'?"]),
    ("model.name=own.py:", ["model.name = 'own.py:'", "after the colon"]),
    ("server={}", ["population.lossy needs server.lease_seconds"]),
    ("algorithms={}", ["algorithms: must not be empty"]),
    ("algorithms.fedbuff.server_lr=nan", ["algorithms.fedbuff: server_lr = nan: must be a finite number"]),
    ("evaluate.every_seconds=1e-320", ["evaluate.every_seconds = ", "10,000,000 evaluations", "longer interval"]),
    ("model={ name = 'mlp', hidden = [1000000000000] }", ["not enough memory"]),
    ("model={ name = 'mlp', hidden = [9999999999, 9999999999] }", ["not enough memory"]),
    # the user's code
    ("data.name=own.py:one_data", ["own.py:one_data: got a value of type TensorDataset", "pair (train, test)"]),
    ("data={ name = 'own.py:data', arguments = { nan = true } }", ["NaN or infinity", "train example 0"]),
    ("data={ name = 'own.py:data', arguments = { nana = 3 } }",
     ["data '", "own.py:data' does not accept the argument 'nana'", "did you mean 'nan'?"]),
    ("model.name=raising.py:Net", ["raising.py:Net' could not be imported: RuntimeError: on import", "raising.py:2"]),
    ("model.name=own.py:Net", ["model '", "own.py:Net'", "missing a required argument: 'width'"]),
    ("model.name=own.py:leaves", ["own.py:leaves' failed: SystemExit: 7"]),
    ("model.loss=own.py:losss", ["model.loss: ", "there is no 'losss'"]),
    ("evaluate.metrics=['own.py:nan_metric']", ["the metric nan_metric is nan"]),
    ("algorithms.mine={ algorithm = 'own.py:Strong', strength = 2.0 }", ["ValueError: strength is too much"]),
    (PATTERN, ["own.py:soon: client ", "is to talk next in round 3.5", "greater than 3"]),
    # the world
    ("model={ name = 'own.py:Linear', arguments = { outputs = 5 } }", ["labels go up to 9", "5 outputs"]),
    ("model={ name = 'lstm' }", ["model.name = 'lstm': digits holds no tokens"]),
    ("local.compression={ name = 'sign' }", ["algorithms.fedasync: ", "whole models", "compress"]),
    ("population.clients=2000", ["population.partition: 2000 clients cannot share 1433 examples"]),
    ("population.partition={ name = 'file', path = 'words.csv' }", ["words.csv, row 2", "a whole number", "'first'"]),
    ("population.step_seconds={ distribution = 'file', path = 'few.csv' }", ["few.csv has 2 rows", "20 clients"]),
    ("population.up_bytes_per_second={ distribution = 'trace', path = 'trace.log' }",
     ["population.up_bytes_per_second: ", "trace.log, line 3", "must rise"]),
    ("population.availability={ name = 'intervals', path = 'order.csv' }",
     ["population.availability: ", "order.csv, row 4", "client 0", "sort them"]),
]  # fmt: skip

# What the user types otherwise.
COMMANDS: list[tuple[list[str], list[str]]] = [
    ([], ["Missing command. See offbeat --help."]),
    (["client"], ["Missing command. See offbeat client --help."]),
    (["server", "audit", "empty"], ["No such command 'empty'. See offbeat server audit --help."]),
    (["run", "tiny.toml", "two.toml"], ["unexpected extra argument (two.toml). See offbeat run --help."]),
    (["server", "list", "nowhere"], ["nowhere does not hold a server's folder"]),
    (["rum", "tiny.toml"], ["'rum'", "--help"]),
    (["run"], ["FILE", "--help"]),
    (["run", "tiny.toml", "--bogus"], ["--bogus", "--help"]),
    (["run", "nowhere.toml"], ["no such file: nowhere.toml"]),
    (["run", "list.toml"], ["list.toml is not valid TOML"]),
    (["run", "tiny.toml", "--algorithm", "fedbuf"], ["--algorithm fedbuf", "did you mean 'fedbuff'?"]),
    (["run", "tiny.toml", "--output", "tiny.toml/x"], ["cannot write into tiny.toml/x", "--output"]),
    (["run", "tiny.toml", "--checkpoint-every", "0"], ["--checkpoint-every", "0"]),
    (["run", "tiny.toml", "--checkpoint-every", "nan"], ["--checkpoint-every nan", "finite"]),
    (["run", "tiny.toml", "--set", "local.lr=0.5", "--output", "done"], ["done/fedavg-seed1", "other settings"]),
    (["run", "tiny.toml", "--output", "old"], ["checkpoint of format 0", "format 1", "--fresh"]),
    (["report"], ["RUN", "--help"]),
    (["report", "nowhere"], ["cannot read nowhere"]),
    (["report", "empty"], ["empty holds no runs"]),
    (["report", "done", "--output", "tiny.toml"], ["tiny.toml"]),
    (["report", "torn"], ["torn/fedavg-seed1 is not a run: events.parquet is missing"]),
    (["population", "tiny.toml", "--set", "population.clients=2000"], ["population.partition: 2000 clients"]),
    (["population", "tiny.toml", "--output", "tiny.toml"], ["tiny.toml"]),
    (["data", "get", "mnits"], ["unknown data set 'mnits'", "did you mean 'mnist'?"]),
    (["data", "fetch"], ["'fetch'", "--help"]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> Path:
    for name, content in {**FILES, "tiny.toml": tiny_toml}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(outcome: tuple[int, str, str], parts: list[str]) -> None:
    code, _, err = outcome
    assert err.startswith("offbeat: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
    assert code == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("change", "parts"), SETTINGS, ids=lambda value: str(value)[:60])
def test_a_wrong_setting(change: str, parts: list[str], offbeat: Callable[..., tuple[int, str, str]]) -> None:
    check(offbeat("run", "tiny.toml", "--set", "stop.virtual_seconds=5", "--set", change), parts)


@pytest.mark.parametrize(("arguments", "parts"), COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_a_wrong_command(
    arguments: list[str], parts: list[str], folder: Path, offbeat: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "empty").mkdir()
    output = next((name for name in ("done", "torn", "old") if name in arguments), None)
    if output:
        assert offbeat("run", "tiny.toml", "--algorithm", "fedavg", "--output", output)[0] == 0
        run = folder / output / "fedavg-seed1"
        if output == "torn":
            (run / "events.parquet").unlink()
        if output == "old":
            run.rename(unfinished_path(run))
            save_file({"x": zeros(1)}, unfinished_path(run) / "checkpoint.safetensors", {"format": "0"})
    check(offbeat(*arguments), parts)


def test_a_wrong_setting_of_any_algorithm_is_found_before_the_first_run(
    folder: Path, offbeat: Callable[..., tuple[int, str, str]]
) -> None:
    change = "algorithms.last={ algorithm = 'fedavg', cohort = 21 }"
    check(offbeat("run", "tiny.toml", "--set", change), ["algorithms.last: cohort", "21"])
    assert [path.name for path in (folder / "runs" / "tiny").iterdir()] == []


def test_a_data_folder_that_is_missing_or_incomplete(
    folder: Path, offbeat: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFBEAT_DATA", str(folder / "nowhere"))
    check(offbeat("run", "tiny.toml", "--set", "data.name=mnist"), ["OFFBEAT_DATA", "nowhere", "not a folder"])
    check(offbeat("data", "list"), ["OFFBEAT_DATA", "not a folder"])
    (folder / "mnist").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(bytes(24))
    monkeypatch.setenv("OFFBEAT_DATA", str(folder))
    check(offbeat("run", "tiny.toml", "--set", "data.name=mnist"), ["only part of", "train-labels-idx1-ubyte.gz"])
