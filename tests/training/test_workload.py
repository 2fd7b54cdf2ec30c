from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import accuracy
from offbeat.training.workload import Examples, Objective, Workload, as_tensor
from tests.training.separate_devices import META

EXAMPLES = Examples(torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))


class Frozen(torch.nn.Module):
    """A layer with a trained, a frozen and a buffered tensor."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2))
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("shift", torch.zeros(2))

    def forward(self, inputs):
        return inputs @ self.weight * self.frozen + self.shift


@pytest.fixture
def workload():
    objective = Objective(cross_entropy, {"size": lambda outputs, labels: len(outputs)})
    return Workload(FlatModel(Frozen()), objective, EXAMPLES, [np.arange(4), np.array([4, 5])], 1, test=EXAMPLES)


def test_the_accuracy_of_each_label_is_that_of_the_test_set(workload):
    measures_accuracy = replace(workload, objective=Objective(cross_entropy, {"accuracy": accuracy}))
    # The first output is the larger one, or, for the inputs (0, 1), its equal: label 0 everywhere.
    vector = torch.tensor([2.0, 1, 1, 1])
    assert measures_accuracy.accuracy_by_label(vector) == {"0": 1.0, "1": 0.0}
    assert measures_accuracy.accuracy_by_label(vector * torch.nan) == {}
    assert workload.accuracy_by_label(vector) == {}
    assert replace(measures_accuracy, test=None).accuracy_by_label(vector) == {}


def test_a_minibatch_is_a_copy(workload):
    inputs, labels = workload.minibatch(torch.tensor([[1, 5], [0, 1]]))
    assert inputs.tolist() == [[[2, 3], [10, 11]], [[0, 1], [2, 3]]]
    assert labels.tolist() == [[1, 1], [0, 1]]
    inputs.zero_()
    assert EXAMPLES.inputs[1].tolist() == [2, 3]


def test_it_moves_with_all_tensors_of_the_model(workload):
    moved = workload.to(META)
    module = moved.model.module
    tensors = [moved.model.vector, moved.model.gradient, *module.parameters(), *module.buffers()]
    tensors += [*moved.train, *moved.test, *moved.minibatch(torch.tensor([0]))]
    assert {tensor.device for tensor in tensors} == {META.device}
    assert moved.accelerator is META
    assert (moved.seed, moved.shards, moved.objective) == (workload.seed, workload.shards, workload.objective)
    moved.model.load(moved.model.vector)  # with its buffers


def test_data_that_stay_are_copied_as_minibatches(workload):
    moved = workload.to(META, with_data=False)
    assert {tensor.device.type for tensor in (*moved.train, *moved.test)} == {"cpu"}
    assert {tensor.device for tensor in moved.minibatch(torch.tensor([0]))} == {META.device}


def test_where_it_is_already_nothing_is_copied(workload):
    moved = workload.to(CPU)
    assert moved.model is workload.model
    assert moved.train.inputs is workload.train.inputs


def test_the_evaluation_is_in_the_precision_of_the_accelerator(workload):
    model = torch.tensor([0.1, 0.7, 0.3, -0.2])
    exact, metrics = workload.evaluator()(model)
    rounded, _ = workload.to(Accelerator(torch.device("cpu"), "bf16")).evaluator()(model)
    assert metrics == {"size": 6}
    assert 0 < abs(exact - rounded) < 0.01


def test_a_tensor_shares_a_read_only_array():  # without a warning
    array = np.arange(3.0)
    array.setflags(write=False)
    assert as_tensor(array).data_ptr() == array.ctypes.data


def test_the_bytes_of_examples():
    assert EXAMPLES.nbytes == 12 * 4 + 6 * 8


WORDS = Examples({"a": torch.arange(12).view(6, 2), "b": torch.arange(6.0) > 2}, EXAMPLES.labels)


def test_examples_by_name_are_taken_and_moved_together():
    taken = WORDS.take(torch.tensor([[5, 0]]))
    assert taken.inputs["a"].tolist() == [[[10, 11], [0, 1]]]
    assert taken.inputs["b"].tolist() == [[True, False]]
    assert taken.labels.tolist() == [[1, 0]]
    moved = WORDS.to(META.device)
    assert {tensor.device for tensor in (*moved.inputs.values(), moved.labels)} == {META.device}
    assert WORDS.nbytes == 12 * 8 + 6 + 6 * 8


def test_all_inputs_by_name_are_pinned_for_a_gpu(workload, monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.dtype) or tensor)
    monkeypatch.setattr(Examples, "to", lambda examples, device: examples)
    on_gpu = replace(workload, train=WORDS, accelerator=Accelerator(torch.device("cuda")))
    assert on_gpu.minibatch(torch.tensor([1])).labels.tolist() == [1]
    assert pinned == [torch.int64, torch.bool, torch.int64]


def test_a_client_measures_on_its_held_out_examples_alone(workload):
    held = replace(workload, held_out=[np.array([1, 3]), np.array([], np.int64)])
    model = torch.tensor([0.1, 0.7, 0.3, -0.2])
    alone = replace(workload, test=EXAMPLES.take(torch.tensor([1, 3])))
    assert held.measure_on_client(0, model) == alone.evaluator()(model)
    assert held.measure_on_client(0, model)[1] == {"size": 2}


def test_the_training_loss_is_that_of_the_examples_that_are_not_held_out(workload):
    objective = replace(workload.objective, training_loss=True)
    held = replace(workload, objective=objective, held_out=[np.array([1]), np.array([4, 5])])
    model = torch.tensor([0.1, 0.7, 0.3, -0.2])
    alone = replace(workload, test=EXAMPLES.take(torch.tensor([0, 2, 3])))
    assert held.evaluator()(model)[1]["training_loss"] == alone.evaluator()(model)[0]
    everyone = replace(workload, objective=objective)
    loss, metrics = everyone.evaluator()(model)
    assert list(metrics.items()) == [("size", 6), ("training_loss", loss)]


@pytest.mark.parametrize(("limit", "chosen"), [(4, [0, 1, 3, 4]), (6, [0, 1, 2, 3, 4, 5])])
def test_the_training_loss_is_that_of_evenly_spaced_examples(workload, monkeypatch, limit, chosen):
    monkeypatch.setattr("offbeat.training.workload._MOST_TRAINING_EXAMPLES", limit)
    assert workload._some_training_examples().inputs.tolist() == EXAMPLES.inputs[chosen].tolist()
