"""Errors of users: each ends in one line that names it, and exit code 2."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import zeros

from offbeat.runs.directory import unfinished_path

OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

from offbeat import Dataset
from offbeat.algorithms import FedBuff

Linear = lambda inputs=64, outputs=10: nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
Normed = lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
three = 3
nothing = lambda: None

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()

def fails():
    raise RuntimeError("a first line\\na second line")

def leaves():
    raise SystemExit(7)

def data(inputs=(1, 8, 8), labels=10, train=40, users=False, nan=False, integer=False):
    def part(examples):
        values = torch.randn(examples, *inputs)
        if nan:
            values[3] = float("nan")
        if integer:
            values = torch.arange(examples * 5).reshape(examples, 5) % 11
        return TensorDataset(values, torch.arange(examples) % labels)
    pair = part(train), part(20)
    if users:
        pair[0].users = [number % 4 for number in range(train)]
    return pair

def one_data():
    return data()[0]

def uneven():
    return [(torch.zeros(2), 0), (torch.zeros(3), 1)], [(torch.zeros(2), 0)]

def negative():
    pair = TensorDataset(torch.zeros(3, 1, 8, 8), torch.tensor([0, -1, 2]))
    return pair, pair

def out_of_range():
    import numpy as np
    inputs, labels = np.zeros((40, 1, 8, 8), np.float32), np.arange(40) % 10
    return Dataset("x", inputs, labels, inputs, labels, classes=5)

def per_example(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="none")

def number_loss(outputs, labels):
    return 3.0

def detached(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels).detach()

def one_argument(outputs):
    return outputs.mean()

nan_metric = lambda outputs, labels: float("nan")
table_metric = lambda outputs, labels: outputs

def failing_metric(outputs, labels):
    raise ValueError("no")

def soon(client, last, clients):
    return last + 1 if last < 3 else last + 0.5

def back(client, last, clients):
    return last + 1 if last < 3 else last

def lost(client, last, clients):
    return [1, 2, 3, 4][last]

class Strong(FedBuff):
    def __init__(self, *, strength: float = 0.5):
        if strength > 1:
            raise ValueError("strength is too much")
        super().__init__()
        self.strength = strength
"""

SPEEDS = "client,step_seconds,other\n" + "".join(f"{i},{i + 1},x\n" for i in range(20))

FILES = {
    "own.py": OWN,
    "broken.py": "def f(:\n",
    "raising.py": "import os\nraise RuntimeError('on import')\n",
    "missing.py": "import a_module_that_there_is_not\n",
    "speeds.csv": SPEEDS,
    "few.csv": "step_seconds\n1\n2\n",
    "zero.csv": SPEEDS.replace("7,8,x", "7,0,x"),
    "text.csv": SPEEDS.replace("7,8,x", "7,fast,x"),
    "empty.csv": "",
    "order.csv": "client,start_seconds,end_seconds\n0,0,10\n1,0,5\n0,5,20\n",
    "backwards.csv": "client,start_seconds,end_seconds\n0,10,10\n",
    "stranger.csv": "client,start_seconds,end_seconds\n20,0,10\n",
    "index.csv": "client,example\n" + "".join(f"{i % 19},{i}\n" for i in range(200)),
    "twice.csv": "client,example\n" + "".join(f"{i % 20},{i}\n" for i in range(200)) + "3,7\n",
    "far.csv": "client,example\n" + "".join(f"{i % 20},{i}\n" for i in range(200)) + "3,1433\n",
    "words.csv": "client,example\n0,first\n",
    "phones.json": '[{"name": "a phone"}]',
    "broken.json": "[",
    "trace.log": "0 1\n1 2\n1 3\n",
    "short.log": "0 1\n",
    "list.toml": "local = [1",
    "nothing.toml": "",
}  # fmt: skip

PARTITION, SPEED, LINK = "population.partition=", "population.step_seconds=", "population.up_bytes_per_second="
AVAILABILITY = "population.availability="
PATTERN = (
    "algorithms={{ mine = {{ algorithm = 'async_comm_sgd', pattern = {{ name = 'own.py:{}', longest_gap = 2 }} }} }}"
)

# What is wrong, as --set; and what the line says.
SETTINGS: list[tuple[list[str], list[str]]] = [
    # keys, names and ranges
    (["local.lrr=1"], ["tiny.toml: unknown key local.lrr", "did you mean 'lr'?"]),
    (["lokal.lr=1"], ["unknown key lokal", "did you mean 'local'?"]),
    (["local.lr=-1"], ["tiny.toml: local.lr = -1", "greater than 0"]),
    (["local.lr=fast"], ["local.lr = 'fast'", "number"]),
    (["stop={}"], ["stop: set virtual_seconds, versions or updates"]),
    (["seeds=[1, 1]"], ["seeds = [1, 1]", "all different"]),
    (["data.name=digit"], ["data.name = 'digit'", "did you mean 'digits'?", "import path"]),
    (["model.name=mpl"], ["model.name = 'mpl'", "'mlp'"]),
    (["model.loss=entropy"], ["model.loss = 'entropy'", "did you mean 'cross_entropy'?"]),
    (["evaluate.metrics=['acuracy']"], ["evaluate.metrics", "did you mean 'accuracy'?"]),
    (["algorithms.fedbuf.cohort=1"], ["algorithms.fedbuf: unknown algorithm 'fedbuf'", "did you mean 'fedbuff'?"]),
    (["algorithms.fedavg.kohort=1"], ["algorithms.fedavg: unknown key 'kohort'", "did you mean 'cohort'?"]),
    (["algorithms.fedavg.cohort=21"], ["algorithms.fedavg: cohort", "21"]),
    (["algorithms.fedavg.local.lr=0"], ["algorithms.fedavg.local.lr = 0", "greater than 0"]),
    (["name=../up"], ["name = '../up'", "names a folder"]),
    # --set itself
    (["local.lr"], ["--set local.lr", "section.key=value"]),
    (["=3"], ["--set =3", "section.key=value"]),
    (["local.lr.x=3"], ["--set local.lr.x=3", "lr is a value, not a section"]),
    # clients that do not come back
    (["server={}"], ["population.lossy needs server.lease_seconds"]),
    (["population.when_away=lose", "server={}", "population.lossy.probability=0.5"], ["needs server.lease_seconds"]),
    # the data
    (["population.clients=2000"], ["population.partition: 2000 clients cannot share 1433 examples"]),
    ([PARTITION + "{ name = 'one_class' }", "population.clients=5", "algorithms={ fedbuff = { concurrency = 5 } }"],
     ["population.partition: 5 clients cannot hold one class each of 10", "10 clients or more"]),
    ([PARTITION + "{ name = 'by_user' }"], ["population.partition: digits does not say which user"]),
    ([PARTITION + "{ name = 'by_user' }", "data={ name = 'own.py:data', arguments = { users = true } }"],
     ["population.partition: 20 clients cannot be made from 4 users"]),
    ([PARTITION + "{ name = 'file', path = 'nowhere.csv' }"], ["population.partition: cannot read", "nowhere.csv"]),
    ([PARTITION + "{ name = 'file', path = 'index.csv' }"], ["population.partition: ", "client 19 has no examples"]),
    ([PARTITION + "{ name = 'file', path = 'twice.csv' }"], ["twice.csv, row 202", "example 7", "already given"]),
    ([PARTITION + "{ name = 'file', path = 'far.csv' }"], ["far.csv, row 202", "example is 1433"]),
    ([PARTITION + "{ name = 'file', path = 'words.csv' }"], ["words.csv, row 2", "a whole number", "'first'"]),
    ([PARTITION + "{ name = 'file', path = 'empty.csv' }"], ["empty.csv", "no column 'client'"]),
    (["data={ name = 'own.py:data', arguments = { train = 9 } }"], ["20 clients cannot share 9 examples"]),
    (["data={ name = 'own.py:data', arguments = { labels = 12 } }", "model.name=own.py:Linear"],
     ["labels go up to 11", "10 outputs"]),
    (["data={ name = 'own.py:data', arguments = { inputs = [1, 7, 7] } }", "model={ name = 'own.py:Linear' }"],
     ["the model cannot take inputs of shape (", "1, 7, 7)"]),
    (["data={ name = 'own.py:data', arguments = { nan = true } }"], ["NaN or infinity", "train example 3"]),
    (["data={ name = 'own.py:data', arguments = { inputz = 3 } }"],
     ["data '", "own.py:data' does not accept the argument 'inputz'", "did you mean 'inputs'?"]),
    (["data.arguments={ train = 9 }"], ["data: arguments are for a function of your own"]),
    (["data.name=own.py:one_data"], ["own.py:one_data: got a value of type TensorDataset", "pair (train, test)"]),
    (["data.name=own.py:nothing"], ["got a value of type NoneType", "pair (train, test)"]),
    (["data.name=own.py:uneven"], ["train example 1", "(3,)", "(2,)"]),
    (["data.name=own.py:negative"], ["labels out of range", "train example 1 has -1"]),
    (["data.name=own.py:out_of_range"], ["labels out of range", "train example 5 has 5", "0 … 4"]),
    # tokens and pictures
    (["model={ name = 'lstm' }"], ["model.name = 'lstm': digits holds no tokens"]),
    (["data={ name = 'own.py:data', arguments = { integer = true } }"], ["model.name = 'softmax'", "holds tokens"]),
    (["data={ name = 'own.py:data', arguments = { integer = true } }", "model={ name = 'cnn' }"],
     ["model.name = 'cnn'", "holds tokens"]),
    (["data={ name = 'own.py:data', arguments = { inputs = [9] } }", "model={ name = 'cnn' }"],
     ["cnn takes images of shape (channels, height, width)", "(9,)"]),
    # import paths
    (["data.name=nowhere.py:load"], ["data.name: ", "nowhere.py:load'", "no such file"]),
    (["data.name=no_such_package.module:load"], ["no such module: no_such_package"]),
    (["model.name=own.py:Nett"], ["model.name: ", "own.py:Nett'", "there is no 'Nett'", "did you mean 'Net'?"]),
    (["model.name=own.py:"], ["model.name = 'own.py:'", "after the colon"]),
    (["model.name=raising.py:Net"], ["raising.py:Net' could not be imported: RuntimeError: on import", "raising.py:2"]),
    (["model.name=broken.py:Net"], ["broken.py:Net' could not be imported: SyntaxError", "broken.py:1"]),
    (["model.name=missing.py:Net"], ["could not be imported: ModuleNotFoundError", "a_module_that_there_is_not"]),
    (["model.name=own.py:three"], ["own.py:three': must be a function or a class", "int"]),
    (["model.name=own.py:Net"], ["model '", "own.py:Net'", "missing a required argument: 'width'"]),
    (["model={ name = 'own.py:Net', arguments = { hidden = 3 } }"], ["does not accept the argument 'hidden'", "width"]),
    (["model={ name = 'own.py:Net', arguments = { width = 3 } }"], ["the model has nothing to train"]),
    (["model.name=own.py:nothing"], ["model.name: ", "own.py:nothing made a NoneType, not a torch.nn.Module"]),
    (["model.name=own.py:fails"], ["own.py:fails' failed: RuntimeError: a first line", "own.py:"]),
    (["model.name=own.py:leaves"], ["own.py:leaves' failed: SystemExit: 7"]),
    (["model.loss=own.py:losss"], ["model.loss: ", "there is no 'losss'"]),
    (["evaluate.metrics=['own.py:f1']"], ["evaluate.metrics: ", "there is no 'f1'"]),
    (["algorithms.mine.algorithm=own.py:Stronger"], ["algorithms.mine: ", "there is no 'Stronger'"]),
    (["algorithms.mine={ algorithm = 'own.py:Strong', strength = 2.0 }"], ["ValueError: strength is too much"]),
    (["algorithms.mine={ algorithm = 'own.py:Strong', strenght = 1.0 }"], ["did you mean 'strength'?"]),
    (["algorithms.mine.algorithm=own.py:Net"], ["algorithms.mine: ", "subclass of offbeat.algorithms.Algorithm"]),
    # communication patterns
    ([PATTERN.format("later")], ["algorithms.mine: pattern.name: ", "own.py:later': there is no 'later'"]),
    ([PATTERN.format("three")], ["algorithms.mine: pattern.name: ", "must be a function"]),
    ([PATTERN.format("nothing")], ["pattern ", "own.py:nothing failed for client 0 after round 0: TypeError"]),
    ([PATTERN.format("soon")], ["own.py:soon: client ", "is to talk next in round 3.5", "greater than 3"]),
    ([PATTERN.format("back")], ["own.py:back: client ", "is to talk next in round 3, ", "greater than 3"]),
    ([PATTERN.format("lost")], ["own.py:lost failed for client ", "after round 4: IndexError", "own.py:"]),
    # compression
    (["local.compression={ name = 'sign' }"], ["algorithms.fedasync: ", "whole models", "compress"]),
    (["local.compression={ name = 'topk' }"], ["local.compression.name = 'topk'", "did you mean 'top_k'?"]),
    (["local.compression={ name = 'random_k', share = 0.1 }", "local.error_feedback=true"],
     ["algorithms.fedavg: error_feedback needs a compressor that is a contraction", "random_k"]),
    # model, loss and metrics
    (["model={ name = 'own.py:Linear', arguments = { outputs = 5 } }"], ["labels go up to 9", "5 outputs"]),
    (["model={ name = 'own.py:Linear', arguments = { inputs = 9 } }"], ["the model cannot take inputs"]),
    (["model.name=own.py:Normed"], ["BatchNorm1d statistics", "GroupNorm", 'model.batch_norm = "local"']),
    (["model.loss=own.py:per_example"], ["the loss must be the mean over the minibatch", "shape ()"]),
    (["model.loss=own.py:number_loss"], ["the loss must be the mean over the minibatch", "float"]),
    (["model.loss=own.py:detached"], ["no gradient of the loss reaches any parameter"]),
    (["model.loss=own.py:one_argument"], ["the loss cannot take outputs", "TypeError"]),
    (["model.loss=mse"], ["mse needs labels of the outputs' shape"]),
    (["evaluate.metrics=['own.py:nan_metric']"], ["the metric nan_metric is nan"]),
    (["evaluate.metrics=['own.py:table_metric']"], ["the metric table_metric must be one number"]),
    (["evaluate.metrics=['own.py:failing_metric']"], ["the metric failing_metric failed: ValueError: no"]),
    # files of devices
    ([SPEED + "{ distribution = 'file', path = 'nowhere.csv' }"], ["population.step_seconds: cannot read", "nowhere"]),
    ([SPEED + "{ distribution = 'file', path = 'few.csv' }"], ["few.csv has 2 rows", "20 clients"]),
    ([SPEED + "{ distribution = 'file', path = 'zero.csv' }"], ["zero.csv, row 9: step_seconds is 0.0", "above 0"]),
    ([SPEED + "{ distribution = 'file', path = 'text.csv' }"], ["text.csv", "fast"]),
    ([SPEED + "{ distribution = 'file', path = 'empty.csv' }"], ["empty.csv", "no column 'step_seconds'"]),
    ([SPEED + "{ distribution = 'file', path = 'speeds.csv', column = 'speed' }"], ["no column 'speed'", "other"]),
    ([SPEED + "{ distribution = 'phones', path = 'phones.json', median = 1.0 }"], ["phone", "AI_Score"]),
    ([SPEED + "{ distribution = 'phones', path = 'broken.json', median = 1.0 }"], ["cannot read", "broken.json"]),
    ([SPEED + "{ distribution = 'trace', path = 'trace.log' }"], ["population.step_seconds.distribution = 'trace'"]),
    ([LINK + "{ distribution = 'trace', path = 'nowhere' }"], ["population.up_bytes_per_second: ", "nowhere"]),
    ([LINK + "{ distribution = 'trace', path = 'trace.log' }"], ["trace.log, line 3", "must rise"]),
    ([LINK + "{ distribution = 'trace', path = 'short.log' }"], ["short.log", "at least two"]),
    # files of availability
    ([AVAILABILITY + "{ name = 'intervals', path = 'nowhere.csv' }"], ["population.availability: ", "nowhere.csv"]),
    ([AVAILABILITY + "{ name = 'intervals', path = 'order.csv' }"], ["order.csv, row 4", "client 0", "sort them"]),
    ([AVAILABILITY + "{ name = 'intervals', path = 'backwards.csv' }"], ["row 2: end_seconds is 10.0", "above"]),
    ([AVAILABILITY + "{ name = 'intervals', path = 'stranger.csv' }"], ["row 2: client is 20", "0 … 19"]),
    ([AVAILABILITY + "{ name = 'intervals', path = 'empty.csv' }"], ["empty.csv", "no column 'client'"]),
    ([AVAILABILITY + "{ name = 'alternating', period_seconds = 0 }"], ["period_seconds = 0", "greater than 0"]),
]  # fmt: skip

# What the user types otherwise.
COMMANDS: list[tuple[list[str], list[str]]] = [
    ([], ["--help"]),
    (["rum", "tiny.toml"], ["'rum'", "--help"]),
    (["run"], ["FILE", "--help"]),
    (["run", "tiny.toml", "--bogus"], ["--bogus", "--help"]),
    (["run", "nowhere.toml"], ["no such file: nowhere.toml"]),
    (["run", "."], ["cannot read ."]),
    (["run", "list.toml"], ["list.toml is not valid TOML"]),
    (["run", "nothing.toml"], ["sections", "are missing"]),
    (["run", "tiny.toml", "--algorithm", "fedbuf"], ["--algorithm fedbuf", "did you mean 'fedbuff'?"]),
    (["run", "tiny.toml", "--output", "tiny.toml/x"], ["cannot write into tiny.toml/x", "--output"]),
    (["run", "tiny.toml", "--output", "tiny.toml"], ["cannot write into tiny.toml", "--output"]),
    (["run", "tiny.toml", "--resume", "--replace"], ["--resume", "--replace", "leave one of them out"]),
    (["run", "tiny.toml", "--jobs", "0"], ["--jobs", "0"]),
    (["run", "tiny.toml", "--checkpoint-every", "0"], ["--checkpoint-every", "0"]),
    (["run", "tiny.toml", "--checkpoint-every", "nan"], ["--checkpoint-every nan", "finite"]),
    (["run", "tiny.toml", "--set", "local.lr=0.5", "--output", "done"], ["done/fedavg-seed1", "other settings"]),
    (["run", "tiny.toml", "--resume", "--output", "old"], ["checkpoint of format 0", "format 4", "without --resume"]),
    (["report"], ["RUN", "--help"]),
    (["report", "nowhere"], ["cannot read nowhere"]),
    (["report", "empty"], ["empty holds no runs"]),
    (["report", "tiny.toml"], ["cannot read tiny.toml"]),
    (["report", "done", "--output", "tiny.toml"], ["tiny.toml"]),
    (["report", "torn"], ["torn/fedavg-seed1 is not a run: events.parquet is missing"]),
    (["population", "nowhere.toml"], ["no such file: nowhere.toml"]),
    (["population", "tiny.toml", "--set", "population.clients=2000"], ["population.partition: 2000 clients"]),
    (["population", "tiny.toml", "--output", "tiny.toml"], ["tiny.toml"]),
    (["data", "get", "mnits"], ["unknown data set 'mnits'", "did you mean 'mnist'?"]),
    (["data", "get"], ["NAME", "--help"]),
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
@pytest.mark.parametrize(("changes", "parts"), SETTINGS, ids=lambda value: "; ".join(value)[:60])
def test_a_wrong_setting(changes: list[str], parts: list[str], offbeat: Callable[..., tuple[int, str, str]]) -> None:
    # Its own population is small enough for the data of own.py.
    sets = [word for change in ("stop.virtual_seconds=5", *changes) for word in ("--set", change)]
    check(offbeat("run", "tiny.toml", *sets), parts)


@pytest.mark.parametrize(("arguments", "parts"), COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_a_wrong_command(
    arguments: list[str], parts: list[str], folder: Path, offbeat: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "empty").mkdir()
    if {"done", "torn", "old"} & set(arguments):
        small = ("run", "tiny.toml", "--algorithm", "fedavg")
        for output in ("done", "torn", "old"):
            assert offbeat(*small, "--output", output)[0] == 0
        (folder / "torn" / "fedavg-seed1" / "events.parquet").unlink()
        run = folder / "old" / "fedavg-seed1"
        run.rename(unfinished_path(run))
        save_file({"x": zeros(1)}, unfinished_path(run) / "checkpoint.safetensors", {"format": "0"})
    check(offbeat(*arguments), parts)


def test_nothing_was_written_by_a_wrong_setting(folder: Path, offbeat: Callable[..., tuple[int, str, str]]) -> None:
    """It is found before the first run, of whichever algorithm."""
    check(offbeat("run", "tiny.toml", "--set", "algorithms.fedavg.cohort=21"), ["cohort"])
    assert [path.name for path in (folder / "runs" / "tiny").iterdir()] == []


def test_a_folder_of_data_that_is_none(
    folder: Path, offbeat: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFBEAT_DATA", str(folder / "nowhere"))
    check(offbeat("run", "tiny.toml", "--set", "data.name=mnist"), ["OFFBEAT_DATA", "nowhere", "not a folder"])
    check(offbeat("data", "list"), ["OFFBEAT_DATA", "not a folder"])


def test_data_that_are_only_partly_there(
    folder: Path, offbeat: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mnist").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(np.zeros(3).tobytes())
    monkeypatch.setenv("OFFBEAT_DATA", str(folder))
    check(offbeat("run", "tiny.toml", "--set", "data.name=mnist"), ["only part of", "train-labels-idx1-ubyte.gz"])
