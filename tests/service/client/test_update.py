from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.compression import Encoded, decode
from offbeat.errors import OffbeatError
from offbeat.service.client.contract import Fitted
from offbeat.service.client.update import check_fitted, make_update, result_vector, sha256
from offbeat.simulation.work import WorkQueue
from offbeat.training.trainers.trainer import Job, Result, Trainer
from offbeat.training.trainers.trainer import result_vector as trainers_vector

WHOLE = LocalPlan(steps=3, batch_size=2, lr=0.1)
TOP_K = replace(WHOLE, compression=Compression("top_k", (("share", 0.4),)))
QSGD = replace(WHOLE, compression=Compression("qsgd", (("bits", 4),)))
RANDOM_K = replace(WHOLE, compression=Compression("random_k", (("share", 0.5),)))
LENGTH = 6
SEED = 5


class Scripted(Trainer):
    """Ends each visit at a point of its own."""

    batch_limit = 1

    def examples(self, client):
        return 1

    def train(self, jobs):
        return [Result(trainers_vector(job.payload, job.start, end_of(job.visit)), 0.0) for job in jobs]


def end_of(visit):
    return torch.sin(torch.arange(LENGTH) * (visit + 1.3)) / 3


def named(vector):
    return {"b": vector[:4].view(2, 2), "a": vector[4:]}


def read(path, plan):
    if plan.compression is None:
        return load_file(path)["update"]
    return decode(Encoded.from_bytes(path.read_bytes(), LENGTH))


@pytest.mark.parametrize(
    ("payload", "plan"),
    [
        ("delta", WHOLE),
        ("params", WHOLE),
        ("difference", WHOLE),
        ("delta", TOP_K),
        ("delta", QSGD),
        ("delta", RANDOM_K),
        ("delta", replace(TOP_K, error_feedback=True)),
        ("difference", TOP_K),
    ],
)
def test_what_travels_is_what_the_simulator_has(tmp_path, visit, payload, plan):
    queue = WorkQueue(Scripted(), LENGTH, SEED)
    start = torch.linspace(-1, 1, LENGTH)
    simulated, ours = None, None
    for number in range(4):
        work = queue.promise(Job(2, number, number, start, plan, payload), simulated)
        here = visit(plan, number, payload=payload, seed=SEED, length=LENGTH)
        outcome = make_update(result_vector(payload, named(start), named(end_of(number))), ours, here)
        outcome.write(tmp_path / "body")
        assert torch.equal(read(tmp_path / "body", plan), work.resolve())
        if number != 1:  # which comes too late to count
            simulated, ours = work.memory, outcome.memory
        assert (simulated is None) == (ours is None)
        assert ours is None or torch.equal(ours, simulated.resolve())


def test_the_digest_is_that_of_the_file(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("plan", [WHOLE, TOP_K])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused_in_one_line(visit, plan, value):
    with pytest.raises(OffbeatError, match=r"visit 4, from version 12: .*lower the plan's lr"):
        make_update(torch.tensor([1.0] * 5 + [value]), None, visit(plan))


def test_the_result_is_float32_on_the_cpu(model):
    end = {name: tensor.double().requires_grad_() for name, tensor in model.items()}
    vector = result_vector("params", model, end)
    assert vector.dtype == torch.float32
    assert vector.tolist() == [1, 2, 3, 4, 5, 6]
    assert not vector.requires_grad


class TestFitted:
    def test_a_pair_will_do(self, model, visit):
        fitted = check_fitted((model, 17), model, visit())
        assert (fitted.examples, fitted.steps, fitted.normaliser) == (17, 3, 3.0)

    def test_fewer_steps_have_their_own_normaliser(self, model, visit):
        # After two steps with momentum 1/2 the gradients weigh 1.5 and 1.
        plan = replace(WHOLE, momentum=0.5)
        assert check_fitted(Fitted(model, 17, steps=2), model, visit(plan)).normaliser == 2.5

    def test_its_own_numbers_are_taken(self, model, visit):
        fitted = check_fitted(Fitted(model, 17, 1, 0.5), model, visit())
        assert (fitted.steps, fitted.normaliser) == (1, 0.5)

    @pytest.mark.parametrize("loss", [None, float("nan"), float("-inf"), 3.5e38, "low"])
    def test_a_loss_that_is_needed_must_be_a_number(self, model, visit, loss):
        with pytest.raises(OffbeatError, match=r"needs the mean training loss .*return Fitted\(…, loss=…\)") as caught:
            check_fitted(Fitted(model, 17, loss=loss), model, visit(needs_loss=True))
        assert "\n" not in str(caught.value)
        assert check_fitted(Fitted(model, 17, loss=loss), model, visit()).examples == 17

    def test_a_loss_may_be_negative(self, model, visit):
        assert check_fitted(Fitted(model, 17, loss=-2.5), model, visit(needs_loss=True)).loss == -2.5

    def test_buffers_are_left_out(self, model, visit):
        extra = {**model, "running_mean": torch.zeros(3)}
        fitted = check_fitted((extra, 1), model, visit())
        assert len(result_vector("delta", model, fitted.model)) == 6

    @pytest.mark.parametrize(
        ("result", "problem"),
        [
            (None, "fit must return"),
            ([1], "fit must return"),
            ((torch.zeros(6), 5), "fit must return"),
            (({}, 5), "needs weight as a tensor of shape .*got NoneType"),
            (({"weight": torch.zeros(4), "bias": torch.zeros(2)}, 5), "needs weight .*got \\(4,\\)"),
            (({"weight": torch.zeros(2, 2), "bias": [0, 0]}, 5), "needs bias .*got list"),
            (("model", 0), "examples .*got 0"),
            (("model", True), "examples .*got True"),
            (Fitted({}, 5, steps=4), "steps .*1 … 3, got 4"),
            (Fitted({}, 5, steps=0), "steps .*got 0"),
        ],
    )
    def test_what_is_wrong_is_named(self, model, visit, result, problem):
        if isinstance(result, tuple) and result[0] == "model":
            result = (model, result[1])
        if isinstance(result, Fitted):
            result = replace(result, model=model)
        with pytest.raises(OffbeatError, match=problem):
            check_fitted(result, model, visit())
