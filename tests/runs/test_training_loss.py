import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import offbeat
from offbeat.report.metrics import measures_of
from offbeat.runs.run_all import run_all
from offbeat.training.models import softmax_regression


def loss_of(tensors, inputs, labels):
    model = softmax_regression((1, 8, 8), 10)
    model.load_state_dict(tensors)
    with torch.no_grad():
        return cross_entropy(model(torch.from_numpy(inputs)), torch.from_numpy(labels)).item()


def test_is_the_loss_of_the_model_on_the_training_set(experiment, progress, digits, tmp_path):
    here = experiment("evaluate.metrics=['training_loss', 'accuracy']")
    (run,) = run_all(here, ["fedavg"], tmp_path / "out", progress(here))
    main, accuracy, loss = measures_of(run)
    assert (main.name, main.higher_is_better, accuracy.name, loss.name) == ("training_loss", False, "accuracy", "loss")
    tensors = load_file(run.path / "model.safetensors")
    for column, inputs, labels in [
        ("training_loss", digits.train_inputs, digits.train_labels),
        ("loss", digits.test_inputs, digits.test_labels),
    ]:
        assert run.history[column][-1] == pytest.approx(loss_of(tensors, inputs, labels), rel=1e-5)


def test_python_has_it_too(digits):
    table = offbeat.simulate(
        lambda: softmax_regression((1, 8, 8), 10), digits, "fedavg", population=12,
        local={"steps": 2, "batch_size": 8, "lr": 0.1}, evaluate_every_seconds=10.0, virtual_seconds=20.0,
        metrics=["training_loss", "accuracy"], progress=False,
    )  # fmt: skip
    assert {"training_loss", "accuracy", "loss"} <= set(table.columns)
    assert table["training_loss"].iloc[-1] < table["training_loss"].iloc[0]
    assert not table["training_loss"].equals(table["loss"])
