import math
from pathlib import Path

import numpy as np
import pytest

from offbeat.config import experiment_file
from offbeat.data import MissingDataError
from offbeat.data.builtin import sst2
from offbeat.runs.run_all import run_all
from tests.examples.both_worlds import assert_both_worlds_agree, function, small_server_file

EXAMPLE = Path(__file__).parents[3] / "examples" / "language_model"
SMALL = {"train_examples": 60, "test_examples": 10, "length": 16}


@pytest.fixture(autouse=True)
def transformers():
    pytest.importorskip("transformers", exc_type=ImportError)


@pytest.fixture
def offline(monkeypatch):
    def missing():
        raise MissingDataError("cannot download SST-2")

    monkeypatch.setattr(sst2, "sentences", missing)


def test_both_worlds_come_to_the_same_model(offline, tmp_path, monkeypatch):
    file, make = small_server_file(EXAMPLE, tmp_path / "server.toml", monkeypatch, SMALL)
    served = assert_both_worlds_agree(file, make, tmp_path)
    assert list(served.clients[0].metrics) == ["accuracy", "perplexity"]


def test_the_experiment_learns(offline, tmp_path, quiet):
    changes = ["stop.updates=60", "data.arguments.train_examples=300", "local.lr=0.01", "evaluate.every_versions=3"]
    experiment = experiment_file.load(EXAMPLE / "experiment.toml", changes)
    (run,) = run_all(experiment, ["fedavg"], tmp_path / "runs", quiet)
    history = run.history
    assert history["accuracy"][0] < 0.1 < 0.2 < history["accuracy"][-1]
    # Of 32 equally likely tokens at first. The perplexity is the exponential of this loss, which ignores padding.
    assert history["perplexity"][0] == pytest.approx(32, rel=0.1)
    assert history["perplexity"] == pytest.approx([math.exp(loss) for loss in history["loss"]], rel=1e-4)
    assert history["perplexity"][-1] < 16


def test_letters_and_their_labels(offline, caplog):
    data = function(EXAMPLE / "letters.py", "data")
    dataset = data(users=3, **SMALL)
    assert "going on with made-up sentences instead" in caplog.text
    inputs, labels = dataset.train_inputs["input_ids"], dataset.train_labels
    assert np.array_equal(labels, np.where(inputs == 0, -100, inputs))
    assert dataset.classes is None
    assert 2 < inputs.max() < dataset.tokens == 32
    lengths = [(labels[dataset.users == user] != -100).sum(axis=1) for user in range(3)]
    assert lengths[0].max() <= lengths[1].max() <= lengths[2].min() + 16
    assert np.bincount(dataset.users).tolist() == [20, 20, 20]


def test_sentences_of_sst2(monkeypatch):
    both = (["It 's a Film !", "no"], np.array([1, 0])), (["ok"], np.array([1]))
    monkeypatch.setattr(sst2, "sentences", lambda: both)
    dataset = function(EXAMPLE / "letters.py", "data")(users=2, length=6)
    # i t, space, apostrophe s, space: 1 is the space, 2 the letter a, 30 the apostrophe.
    assert dataset.train_inputs["input_ids"].tolist() == [[10, 21, 1, 30, 20, 1], [15, 16, 0, 0, 0, 0]]
    assert dataset.users.tolist() == [1, 0]
