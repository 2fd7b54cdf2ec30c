import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
import torch
from offbeat_core.local_plan import Compression, Epochs, LocalPlan, normaliser
from offbeat_core.lr_decay import exponential
from offbeat_core.lr_decay import step as step_decay

from offbeat.training.trainers.local_step import local_step

TOP_K = Compression("top_k", (("share", 0.1),))
PLAN = {"steps": 2, "batch_size": 4, "lr": 0.1}


@pytest.mark.parametrize("number", [np.float32, np.array, torch.tensor])
def test_numbers_of_numpy_and_torch_become_pythons(number):
    count = np.int64 if number is np.float32 else number
    rates = number([0.5, 0.25]) if number is not np.float32 else [np.float32(0.5), np.float32(0.25)]
    plan = LocalPlan(count(2), count(4), rates, weight_decay=number(0.5), clip_norm=number(2.0))
    assert plan == LocalPlan(2, 4, (0.5, 0.25), weight_decay=0.5, clip_norm=2.0)
    assert {type(value) for value in (*plan.lr, plan.weight_decay, plan.clip_norm)} == {float}
    assert hash(LocalPlan(2, 4, number(0.5), momentum=number(0.5))) == hash(LocalPlan(2, 4, 0.5, momentum=0.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"lr": -0.1}, "lr must be greater than 0, got -0.1"),
        ({"lr": (0.1,)}, "lr must be one number or a tuple of 2, one a step, got 1"),
        ({"lr": ()}, "one a step, got 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": False}, r"momentum must be in \[0, 1\), got False"),
        ({"lr": "0.1"}, "lr must be a number, got '0.1'"),
        ({"momentum": math.nan}, "momentum"),
        ({"weight_decay": -1e-4}, "weight_decay must not be negative"),
        ({"mu": -1.0}, "mu must not be negative"),
        ({"momentum": 0.9, "mu": 0.1}, "momentum and mu cannot be combined"),
        ({"clip_norm": 0.0}, "clip_norm must be greater than 0"),
        ({"error_feedback": True}, "error_feedback makes up for compression: set compression, or leave it out"),
        ({"optimizer": "adam"}, "optimizer must be 'sgd' or 'adamw', got 'adam'"),
        ({"optimizer": "adamw", "momentum": 0.9}, "^momentum is for SGD: set optimizer to 'sgd', or momentum to 0$"),
        ({"optimizer": "adamw", "mu": 0.1}, "^mu is for SGD: set optimizer to 'sgd', or mu to 0$"),
        ({"steps_by": Epochs(1)}, "steps follow from steps_by: leave steps 1, and give lr as one number"),
        ({"steps": 1, "lr": (0.1,), "steps_by": Epochs(1)}, "steps follow from steps_by"),
        ({"lr_decay": {"name": "exponential"}}, r"lr_decay must be a decay such as exponential\(0.99\), got {'name'"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        LocalPlan(**PLAN | change)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 1, "batch_size": 1, "lr": 1},
        {"momentum": 0.99, "weight_decay": 0.0},
        {"weight_decay": 0.0, "mu": 2.0, "clip_norm": 1e-9},
        {"compression": Compression("sign"), "error_feedback": True},
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 1.0, "lr_decay": exponential(1.0)},
    ],
)
def test_plan_takes_the_ends_of_its_ranges(change):
    plan = LocalPlan(**PLAN | change)
    assert {name: getattr(plan, name) for name in change} == change


def test_a_visit_cut_short_takes_its_first_steps_and_keeps_all_else():
    whole = LocalPlan(5, 4, 0.1, momentum=0.5, weight_decay=0.01, clip_norm=2.0, compression=TOP_K, error_feedback=True)
    adamw = LocalPlan(5, 4, 0.1, optimizer="adamw")
    assert adamw.prefix(3) == LocalPlan(3, 4, 0.1, optimizer="adamw")
    assert whole.prefix(3) == dataclasses.replace(whole, steps=3)
    assert whole.prefix(5) == whole
    assert LocalPlan(3, 4, (0.3, 0.2, 0.1)).prefix(2) == LocalPlan(2, 4, (0.3, 0.2))


@pytest.mark.parametrize("steps", [0, 3])
def test_a_visit_is_not_cut_to_nothing_nor_to_more_than_it_was(steps):
    with pytest.raises(ValueError, match=f"steps must be in 1 … 2, got {steps}"):
        LocalPlan(**PLAN).prefix(steps)


def test_a_visit_has_the_step_sizes_of_its_version() -> None:
    plan = LocalPlan(2, 4, 0.8, mu=0.5, clip_norm=1.0, lr_decay=exponential(0.5))
    assert [plan.at(version).lr for version in (0, 1, 3)] == [0.8, 0.4, 0.1]
    assert plan.at(3) == LocalPlan(2, 4, 0.1, mu=0.5, clip_norm=1.0)
    assert LocalPlan(1, 1, 0.1, lr_decay=exponential(0.5)).at(10**6).lr == 2.0**-126  # above 0
    many = LocalPlan(2, 4, (0.8, 0.4), lr_decay=step_decay(10, factor=0.25))
    assert many.at(9).lr == (0.8, 0.4)
    assert many.at(10) == LocalPlan(2, 4, (0.2, 0.1))


def ten_steps(**changes: object) -> LocalPlan:
    return LocalPlan(**{"steps": 10, "batch_size": 1, "lr": 0.1, **changes})


class TestNormaliser:
    """The normaliser is how far a visit goes, in units of lr, if the gradient is 1 in each step."""

    @pytest.mark.parametrize("steps", [1, 2, 100])
    @pytest.mark.parametrize("rho", [0.0, 0.5, 0.99])
    def test_momentum_equals_the_closed_form(self, steps: int, rho: float) -> None:
        weight = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        assert normaliser(ten_steps(steps=steps, momentum=rho)) == pytest.approx(weight, rel=1e-9)

    @pytest.mark.parametrize("steps", [1, 2, 100])
    @pytest.mark.parametrize("mu", [0.001, 1.0, 10.0, 15.0])
    def test_a_proximal_term_equals_the_closed_form(self, steps: int, mu: float) -> None:
        weight = (1 - (1 - 0.1 * mu) ** steps) / (0.1 * mu)
        assert normaliser(ten_steps(steps=steps, lr=0.1, mu=mu)) == pytest.approx(weight, rel=1e-9)

    @pytest.mark.parametrize("changes", [{"momentum": 0.9}, {"mu": 0.7}, {}])
    def test_the_trainers_own_steps_go_that_far(self, changes: dict[str, float]) -> None:
        here = ten_steps(**changes)
        start, w, velocity = torch.full((3,), 2.0), torch.full((3,), 2.0), torch.zeros(3)
        for step in range(here.steps):
            local_step(w, torch.ones(3), velocity if here.momentum else None, start, here, step)
        assert ((start - w) / here.lr).tolist() == pytest.approx([normaliser(here)] * 3, rel=1e-5)

    @pytest.mark.parametrize(
        "changes",
        [{"lr": tuple([0.1] * 9 + [0.2])}, {"weight_decay": 0.1}, {"clip_norm": 0.1}, {"optimizer": "adamw"}],
    )
    def test_plain_sgd_and_adamw_count_their_steps(self, changes: dict[str, object]) -> None:
        assert normaliser(ten_steps(**changes)) == pytest.approx(10.0)

    def test_step_sizes_that_change_weigh_each_gradient_by_its_own(self) -> None:
        # Momentum ½: 0.1·1 + 0.3·(1 + ½), over the mean 0.2. Proximal term 1: 0.1·(1 − 0.3) + 0.3, over 0.2.
        two = {"steps": 2, "lr": (0.1, 0.3)}
        assert normaliser(ten_steps(**two, momentum=0.5)) == pytest.approx(0.55 / 0.2)
        assert normaliser(ten_steps(**two, mu=1.0)) == pytest.approx(0.37 / 0.2)

    @pytest.mark.parametrize("mu", [1e-9, 1e-16, 1e-323])
    def test_a_tiny_proximal_term_is_nearly_none(self, mu: float) -> None:
        # 1 − steps·lr·mu/2 is 1 to 1e-8; the formula taken literally cancels.
        assert normaliser(ten_steps(mu=mu)) == pytest.approx(10.0, rel=1e-7)


def test_a_plan_of_many_steps_takes_no_memory():
    tracemalloc.start()
    try:
        assert normaliser(LocalPlan(10**4, 1, 0.1)) == pytest.approx(10**4)
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**4  # a list of the steps takes 80,000 bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("by_epochs", "steps", "examples", "sizes"),
    [
        (False, 5, 11, [4, 4, 4, 4, 4]),
        (True, 5, 11, [4, 4, 3, 4, 4]),
        (True, 2, 11, [4, 4]),
        (True, 3, 8, [4, 4, 4]),
        (True, 2, 3, [3, 3]),
        (False, 2, 3, [3, 3]),
    ],
)
def test_minibatch_sizes_by_hand(by_epochs, steps, examples, sizes):
    assert LocalPlan(steps=steps, batch_size=4, lr=0.1, by_epochs=by_epochs).minibatch_sizes(examples) == sizes


def test_the_plan_of_a_client_follows_from_its_examples():
    plan = LocalPlan(1, 4, 0.1, momentum=0.5, lr_decay=exponential(0.5), steps_by=Epochs(2))
    assert plan.of(11) == LocalPlan(6, 4, 0.1, momentum=0.5, lr_decay=exponential(0.5), by_epochs=True)
    assert plan.of(11).at(1) == LocalPlan(6, 4, 0.05, momentum=0.5, by_epochs=True)
    function = LocalPlan(1, 4, 0.1, steps_by=lambda examples, _: examples - 1)
    assert function.of(11) == LocalPlan(10, 4, 0.1)
    assert function.with_steps(3) == LocalPlan(3, 4, 0.1)
    fixed = LocalPlan(5, 4, 0.1)
    assert fixed.of(11) is fixed


@pytest.mark.parametrize(
    ("epochs", "examples", "batch_size", "steps"),
    [
        (1, 10, 5, 2),
        (1, 11, 5, 3),  # 5 + 5 + 1
        (2, 3, 5, 2),  # all examples at once
        (0.5, 11, 5, 2),  # 1.5 minibatches
        (1.5, 11, 5, 5),  # 4.5
        (0.01, 11, 5, 1),  # never none
        (0.07, 500, 5, 7),  # 0.07 · 100 is 7.000000000000001
        (1_000_000, 5, 5, 1_000_000),
    ],
)
def test_steps_of_epochs_by_hand(epochs, examples, batch_size, steps):
    assert Epochs(epochs)(examples, batch_size) == steps


def test_epochs_out_of_range_are_refused():
    line = r"^local\.epochs = 2 is 2,000,000 steps for 2,000,000 examples: at most 1,000,000 are possible$"
    with pytest.raises(ValueError, match=line):
        Epochs(2)(2_000_000, 2)
    with pytest.raises(ValueError, match=r"^epochs must be greater than 0"):
        Epochs(0)
