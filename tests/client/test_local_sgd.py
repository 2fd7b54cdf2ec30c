from dataclasses import replace

import numpy as np
import pytest
import torch
from offbeat_client.visit import Visit
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from offbeat.algorithms.components import LocalPlan
from offbeat.client.local_sgd import LocalSGD
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import METRICS, Objective
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.loop import LoopBackend
from tests.error_line import error_line
from tests.inputs_by_name import Plain, Sentences, named, sentences_of
from tests.training.conftest import made
from tests.workloads import workload_of

PLAN = LocalPlan(steps=5, batch_size=3, lr=(0.5, 0.4, 0.3, 0.2, 0.1), momentum=0.9, clip_norm=2.0)
ADAMW = LocalPlan(steps=5, batch_size=3, lr=0.05, weight_decay=0.1, clip_norm=2.0, optimizer="adamw")
INPUTS = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 2, 3)).astype(np.float32))
LABELS = torch.from_numpy(np.random.default_rng(2).integers(4, size=30))
SHARDS = np.split(np.random.default_rng(3).permutation(30), [7, 11, 22])
LENGTH = 6 * 5 + 5 + 5 * 4 + 4


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Dropout(0.3), nn.Linear(5, 4))


def own_data(client):
    return INPUTS[SHARDS[client]], LABELS[SHARDS[client]]


def simulated(plan, client=2, number=4, offset=None):
    """Return the end of the simulator's training by parameter name, and its loss."""
    model = FlatModel(network())
    start = model.vector.clone()
    trainer = LoopBackend(workload_of(model, inputs=INPUTS, labels=LABELS, shards=SHARDS, seed=5))
    (result,) = trainer.train([Job(client, number, 12, start, plan, "params", offset)])
    return model.named(result.vector), result.loss


def start():
    return {name: tensor.detach().clone() for name, tensor in network().named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("plan", [PLAN, ADAMW])
def test_it_ends_where_the_simulators_client_ends(visit, plan):
    client = LocalSGD(network(), cross_entropy, own_data(2))
    for number in (4, 5):
        fitted = client.fit(start(), visit(plan, number, length=LENGTH))
        model, loss = simulated(plan, number=number)
        assert same(fitted.model, model)
        assert (fitted.examples, fitted.steps, fitted.loss) == (11, 5, loss)
    assert not same(simulated(plan, number=4)[0], model)


def test_the_offset_is_added_to_each_gradient(visit):
    offset = torch.sin(torch.arange(LENGTH) * 1.3)
    client = LocalSGD(network(), cross_entropy, own_data(2))
    parts = dict(reversed(FlatModel(network()).named(offset).items()))  # the server's order is not the module's
    fitted = client.fit(start(), visit(PLAN, length=LENGTH, corrects_gradients=True, offset=parts))
    assert same(fitted.model, simulated(PLAN, offset=offset)[0])
    assert not same(fitted.model, simulated(PLAN)[0])
    assert client.corrects_gradients


def test_arrays_are_as_good_as_tensors(visit):
    inputs, labels = own_data(2)
    client = LocalSGD(network(), cross_entropy, (inputs.numpy(), labels.numpy()))
    assert same(client.fit(start(), visit(PLAN, length=LENGTH)).model, simulated(PLAN)[0])


def test_arrays_of_other_types_are_cast_as_in_a_simulation(visit):
    inputs, labels = own_data(2)
    client = LocalSGD(network(), cross_entropy, (inputs.double().numpy(), labels.int().numpy()))
    assert same(client.fit(start(), visit(PLAN, length=LENGTH)).model, simulated(PLAN)[0])
    held_out = inputs.double(), labels.to(torch.uint8)
    client = LocalSGD(network(), "cross_entropy", own_data(2), held_out=held_out)
    assert client.evaluate(start())[0]["loss"] > 0


def test_images_that_the_model_casts_itself_stay_bytes(visit):
    inputs, labels = own_data(2)
    images = (inputs * 40).to(torch.uint8)
    seen = []

    def look(_, arguments):
        seen.append(arguments[0].dtype)
        return arguments[0].float()

    model = network()
    model.register_forward_pre_hook(look)
    LocalSGD(model, cross_entropy, (images, labels)).fit(start(), visit(PLAN, length=LENGTH))
    assert set(seen) == {torch.uint8}


@pytest.mark.parametrize("form", [list, lambda pairs: TensorDataset(*map(torch.stack, zip(*pairs, strict=True)))])
def test_a_data_set_is_as_good_as_tensors(visit, form):
    data = form(list(zip(*own_data(2), strict=True)))
    client = LocalSGD(network(), cross_entropy, data)
    assert client.examples == 11
    assert same(client.fit(start(), visit(PLAN, length=LENGTH)).model, simulated(PLAN)[0])


@pytest.mark.parametrize("data", [[1, 2, 3], 5])
def test_data_of_another_form_are_one_line(data):
    with pytest.raises(OffbeatError, match=r"^data[ :][^\n]+$"):
        LocalSGD(network(), cross_entropy, data)


def test_sparse_embeddings_train_as_dense_ones_and_tables_are_kept(visit):
    class Tokens(nn.Module):
        def __init__(self, sparse):
            super().__init__()
            self.register_buffer("table", torch.arange(9).flip(0))
            self.embedding, self.output = nn.Embedding(9, 3, sparse=sparse), nn.Linear(3, 4)

        def forward(self, tokens):
            return self.output(self.embedding(self.table[tokens]).mean(dim=1))

    def trained(sparse):
        module = made(lambda: Tokens(sparse))
        client = LocalSGD(module, cross_entropy, (torch.arange(45).reshape(9, 5) % 9, LABELS[:9]))
        fitted = client.fit({name: value.detach().clone() for name, value in module.named_parameters()}, visit())
        assert module.table.tolist() == list(range(8, -1, -1))
        return fitted.model

    assert same(trained(sparse=True), trained(sparse=False))


@pytest.mark.parametrize(
    ("examples", "plan", "reason"),
    [
        (1, PLAN, "on its only example"),
        (7, LocalPlan(steps=1, batch_size=1, lr=0.1), "on one example, since local.batch_size is 1"),
    ],
)
def test_a_minibatch_of_one_example_is_named(visit, examples, plan, reason):
    client = LocalSGD(made(normalising), cross_entropy, (torch.ones(examples, 4), LABELS[:examples]))
    model = {name: value.detach().clone() for name, value in made(normalising).named_parameters()}
    message = error_line(client.fit, model, visit(plan=plan))
    assert f"the model or the loss failed {reason}: ValueError: Expected more than 1 value per channel" in message


def normalising():
    return nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))


@pytest.mark.parametrize("steps", [1, 3])
def test_an_urgent_visit_ends_after_the_step_that_it_is_at(visit, steps):
    here, calls = visit(PLAN, length=LENGTH), 0

    def loss(outputs, labels):
        nonlocal calls
        calls += 1
        if calls == steps:
            here.urgent.set()
        return cross_entropy(outputs, labels)

    fitted = LocalSGD(network(), loss, own_data(2)).fit(start(), here)
    model, last_loss = simulated(PLAN.prefix(steps))
    assert (fitted.steps, fitted.loss) == (steps, last_loss)
    assert same(fitted.model, model)


def test_a_visit_that_is_urgent_from_the_start_takes_one_step(visit):
    here = visit(PLAN, length=LENGTH)
    here.urgent.set()
    assert LocalSGD(network(), cross_entropy, own_data(2)).fit(start(), here).steps == 1


@pytest.mark.parametrize(
    ("change", "name"), [({"1.bias": torch.zeros(9)}, "1.bias"), ({"extra": torch.zeros(1)}, "ex")]
)
def test_another_model_is_named(visit, change, name):
    with pytest.raises(OffbeatError, match=f"another than this module: {name}"):
        LocalSGD(network(), cross_entropy, own_data(2)).fit({**start(), **change}, visit(PLAN, length=LENGTH))


@pytest.mark.parametrize("labels", [3, 0])
def test_examples_need_labels(labels):
    with pytest.raises(OffbeatError, match=f"{labels} labels"):
        LocalSGD(network(), cross_entropy, (INPUTS[: 4 if labels else 0], LABELS[:labels]))


def test_a_loss_that_fails_is_named(visit):
    def loss(outputs, labels):
        raise ZeroDivisionError("mine")

    with pytest.raises(OffbeatError, match="client 2, visit 4: the model or the loss failed: ZeroDivisionError: mine"):
        LocalSGD(network(), loss, own_data(2)).fit(start(), visit(PLAN, length=LENGTH))


@pytest.mark.parametrize("loss", [cross_entropy, "model"])
def test_inputs_by_name_and_the_models_own_loss(visit, loss):
    data = sentences_of((7, 4, 11))
    model, words, mine = made(lambda: FlatModel(Plain())), data["inputs"], data["shards"][2]
    begin = {name: tensor.clone() for name, tensor in model.named(model.vector).items()}
    trainer = LoopBackend(workload_of(model, **data))
    (result,) = trainer.train([Job(2, 4, 12, model.vector.clone(), PLAN, "params")])
    client = LocalSGD(made(Sentences), loss, (named(words[mine]), data["labels"][mine]))
    fitted = client.fit(begin, visit(PLAN, length=len(result.vector)))
    assert same(fitted.model, model.named(result.vector))
    assert (fitted.examples, fitted.steps) == (11, 5)


@pytest.mark.parametrize(
    ("loss", "inputs", "line"),
    [
        ("modle", INPUTS, "loss = 'modle': did you mean 'model'"),
        ("model", {"a": INPUTS, "b": INPUTS[:4]}, "got 4 inputs.b, 30 labels"),
    ],
)
def test_what_does_not_fit_is_one_line(loss, inputs, line):
    with pytest.raises(OffbeatError, match=line):
        LocalSGD(network(), loss, (inputs, LABELS))


def test_the_remedy_for_batch_norm_is_one_that_a_client_has(visit):
    def normalised(**options):
        return made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4, **options)))

    with pytest.raises(OffbeatError, match=r"GroupNorm instead, or make it with track_running_stats=False, as the ser"):
        LocalSGD(normalised(), cross_entropy, own_data(2))
    server = FlatModel(normalised(), batch_norm="local")
    client = LocalSGD(normalised(track_running_stats=False), cross_entropy, own_data(2))
    trainer = LoopBackend(workload_of(server, inputs=INPUTS, labels=LABELS, shards=SHARDS, seed=5))
    begin = server.vector.clone()
    (result,) = trainer.train([Job(2, 4, 12, begin, PLAN, "params")])
    fitted = client.fit(server.named(begin), visit(PLAN, length=len(begin)))
    assert same(fitted.model, server.named(result.vector))


def test_it_measures_what_the_simulators_client_measures():
    client = LocalSGD(network(), cross_entropy, own_data(2), held_out=own_data(1), metrics=["accuracy"])
    metrics, examples = client.evaluate(start())
    model = FlatModel(network())
    objective = Objective(cross_entropy, {"accuracy": METRICS["accuracy"].function})
    held_out = replace(
        workload_of(model, inputs=INPUTS, labels=LABELS, shards=SHARDS, seed=5), objective=objective, held_out=SHARDS
    )
    loss, simulated_metrics = held_out.measure_on_client(1, model.vector.clone())
    assert (metrics, examples) == ({"loss": loss, **simulated_metrics}, 4)
    fitted = client.fit(start(), visit_of_two())
    assert same(fitted.model, simulated(PLAN)[0])


def visit_of_two():
    return Visit(2, 4, 12, None, "params", LENGTH, 5, PLAN)


@pytest.mark.parametrize(
    ("loss", "metrics", "names"),
    [
        ("cross_entropy", None, ["loss", "accuracy"]),
        (cross_entropy, None, ["loss", "accuracy"]),
        (lambda *both: cross_entropy(*both), None, ["loss"]),
        ("cross_entropy", [], ["loss"]),
        ("cross_entropy", {"rows": lambda outputs, labels: len(outputs)}, ["loss", "rows"]),
    ],
)
def test_metrics_are_those_of_the_loss_or_given(loss, metrics, names):
    client = LocalSGD(network(), loss, own_data(2), held_out=own_data(1), metrics=metrics)
    assert list(client.evaluate(start())[0]) == names


def test_a_metric_that_is_undefined_is_left_out(caplog):
    metrics = {"nothing": lambda outputs, labels: float("nan"), "rows": lambda outputs, labels: len(outputs)}
    client = LocalSGD(network(), "cross_entropy", own_data(2), held_out=own_data(1), metrics=metrics)
    assert list(client.evaluate(start())[0]) == ["loss", "rows"]
    assert "a metric is left out: the metric nothing is nan" in caplog.text


def test_class_weights_and_ignored_labels_count_in_its_losses(visit):
    inputs, labels = own_data(1)
    labels = labels.clone()
    labels[::2] = -100
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 5.0, 1.0, 2.0]))
    client = LocalSGD(network(), weighted, own_data(2), held_out=(inputs, labels))
    module = network().eval()
    expected = weighted(module(inputs), labels).item()
    assert client.evaluate(start())[0]["loss"] == pytest.approx(expected, rel=1e-5)
    nothing = LocalSGD(network(), weighted, own_data(2), held_out=(inputs, labels * 0 - 100))
    with pytest.raises(OffbeatError, match="the loss ignores all labels here"):
        nothing.evaluate(start())
    silent = LocalSGD(network(), weighted, (inputs, labels * 0 - 100))
    assert silent.fit(start(), visit(PLAN)).loss == 0


@pytest.mark.parametrize(
    ("loss", "reason"), [(nn.L1Loss(reduction="sum"), "must return the mean"), (nn.L1Loss, "is a class")]
)
def test_losses_that_are_no_means_are_refused(loss, reason):
    with pytest.raises(OffbeatError, match=reason):
        LocalSGD(network(), loss, own_data(2))


def test_without_held_out_examples_it_does_not_evaluate():
    assert LocalSGD(network(), cross_entropy, own_data(2)).evaluate is None


def test_mistakes_of_evaluation_are_one_line():
    with pytest.raises(
        OffbeatError, match=r"^metrics: 'acuracy': did you mean 'accuracy'\?.*, or pass functions by name$"
    ):
        LocalSGD(network(), cross_entropy, own_data(2), held_out=own_data(1), metrics=["acuracy"])
    with pytest.raises(OffbeatError, match="a client needs examples"):
        LocalSGD(network(), cross_entropy, own_data(2), held_out=(INPUTS[:2], LABELS[:3]))
    client = LocalSGD(network(), cross_entropy, own_data(2), held_out=own_data(1))
    with pytest.raises(OffbeatError, match="the server's model is another"):
        client.evaluate({"a": torch.zeros(3)})
