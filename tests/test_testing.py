"""``check_algorithm`` finds each fault and says it in one line; every built-in algorithm passes."""

import re

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import DOES_NOT_COUNT, FedBuff
from offbeat.algorithms.components import Algorithm, Continuous, Count, LatestOfEach, Positive, Sum, resolve
from offbeat.testing import AlgorithmError, check_algorithm
from tests.algorithms.case import all_cases, built_in, cases_of
from tests.algorithms.test_whole_contract import FedPlain

FIRST_CASES = {name: cases_of(name)[0] for name in built_in() if cases_of(name)}


class Plain(Algorithm):
    """Subtracts the sum of two updates; each test breaks one thing."""

    name = "plain"

    server_lr: Positive = 0.5
    concurrency: Count = 4

    def compose(self):
        self.schedule = Continuous(self.concurrency)
        self.buffer = Sum()

    def is_ready(self):
        return self.buffer.count == 2

    def next_model(self, model, closed):
        return model - self.server_lr * closed.total()


class NotFinite(Plain):
    def next_model(self, model, closed):
        return model * float("nan")


class AssignsInAStep(Plain):
    def next_model(self, model, closed):
        self.momentum = closed.total().clone()
        return model - self.momentum


class ForgetsThePayload(Plain):
    def compose(self):
        self.schedule = Continuous(self.concurrency)
        self.buffer = LatestOfEach()


class ForgetsInItsOwnStateDict(Plain):
    def begin(self, model):
        self.momentum = torch.zeros_like(model)

    def next_model(self, model, closed):
        self.momentum = 0.9 * self.momentum + closed.total()
        return model - self.server_lr * self.momentum

    def state_dict(self):
        return {key: value for key, value in super().state_dict().items() if key != "momentum"}

    def load_state_dict(self, state):
        super().load_state_dict({**state, "momentum": torch.zeros_like(state["model"])})


class ForgetsLapsed(FedPlain):
    def state_dict(self):
        return {**super().state_dict(), "lapsed": torch.zeros(0, dtype=torch.int64)}


class ForgetfulSum(Sum):
    def state_dict(self):
        return {**super().state_dict(), "weight": 0.0}


class ForgetsInAComponent(Plain):
    def compose(self):
        super().compose()
        self.buffer = ForgetfulSum()

    def weigh(self, update):
        return 1.0 + update.examples % 3

    def next_model(self, model, closed):
        return model - closed.mean(closed.weight)


class RestoresSomethingElse(Plain):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._version += 1


class WrongClock(Plain):
    def next_model(self, model, closed):
        return model - closed.total() / (1 + self.version)


class Float64(Plain):
    def next_model(self, model, closed):
        return super().next_model(model, closed).double()


class WrongShape(Plain):
    def next_model(self, model, closed):
        return super().next_model(model, closed)[:2]


class Float64Whole(FedPlain):
    @property
    def model(self):
        return super().model.double()


class InPlace(Plain):
    def next_model(self, model, closed):
        return model.sub_(closed.total())


class NoAnswer(Plain):
    def receive(self, update):
        super().receive(update)


class WrongAnswer(Plain):
    def receive(self, update):
        super().receive(update)
        return False


class TakesDuplicates(FedPlain):
    def receive(self, update):
        if not self.wants(update.client, update.version):
            self._version += 1
            return True
        return super().receive(update)


class RaisesOnSpeed(Plain):
    measures = True

    def note_speed(self, client, step_seconds, upload_seconds):
        return 1 / 0


class UnknownSelection(Plain):
    selection = "longest_absnt"


class UnknownPayload(Plain):
    payload = "gradient"


class NoDown(Plain):
    corrects_gradients = True


class HalfAStart(Plain):
    def start(self, model, clients, data_weights=None):
        self._version = 0
        super().start(model, clients, data_weights)


class StartRemembers(FedPlain):
    def start(self, model, clients, data_weights=None):
        at_work = getattr(self, "_at_work", {})
        super().start(model, clients, data_weights)
        self._at_work = at_work


class NeedsTensors(Plain):
    def receive(self, update):
        if self.wants(update.client, update.version):
            update = update._replace(vector=update.vector / (1 + update.vector.norm()))
        return super().receive(update)


class IgnoresPromises(Plain):
    def receive(self, update):
        if isinstance(update.vector, Tensor):
            update = update._replace(vector=update.vector * 0.5)
        return super().receive(update)


class ForgetsReturn(Plain):
    def weigh(self, update):  # noqa: RET503 - the mistake
        if update.examples < 60:
            return 1.0


class Negative(Plain):
    def weigh(self, update):
        return -1 if update.examples > 60 else 1


class WrongField(Plain):
    def weigh(self, update):
        return 1 / (1 + self.version - update.start_version)


class NoUpdate(Plain):
    def weigh(self):
        return 1.0


class NoMethod(Plain):
    weigh = 0.5


class TakesMore(Plain):
    def weigh(self, update, scale=1.0):
        return DOES_NOT_COUNT if update.examples > 60 else scale

    @staticmethod
    def divisor(plan):
        return 1.0


class Raises(Plain):
    def weigh(self, update):
        return 1 / (update.examples - update.examples)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (NotFinite, "the step from version 0 was refused: the new model is not finite"),
        (AssignsInAStep, "state_dict failed: TypeError: plain.momentum was first assigned during the run"),
        (
            lambda: ForgetsThePayload(concurrency=2),
            "the factory failed: ValueError: plain: LatestOfEach needs payload = 'difference', it is 'delta'",
        ),
        (ForgetsInItsOwnStateDict, "a restart forgets the attribute 'momentum': save it in state_dict"),
        (ForgetsLapsed, "a restart changes 'lapsed'|a restart forgets the attribute '_lapsed'"),
        (ForgetsInAComponent, "a restart comes to other results: .* 'buffer._weight' differ|a restart changes"),
        (RestoresSomethingElse, "a restart changes 'version': load_state_dict must restore"),
        (WrongClock, "it depends on when the model is read: next_model must use closed.version, not self.version"),
        (Float64, r"float32 of shape \(5,\).* float64"),
        (WrongShape, r"float32 of shape \(5,\).* shape \(2,\)"),
        (Float64Whole, r"float32 of shape \(5,\).* float64"),
        (InPlace, "the step changes the model in place: it must return a new tensor"),
        (NoAnswer, "receive must return True or False, whether there is a new version; it returned None"),
        (WrongAnswer, "receive returned False, but the version went from 0 to 1"),
        (TakesDuplicates, "receive takes in an update that is not wanted"),
        (UnknownSelection, "selection = 'longest_absnt': did you mean 'longest_absent'?"),
        (UnknownPayload, "payload = 'gradient': .*Allowed: delta, difference, params"),
        (NoDown, r"down must return float32 of shape \(5,\), it returned NoneType"),
        (HalfAStart, r"start is not atomic: it failed, but changed the state \(.*version.*\)"),
        (StartRemembers, "start does not forget the run before: 'at_work' differs"),
        (NeedsTensors, r"an update's vector may be a promise: use resolve\(update.vector, length\)"),
        (IgnoresPromises, "promises of vectors come to another model"),
        (Raises, r"^Raises: weigh failed: ZeroDivisionError: division by zero \(.*test_testing.py:\d+\)"),
        (ForgetsReturn, r"it returned None: did it forget return\? .*return DOES_NOT_COUNT \(.*test_testing.py:\d+\)"),
        (Negative, r"^Negative: weigh must return .* at least 0, it returned -1 \(.*test_testing.py:\d+\)"),
        (WrongField, r"'start_version' \(.*test_testing.py:\d+\): did you mean 'version'\? Allowed: base, client, "),
        (NoUpdate, r"^NoUpdate: weigh must take \(self, update\), it takes \(self\) \(.*test_testing.py:\d+\)"),
        (NoMethod, r"^NoMethod: weigh must be a method \(self, update\), it is 0.5$"),
        (RaisesOnSpeed, r"note_speed failed: ZeroDivisionError: division by zero \("),
        (lambda: FedBuff(buffer_size=0), "the factory failed: ValueError: buffer_size must be a whole number"),
        (lambda: 3, "the factory must return an offbeat.algorithms.Algorithm, it returned int"),
    ],
)
def test_a_fault_is_one_line(factory, message):
    with pytest.raises(AlgorithmError, match=message) as caught:
        check_algorithm(factory)
    assert "\n" not in str(caught.value)
    name = getattr(factory, "__name__", "")
    assert name == "<lambda>" or str(caught.value).startswith(f"{name}: ")


@pytest.mark.parametrize("factory", [Plain, FedPlain, TakesMore])
def test_a_correct_algorithm_passes(factory):
    check_algorithm(factory)


@pytest.mark.parametrize("name", FIRST_CASES)
def test_built_in_algorithms_pass(name):
    case = FIRST_CASES[name]
    check_algorithm(case.make, clients=case.clients, scripts=3)


def test_a_cohort_above_the_number_of_clients_is_reported():
    with pytest.raises(AlgorithmError, match="cohort must be at most the number of clients, 20, got 100"):
        check_algorithm(all_cases()["fedlaavg"].make().__class__)


def test_the_same_seed_finds_the_same_fault():
    lines = set()
    for _ in range(2):
        with pytest.raises(AlgorithmError) as caught:
            check_algorithm(Raises, seed=3)
        lines.add(re.sub(r"0x\w+", "", str(caught.value)))
    assert len(lines) == 1


def test_a_vector_is_resolved_as_the_message_says():
    class Halved(Plain):
        def receive(self, update):
            if self.wants(update.client, update.version):
                update = update._replace(vector=resolve(update.vector, len(self.model)) * 0.5)
            return super().receive(update)

    check_algorithm(Halved, scripts=3)
