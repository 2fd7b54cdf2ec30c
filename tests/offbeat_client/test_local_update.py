from dataclasses import replace

import numpy as np
import pytest
import torch
from offbeat_client.local_update import check_fitted, make_update, result_vector, write_body
from offbeat_client.visit import Fitted
from offbeat_core.compression import Encoded, decode
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Compression, LocalPlan
from safetensors.numpy import load_file

from offbeat.simulation.training_queue import TrainingQueue
from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.trainers.backend import result_vector as trainers_vector
from offbeat.training.trainers.trainer import Trainer

WHOLE = LocalPlan(steps=3, batch_size=2, lr=0.1)
TOP_K = replace(WHOLE, compression=Compression("top_k", (("share", 0.4),)))
QSGD = replace(WHOLE, compression=Compression("qsgd", (("bits", 4),)))
RANDOM_K = replace(WHOLE, compression=Compression("random_k", (("share", 0.5),)))
LENGTH = 6
SEED = 5


class Scripted(Backend):
    """Ends each visit at a point of its own."""

    batch_limit = 1

    def train(self, jobs):
        return [
            Result(trainers_vector(job.payload, job.start, torch.from_numpy(end_of(job.visit))), 0.0) for job in jobs
        ]


def end_of(visit):
    return np.sin(np.arange(LENGTH, dtype=np.float32) * (visit + 1.3)) / 3


def named(vector):
    return {"b": vector[:4].reshape(2, 2), "a": vector[4:]}


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
def test_updates_are_those_of_the_simulator(tmp_path, visit, payload, plan):
    queue = TrainingQueue(Trainer(Scripted()), LENGTH, SEED)
    start = np.linspace(-1, 1, LENGTH, dtype=np.float32)
    ours = None
    for number in range(4):
        work = queue.promise(Job(2, number, number, torch.from_numpy(start), plan, payload))
        here = visit(plan, number, payload=payload, seed=SEED, length=LENGTH)
        outcome = make_update(result_vector(payload, named(start), named(end_of(number))), ours, here)
        write_body(outcome, tmp_path / "body")
        assert np.array_equal(read(tmp_path / "body", plan), work.resolve().numpy())
        if number != 1:  # which comes too late to count
            queue.note_counted(2, work)
            ours = outcome.memory
        simulated = queue.memory(2)
        assert (simulated is None) == (ours is None)
        assert ours is None or np.array_equal(ours, simulated.numpy())


@pytest.mark.parametrize("plan", [WHOLE, TOP_K])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_update_is_one_line(visit, plan, value):
    with pytest.raises(OffbeatError, match=r"visit 4, from version 12: .*lower the plan's lr"):
        make_update(np.array([1.0] * 5 + [value], np.float32), None, visit(plan))


@pytest.mark.parametrize("convert", [np.float16, np.float64, torch.tensor])
def test_the_result_is_float32(model, convert):
    vector = result_vector("params", model, {name: convert(array) for name, array in model.items()})
    assert vector.dtype == np.float32
    assert vector.tolist() == [1, 2, 3, 4, 5, 6]
    large = {name: array.astype(np.float64) * 1e300 for name, array in model.items()}
    assert np.isinf(result_vector("delta", model, large)).all()


class TestFitted:
    def test_a_pair_is_enough_and_fewer_steps_have_their_own_normaliser(self, model, visit):
        extra = {**model, "running_mean": np.zeros(3, np.float32)}  # which is left out
        fitted = check_fitted((extra, 17), model, visit())
        assert (fitted.examples, fitted.steps, fitted.normaliser) == (17, 3, 3.0)
        assert len(result_vector("delta", model, fitted.model)) == 6
        # After two steps with momentum 1/2 the gradients weigh 1.5 and 1.
        plan = replace(WHOLE, momentum=0.5)
        assert check_fitted(Fitted(model, 17, steps=2), model, visit(plan)).normaliser == 2.5

    def test_numbers_of_numpy_and_torch_become_pythons(self, model, visit):
        given = Fitted(model, np.int64(17), torch.tensor(2), np.float32(0.5), torch.tensor(-2.5))
        fitted = check_fitted(given, model, visit(needs_loss=True))
        numbers = (fitted.examples, fitted.steps, fitted.normaliser, fitted.loss)
        assert numbers == (17, 2, 0.5, -2.5)
        assert [type(number) for number in numbers] == [int, int, float, float]

    @pytest.mark.parametrize("loss", [True, None, float("nan"), float("-inf"), 3.5e38, "low"])
    def test_a_needed_loss_must_be_a_number(self, model, visit, loss):
        with pytest.raises(OffbeatError, match=r"needs the mean training loss .*return Fitted\(…, loss=…\)"):
            check_fitted(Fitted(model, 17, loss=loss), model, visit(needs_loss=True))
        assert check_fitted(Fitted(model, 17, loss=loss), model, visit()).examples == 17

    @pytest.mark.parametrize(
        ("result", "problem"),
        [
            (None, "fit must return"),
            ((np.zeros(6, np.float32), 5), "fit must return"),
            (({}, 5), "needs weight as an array of shape .*got NoneType"),
            (({"weight": torch.zeros(2, 2, requires_grad=True)}, 5), "weight .* is not an array of numbers: .*grad"),
            (({"weight": np.ones((2, 2), np.complex64)}, 5), "weight .* is not an array of numbers: .* complex64"),
            (({"weight": np.ones((2, 2), "M8[s]")}, 5), r"weight .* is not an array of numbers: .* datetime64\[s\]"),
            (({"weight": np.ma.masked_array(np.ones((2, 2)), [[0, 0], [1, 0]])}, 5), "weight .* it has masked values"),
            (("model", np.timedelta64(3, "ns")), r"examples .*got np\.timedelta64\(3,'ns'\)"),
            (({"weight": np.zeros(4, np.float32), "bias": np.zeros(2, np.float32)}, 5), "needs weight .*got \\(4,\\)"),
            (({"weight": np.zeros((2, 2), np.float32), "bias": [0, 0]}, 5), "needs bias .*got list"),
            (("model", 0), "examples .*got 0"),
            (("model", True), "examples .*got True"),
            (("model", np.arange(3)), r"examples .*got array\(\[0, 1, 2\]\)"),
            (Fitted({}, 5, normaliser="3"), "normaliser that fit returned must be a number, got '3'"),
            (Fitted({}, 5, normaliser=-1.0), "normaliser that fit returned must not be negative, got -1.0"),
            (Fitted({}, 5, steps=4), "steps .*1 … 3, got 4"),
            (Fitted({}, 5, steps=0), "steps .*got 0"),
        ],
    )
    def test_an_invalid_result_is_named(self, model, visit, result, problem):
        if isinstance(result, tuple) and isinstance(result[0], str):
            result = (model, result[1])
        if isinstance(result, Fitted):
            result = replace(result, model=model)
        with pytest.raises(OffbeatError, match=problem):
            check_fitted(result, model, visit())
