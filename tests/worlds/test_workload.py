"""Data, models and objectives from their sections."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn.functional import cross_entropy

from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import softmax_regression
from offbeat.training.objectives import LOSSES, METRICS
from offbeat.training.workload import Examples, Objective, Workload
from offbeat.worlds.workload import (
    as_examples,
    build_dataset,
    build_model,
    build_objective,
    build_workload,
    fits_on_device,
)

Load = Callable[..., Experiment]


class TestDataset:
    def test_built_in(self, experiment: Load, digits: Dataset) -> None:
        dataset = build_dataset(experiment().data)
        assert dataset.name == "digits"
        assert np.array_equal(dataset.train_inputs, digits.train_inputs)

    def test_of_the_user_with_arguments(self, experiment: Load, own: str) -> None:
        dataset = build_dataset(experiment(f"data.name={own}:data", "data.arguments={ examples = 50 }").data)
        assert dataset.name == f"{Path(own).resolve()}:data"
        assert dataset.train_labels.tolist() == [*range(10)] * 5
        assert dataset.classes == 10

    def test_ragged_examples_need_collate(self, experiment: Load, own: str) -> None:
        with pytest.raises(
            OffbeatError, match=r"train example 1: the input\.input_ids has shape \(2,\), .*data\.collate"
        ):
            build_dataset(experiment(f"data.name={own}:ragged").data)
        section = experiment(f"data.name={own}:ragged", f"data.collate={own}:pad").data
        dataset = build_dataset(section)
        train, test = as_examples(dataset)
        for part in (train, test):
            assert isinstance(part.inputs, dict)
            assert part.inputs["input_ids"].tolist() == [[1, 0, 0], [1, 2, 0], [1, 2, 3]]
            assert part.inputs["attention_mask"].sum(dim=1).tolist() == [1, 2, 3]
        assert isinstance(train.inputs, dict)
        assert isinstance(dataset.train_inputs, dict)
        assert np.shares_memory(train.inputs["input_ids"].numpy(), dataset.train_inputs["input_ids"])

    @pytest.mark.parametrize(
        ("name", "line"),
        [("fail", "data.collate: .*there is no 'fail'"), ("fails", "data.collate failed: KeyError: .*own.py:")],
    )
    def test_a_collate_that_fails_is_one_line(self, name: str, line: str, experiment: Load, own: str) -> None:
        with pytest.raises(OffbeatError, match=f"^{line}"):
            build_dataset(experiment(f"data.name={own}:ragged", f"data.collate={own}:{name}").data)


class TestObjective:
    def test_built_in(self) -> None:
        objective = build_objective("bce", ["mae", "training_loss", "accuracy"])
        assert objective.loss is LOSSES["bce"]
        assert list(objective.metrics) == ["mae", "accuracy"]
        assert objective.metrics["mae"] is METRICS["mae"].function
        assert objective.training_loss
        assert not build_objective("bce", ["mae"]).training_loss

    def test_of_the_user(self, own: str) -> None:
        objective = build_objective(f"{own}:hinge", [f"{own}:top_two", "mae"])
        outputs, labels = torch.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 0])
        assert objective.loss(outputs, labels).item() == pytest.approx((3 / 3 + 5 / 3) / 2)
        assert list(objective.metrics) == ["top_two", "mae"]
        assert objective.metrics["top_two"](outputs, labels) == 0.5

    @pytest.mark.parametrize(
        ("loss", "metric", "key"), [("{}:hing", "mae", "model.loss"), ("mse", "{}:top", "evaluate.metrics")]
    )
    def test_a_missing_function_is_an_error_with_the_key(self, loss: str, metric: str, key: str, own: str) -> None:
        with pytest.raises(OffbeatError, match=rf"^{key}: .*own\.py:.*there is no"):
            build_objective(loss.format(own), [metric.format(own)])


class TestModel:
    @pytest.mark.parametrize(
        ("model", "parameters"),
        [
            ("{ name = 'softmax' }", 64 * 10 + 10),
            ("{ name = 'mlp' }", 64 * 128 + 128 + 1290),
            ("{ name = 'mlp', hidden = [5, 3] }", 64 * 5 + 5 + 5 * 3 + 3 + 3 * 10 + 10),
            ("{ name = 'cnn' }", 32 * 9 + 32 + 64 * 32 * 9 + 64 + 64 * 64 * 9 + 64 + 64 * 4 * 64 + 64 + 650),
            ("{ name = 'OWN:Net', arguments = { width = 4 } }", 64 * 4 + 4 + 4 * 10 + 10),
        ],
    )
    def test_each_kind_has_its_parameters(
        self, model: str, parameters: int, experiment: Load, digits: Dataset, own: str
    ) -> None:
        built = build_model(experiment(f"model={model.replace('OWN', own)}").model, digits, 1)
        assert built.vector.shape == (parameters,)
        assert built.module(torch.from_numpy(digits.test_inputs[:7])).shape == (7, 10)

    def test_resnet(self, experiment: Load, digits: Dataset) -> None:
        model = build_model(experiment("model={ name = 'resnet18' }").model, digits, 1)
        assert model.module(torch.from_numpy(digits.test_inputs[:2])).shape == (2, 10)

    def test_lstm_has_the_vocabulary_of_the_data(self, experiment: Load, tokens: Callable[[int], Dataset]) -> None:
        model = build_model(experiment("model={ name = 'lstm', hidden = 3, embedding = 4 }").model, tokens(11), 1)
        assert model.named(model.vector)["embedding.weight"].shape == (11, 4)
        assert model.module(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 2)

    def test_without_classes_there_is_an_output_for_each_target(self, experiment: Load) -> None:
        values, targets = np.zeros((4, 3), np.float32), np.zeros((4, 2, 3), np.float32)
        dataset = Dataset("numbers", values, targets, values, targets, None)
        assert build_model(experiment().model, dataset, 1).module(torch.zeros(1, 3)).shape == (1, 6)

    @pytest.mark.parametrize("name", ["{ name = 'mlp', hidden = [5] }", "{ name = 'OWN:Net' }"])
    def test_initial_values_come_from_the_seed(self, name: str, experiment: Load, digits: Dataset, own: str) -> None:
        section = experiment(f"model={name.replace('OWN', own)}").model
        one, again, other = (build_model(section, digits, seed).vector for seed in (1, 1, 2))
        assert torch.equal(one, again)
        assert not torch.equal(one, other)

    def test_softmax_begins_at_zero(self, experiment: Load, digits: Dataset) -> None:
        assert not build_model(experiment().model, digits, 1).vector.any()

    @pytest.mark.parametrize(
        ("model", "data", "content"),
        [("lstm", "digits", "no tokens"), ("mlp", "words", "tokens"), ("cnn", "words", "tokens")],
    )
    def test_texts_and_images_need_models_of_their_own(
        self, model: str, data: str, content: str, experiment: Load, digits: Dataset, tokens: Callable[[int], Dataset]
    ) -> None:
        dataset = digits if data == "digits" else tokens(11)
        with pytest.raises(OffbeatError, match=rf"model\.name = '{model}': {data} holds {content}; use another model"):
            build_model(experiment(f"model={{ name = '{model}' }}").model, dataset, 1)

    def test_built_in_models_take_one_input(self, experiment: Load, own: str) -> None:
        here = experiment(f"data.name={own}:ragged", f"data.collate={own}:pad")
        with pytest.raises(
            OffbeatError,
            match=r"^model\.name = 'softmax': .* by name \(input_ids, attention_mask\): use a model of your",
        ):
            build_model(here.model, build_dataset(here.data), 1)

    def test_batch_norm_is_refused_or_local(self, experiment: Load, digits: Dataset, own: str) -> None:
        model = f"model={{ name = '{own}:normed' }}"
        with pytest.raises(OffbeatError, match=r"model\.batch_norm = \"local\""):
            build_model(experiment(model).model, digits, 1)
        assert build_model(experiment(model, "model.batch_norm=local").model, digits, 1).vector.shape == (2 * 64 + 650,)

    def test_of_the_user_must_be_a_module(self, experiment: Load, digits: Dataset, own: str) -> None:
        with pytest.raises(OffbeatError, match=r"model\.name: .*own\.py:number made a int, not a torch\.nn\.Module"):
            build_model(experiment(f"model={{ name = '{own}:number' }}").model, digits, 1)

    def test_a_built_in_model_needs_data(self, experiment: Load, own: str) -> None:
        with pytest.raises(OffbeatError, match=r"^model\.name = 'softmax': its size depends on the data"):
            build_model(experiment().model, None, 1)
        assert build_model(experiment(f"model={{ name = '{own}:Net' }}").model, None, 1).vector.shape == (235,)


class TestWorkload:
    def test_holds_what_the_experiment_says(self, experiment: Load, digits: Dataset) -> None:
        here = experiment("model.loss=mse", "evaluate.metrics=['mae']", "data.augmentation=crop-and-flip")
        shards = [np.arange(5), np.arange(5, 7)]
        workload = build_workload(here, digits, shards, 3)
        assert [workload.examples(client) for client in (0, 1)] == [5, 2]
        assert workload.test is not None
        assert np.shares_memory(workload.train.inputs.numpy(), digits.train_inputs)
        assert np.shares_memory(workload.train.labels.numpy(), digits.train_labels)
        assert np.shares_memory(workload.test.inputs.numpy(), digits.test_inputs)
        assert np.shares_memory(workload.test.labels.numpy(), digits.test_labels)
        assert workload.seed == 3
        assert torch.equal(workload.model.vector, build_model(here.model, digits, 3).vector)
        assert workload.objective == Objective(LOSSES["mse"], {"mae": METRICS["mae"].function})
        assert workload.augmentation == "crop-and-flip"

    @pytest.mark.parametrize("training_loss", [False, True])
    def test_evaluates_on_the_test_set(self, training_loss: bool, experiment: Load, digits: Dataset) -> None:
        """A softmax model of zeros says ln 10 everywhere, and that each example is a 0."""
        metrics = ["accuracy", "training_loss"] if training_loss else ["accuracy"]
        workload = build_workload(experiment(f"evaluate.metrics={metrics}"), digits, (), 1)
        loss, values = workload.evaluator()(torch.zeros(650))
        assert loss == pytest.approx(np.log(10))
        expected = {"accuracy": pytest.approx((digits.test_labels == 0).mean())}
        assert values == expected | ({"training_loss": pytest.approx(np.log(10))} if training_loss else {})


CUDA = Accelerator(torch.device("cuda"))


@pytest.fixture
def placed() -> Workload:
    """A workload whose examples take 1,000 bytes."""
    with torch.random.fork_rng(devices=[]):
        model = FlatModel(softmax_regression((8,), 2))
    train = Examples(torch.zeros(20, 8), torch.zeros(20, dtype=torch.int64))
    test = Examples(torch.zeros(5, 8), torch.zeros(5, dtype=torch.int64))
    return Workload(model, Objective(cross_entropy), train, [np.arange(20)], 1, test=test)


@pytest.mark.parametrize(("free", "fits"), [(2000, True), (1999, False)])
def test_automatically_the_data_take_at_most_half_of_the_free_memory(placed, monkeypatch, free, fits):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**9))
    assert fits_on_device(placed, CUDA, "auto") is fits


def test_a_choice_is_kept_and_without_a_gpu_there_is_none(placed):
    assert fits_on_device(placed, CUDA, "always")
    assert not fits_on_device(placed, CUDA, "never")
    assert fits_on_device(placed, CPU, "auto")
