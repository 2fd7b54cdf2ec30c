"""Dry runs of algorithms, which find errors before a run begins."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from offbeat_core.lr_decay import exponential
from torch import Tensor, ones, zeros

from offbeat.algorithms import FedBuff, FedLuck, LocalPlan, Update
from offbeat.algorithms.components import ClosedBuffer, Compression, Sum, Weight
from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.simulation.simulator import Simulation
from offbeat.worlds.algorithm_setup import dry_run
from offbeat.worlds.simulation import build_simulation
from tests.error_line import error_line

Load = Callable[..., Experiment]

Built = Callable[[Experiment], Simulation]
PLAN = LocalPlan(steps=3, batch_size=8, lr=0.1)


class Diary(FedBuff):
    """Counts the assignments that are asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        self.asked += 1
        return super().assign(client, local)


class Locked(Diary):
    """Holds an object that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Patient(Diary):
    """Has no slots yet."""

    def slots(self) -> int:
        return 0

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        raise ValueError(f"client {client} was not wanted")


@pytest.fixture
def built(digits: Dataset) -> Callable[[Experiment], Simulation]:
    """Return a function that builds the world of the algorithm labelled ``mine``."""

    def build(here: Experiment) -> Simulation:
        return build_simulation(here, "mine", 1, digits)

    return build


@pytest.mark.parametrize(
    ("table", "compression", "message"),
    [
        ("algorithm = 'fedasync'", "name = 'top_k', share = 0.1", ".*whole models.*cannot be compressed"),
        ("algorithm = 'fedluck'", "name = 'qsgd', bits = 4", "FedLuck chooses.*qsgd"),
        ("algorithm = 'fedlaavg', cohort = 4", "name = 'random_k', share = 0.1", ".*difference.*random_k"),
        # 7 levels are a contraction up to 49 parameters; the model has 650.
        (
            "algorithm = 'fedbuff', local = { error_feedback = true }",
            "name = 'qsgd', bits = 4",
            "error_feedback needs.*qsgd.*650 parameters.*more bits",
        ),
        ("algorithm = 'async_comm_sgd', pattern = { name = 'full', every = 2000000000 }", "", "steps must be at most"),
        ("algorithm = 'async_comm_sgd', step_sizes = { name = 'inverse_time' }, local = { mu = 3.0 }", "", "lr · mu"),
        ("algorithm = 'scaffold', cohort = 4, local = { optimizer = 'adamw' }", "", "SCAFFOLD's c_i .* optimizer out$"),
        ("algorithm = 'fednova', cohort = 4, local = { optimizer = 'adamw' }", "", "FedNova's a_i .* optimizer out$"),
        (
            "algorithm = 'mifa', local = { lr_decay = { name = 'step', every = 9 } }",
            "",
            "mifa averages .* leave lr_decay out$",
        ),
    ],
)
def test_a_plan_that_cannot_be_made_or_sent_is_one_line(
    table: str, compression: str, message: str, experiment: Load, built: Built
) -> None:
    changes = [f"local.compression={{ {compression} }}"] if compression else []
    line = error_line(built, experiment(f"algorithms={{ mine = {{ {table} }} }}", *changes))
    assert re.match(rf"algorithms\.mine: {message}", line)


@pytest.mark.parametrize(
    ("table", "compression"),
    [
        ("algorithm = 'fedasync', local = { compression = { name = 'none' } }", "name = 'sign'"),
        ("algorithm = 'fedluck'", "name = 'top_k', share = 0.1"),
        ("algorithm = 'fedlaavg', cohort = 4", "name = 'random_k', share = 0.1, scaled = false"),
        ("algorithm = 'fedbuff', local = { error_feedback = true }", "name = 'qsgd', bits = 6"),
        ("algorithm = 'fedbuff'", "name = 'qsgd', bits = 4"),
    ],
)
def test_valid_combinations_are_built(table: str, compression: str, experiment: Load, built: Built) -> None:
    built(experiment(f"algorithms={{ mine = {{ {table} }} }}", f"local.compression={{ {compression} }}"))


@pytest.mark.parametrize("kind", [Diary, Locked, Patient])
def test_the_algorithm_itself_is_not_changed(kind: type[Diary]) -> None:
    algorithm = kind()
    dry_run(algorithm, zeros(5), ones(4), PLAN)
    assert algorithm.asked == 0
    assert not hasattr(algorithm, "_model")  # nor is it started


@pytest.mark.parametrize("kind", [Locked, Patient])
def test_without_a_slot_the_runs_plan_is_checked(kind: type[Diary]) -> None:
    plan = replace(PLAN, compression=Compression("random_k", (("share", 0.5),)), error_feedback=True)
    with pytest.raises(ValueError, match=r"^error_feedback needs a compressor that is a contraction"):
        dry_run(kind(), zeros(5), ones(4), plan)


class Corrected(FedBuff):
    corrects_gradients = True

    def down(self) -> Tensor:
        return zeros(len(self.model))


def test_corrected_gradients_are_those_of_sgd() -> None:
    dry_run(Corrected(), zeros(5), ones(4), PLAN)
    with pytest.raises(ValueError, match=r"^the c_i of fedbuff are means of plain gradients: leave optimizer out$"):
        dry_run(Corrected(), zeros(5), ones(4), replace(PLAN, optimizer="adamw"))


def test_a_user_s_plan_is_asked_for_with_the_step_size_of_version_0() -> None:
    class NeedsSmallSteps(FedBuff):
        def plan(self, client: int, local: LocalPlan) -> LocalPlan:
            assert (local.lr, local.lr_decay) == (0.1, None)
            return local

    dry_run(NeedsSmallSteps(), zeros(5), ones(4), replace(PLAN, lr_decay=exponential(0.5)))


class NoAnswer(FedBuff):
    def receive(self, update: Update) -> bool:
        super().receive(update)  # and no return
        return cast(bool, None)


class BooleanWeight(FedBuff):
    def weigh(self, update: Update) -> float:
        return update.examples > 0


class ForgottenReturn(FedBuff):
    def weigh(self, update: Update) -> float:  # pyright: ignore[reportReturnType]
        super().weigh(update)


class WrongField(FedBuff):
    def weigh(self, update: Update) -> float:
        return 1.0 / (1 + update.start_version)  # pyright: ignore


class NoUpdate(FedBuff):
    def weigh(self) -> float:  # pyright: ignore
        return 1.0


class WrongStart(FedBuff):
    def begin(self, model: Tensor) -> None:
        self.seen = dict.fromkeys(cast(Any, self.clients), 0.0)


class Broken(Sum):
    def add(self, update: Update, weight: float | Weight) -> None:
        super().add(update, cast(Any, {})[7])


class WrongPart(FedBuff):
    def compose(self) -> None:
        super().compose()
        self.buffer = Broken()


class Float64(FedBuff):
    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return super().next_model(model, closed).double()


class Float64Model(FedBuff):
    @property
    def model(self) -> Tensor:
        return super().model.double()


class UnknownSelection(FedBuff):
    selection = "longest_absnt"


class NoDown(FedBuff):
    corrects_gradients = True


class Compresses(FedBuff):
    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        return replace(local, compression=Compression("topk"))


class RaisesOnSpeed(FedLuck):
    def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        raise ValueError("no speed will do")


class CompressesTheMeasured(FedLuck):
    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        return replace(local, compression=Compression("topk")) if client in self.step_seconds else local


class CompressesTheOthers(FedLuck):
    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        return local if client in self.step_seconds else replace(local, compression=Compression("topk"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RaisesOnSpeed, "no speed will do"),
        (CompressesTheMeasured, "the plan for a visit: compression.name = 'topk'"),
        (CompressesTheOthers, "the plan for a visit: compression.name = 'topk'"),
    ],
)
def test_the_plans_of_clients_that_were_measured_and_of_others_are_tried(kind: type[FedLuck], message: str) -> None:
    algorithm = kind()
    with pytest.raises(ValueError, match=re.escape(message)):
        dry_run(algorithm, zeros(4), ones(5), PLAN)
    assert not hasattr(algorithm, "step_seconds")


class RefusesZeros(FedBuff):
    def weigh(self, update: Update) -> float:
        assert isinstance(update.vector, Tensor)
        return 1.0 / float(update.vector.norm())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoAnswer, "receive must return True or False, whether there is a new version; it returned None"),
        (BooleanWeight, "weigh must return a finite number of at least 0, it returned True ("),
        (ForgottenReturn, "weigh must return a finite number of at least 0, it returned None: did it forget return?"),
        (WrongField, "weigh failed: AttributeError: 'Update' object has no attribute 'start_version'"),
        (NoUpdate, "weigh must take (self, update), it takes (self) ("),
        (WrongStart, "begin failed: TypeError: 'int' object is not iterable ("),
        (WrongPart, "Broken.add failed: KeyError: 7 ("),
        (Float64, "next_model must return float32 of shape (4,), it returned float64 of shape (4,)"),
        (Float64Model, "the step must return float32 of shape (4,), it returned float64 of shape (4,)"),
        (UnknownSelection, "selection = 'longest_absnt': did you mean 'longest_absent'?"),
        (NoDown, "down must return float32 of shape (4,), it returned NoneType"),
        (Compresses, "the plan for a visit: compression.name = 'topk': did you mean 'top_k'?"),
    ],
)
def test_a_fault_of_a_users_algorithm_is_one_line_before_the_run(kind: type[FedBuff], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        dry_run(kind(buffer_size=2), zeros(4), ones(5), PLAN)
    assert "\n" not in str(caught.value)


def test_control_variates_exclude_error_feedback() -> None:
    class Corrects(NoDown):
        def down(self) -> Tensor:
            return zeros(4)

    plan = replace(PLAN, compression=Compression("sign"), error_feedback=True)
    dry_run(Corrects(), zeros(4), ones(5), replace(plan, error_feedback=False))
    with pytest.raises(ValueError, match=r"remember c_i, .*leave error_feedback out"):
        dry_run(Corrects(), zeros(4), ones(5), plan)


def test_an_algorithm_that_cannot_take_updates_of_zeros_is_left_in_peace() -> None:
    dry_run(RefusesZeros(buffer_size=2), zeros(4), ones(5), PLAN)
