from dataclasses import replace

import pytest
from offbeat_core.local_plan import Compression, LocalPlan
from offbeat_core.lr_decay import exponential, step
from offbeat_private.agreed_plan import AgreedPlan
from pydantic import ValidationError

BASE = {"steps": 10, "batch_size": 32, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 2.0}
PLAN = LocalPlan(**BASE)


def test_the_agreed_plan_is_accepted_at_any_version():
    for version in (0, 7, 10**6):
        AgreedPlan(**BASE).check(PLAN, version)
        AgreedPlan(**BASE).check(replace(PLAN, lr=(0.1,) * 10), version)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 1e-30}, "lr is 1e-30 at version 4, the terms say 0.1"),
        ({"lr": 0.1 * (1 + 1e-8)}, "lr is 0.1 at version 4, the terms say 0.1"),
        ({"steps": 9}, "steps is 9, the terms say 10"),
        ({"momentum": 0.9999999}, "momentum is 0.9999999, the terms say 0.9"),
        ({"batch_size": 1}, "batch_size is 1, the terms say 32"),
        ({"weight_decay": 1e6}, "weight_decay is 1000000.0, the terms say 0.01"),
        ({"momentum": 0.0, "mu": 0.1}, "momentum is 0.0, the terms say 0.9"),
        ({"clip_norm": 1e-30}, "clip_norm is 1e-30, the terms say 2.0"),
        ({"clip_norm": None}, "clip_norm is none, the terms say 2.0"),
        ({"momentum": 0.0, "optimizer": "adamw"}, "optimizer is adamw, the terms say sgd"),
        ({"by_epochs": True}, "by_epochs is True, the terms say False"),
        ({"compression": Compression("sign")}, "compression is Compression.*, the terms say none"),
    ],
)
def test_another_plan_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        AgreedPlan(**BASE).check(replace(PLAN, **changes), 4)


def test_mu_is_agreed():
    base = {"steps": 1, "batch_size": 1, "lr": 1e-30}
    with pytest.raises(ValueError, match=r"^mu is 1e\+30, the terms say 0.0$"):
        AgreedPlan(**base).check(LocalPlan(**base, mu=1e30), 0)


def test_a_decay_fixes_the_step_size_of_each_version():
    for table, decay in [
        ({"name": "exponential", "factor": 0.5}, exponential(0.5)),
        ({"name": "step", "every": 2}, step(2, 0.1)),  # 0.1 by default
    ]:
        agreed = AgreedPlan(**BASE, lr_decay=table)
        for version in range(5):
            agreed.check(replace(PLAN, lr_decay=decay).at(version), version)
        with pytest.raises(ValueError, match=r"lr is 0\.1 at version 3"):
            agreed.check(PLAN, 3)
    # A server that claims a later version for a client gives it the smaller step size only from there.
    AgreedPlan(**BASE, lr_decay={"name": "exponential", "factor": 0.01}).check(
        replace(PLAN, lr_decay=exponential(0.01)).at(1000), 1000
    )


def test_ranges_are_for_plans_of_several_rounds():
    agreed = AgreedPlan(**BASE, most_steps=30, smallest_lr=0.01)
    for steps in (10, 20, 30):
        agreed.check(replace(PLAN, steps=steps, lr=(0.01,) + (0.1,) * (steps - 1)), 9)
    for changes, message in [
        ({"steps": 31}, "steps is 31, the terms say 10 … 30"),
        ({"lr": 0.009}, "lr is 0.009 at version 9, the terms say 0.01 … 0.1"),
        ({"lr": (0.01,) * 9 + (0.2,)}, "lr is 0.2 at version 9, the terms say 0.01 … 0.1"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}$"):
            agreed.check(replace(PLAN, **changes), 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"most_steps": 9}, "most_steps must be at least 10"),
        ({"smallest_lr": 0.2}, "smallest_lr must be at most 0.1"),
        ({"mu": 0.1}, "momentum and mu cannot be combined"),
        ({"lr_decay": {"name": "exponential"}}, "must be a decay such as"),
        ({"lr_decay": {"name": "linear"}}, "must be a decay such as"),
        ({"lr_decay": {"name": "exponential", "factor": 2.0}}, "factor must be in"),
        ({"compression": {"name": "sign"}}, "unknown key compression"),
    ],
)
def test_values_that_no_plan_has_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        AgreedPlan(**BASE | changes)
