"""Tests of the objects that the options of ``offbeat join --flower`` name."""

import numpy as np
import pytest
from digits_app.task import make_model
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan

from offbeat.cli import client as client_commands
from offbeat.flower.client_app import FlowerClient
from offbeat.flower.model_arrays import ModelArrays

APP = "digits_app.client_app:app"
PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


def test_the_app_of_the_example_is_loaded_and_trains(examples, monkeypatch):
    monkeypatch.chdir(examples)
    app = client_commands._load_app(APP, "local-epochs=2", "num-partitions=10", "digits_app.task:make_model")
    arrays = ModelArrays(make_model())
    result = app.train(3, arrays.named(arrays.vector), PLAN, 0, None)
    assert result.examples == 180
    assert np.isfinite(result.loss)
    assert isinstance(client_commands._make_client(None, APP, None, None, None)(3), FlowerClient)


def test_mistakes_are_one_line(examples, monkeypatch):
    monkeypatch.chdir(examples)
    for path, settings, model, message in (
        ("digits_app.client_app:ap", None, None, "there is no 'ap': did you mean 'app'"),
        (APP, "epochs=2", None, "--run-config epochs: .* has no such setting"),
        (APP, None, "digits_app.task:accuracy", "--flower-model .*accuracy"),
    ):
        with pytest.raises(OffbeatError, match=message):
            client_commands._load_app(path, settings, None, model)
