"""The plans that the terms of a private run allow."""

from typing import Annotated, Any

from offbeat_core.local_plan import LocalPlan, Optimizer
from offbeat_core.lr_decay import LR_DECAYS, LrDecay
from offbeat_core.tables.section import Count, NotNegative, Positive, Section
from pydantic import BeforeValidator, Field, model_validator

_SAME = (
    *("batch_size", "by_epochs", "optimizer", "momentum", "weight_decay", "mu", "clip_norm"),
    *("compression", "error_feedback"),
)
_ROUNDING = 1e-9  # processors differ in the last bits of a decay


def _decay(table: dict[str, Any]) -> LrDecay:
    parameters = {name: value for name, value in table.items() if name != "name"}
    try:
        return LR_DECAYS[table["name"]](**parameters)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"must be a decay such as {{ name = 'exponential', factor = 0.99 }} ({error})") from None


def _with_defaults(table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    decay = _decay(table)
    return {"name": decay.name, **dict(decay.parameters)}


class AgreedPlan(Section):
    """``[local]``: the work of a client in one visit, as in the server's file.

    A server that chooses each client's plan could make all other updates of a sum nearly zero, and so reveal one.
    """

    steps: Count
    """Local steps."""
    most_steps: Count | None = None
    """The most steps of a visit, where `steps` are the fewest, for AsyncCommSGD; `steps` if it is left out."""
    batch_size: Count
    """Examples in a step."""
    lr: Positive
    """Step size."""
    smallest_lr: Positive | None = None
    """The smallest step size, where `lr` is the largest, for `step_sizes`; `lr` if it is left out."""
    lr_decay: Annotated[dict[str, Any] | None, BeforeValidator(_with_defaults)] = None
    """How step sizes fall with the version that a visit starts at."""
    optimizer: Optimizer = "sgd"
    """`sgd` or `adamw`."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of SGD."""
    weight_decay: NotNegative = 0.0
    """Weight decay."""
    mu: NotNegative = 0.0
    """FedProx's proximal term."""
    clip_norm: Positive | None = None
    """The largest norm of a step's gradient."""

    @model_validator(mode="after")
    def _check_together(self) -> "AgreedPlan":
        self._plan(self.lr)
        if self.most_steps is not None and self.most_steps < self.steps:
            raise ValueError(f"most_steps must be at least {self.steps} (steps), got {self.most_steps}")
        if self.smallest_lr is not None and self.smallest_lr > self.lr:
            raise ValueError(f"smallest_lr must be at most {self.lr:g} (lr), got {self.smallest_lr:g}")
        return self

    def check(self, plan: LocalPlan, version: int) -> None:
        """Raise ``ValueError`` unless the plan of a visit from this version is agreed."""
        agreed = self._plan(self.lr)
        for name in _SAME:
            got, wanted = getattr(plan, name), getattr(agreed, name)
            if got != wanted:
                raise ValueError(f"{name} is {_text(got)}, the terms say {_text(wanted)}")
        most = self.most_steps or self.steps
        if not self.steps <= plan.steps <= most:
            raise ValueError(f"steps is {plan.steps}, the terms say {_range(self.steps, most)}")
        ends = self.smallest_lr or self.lr, self.lr
        smallest, largest = (_rates(self._plan(lr).at(version))[0] for lr in ends)
        for rate in _rates(plan):
            if not smallest * (1 - _ROUNDING) <= rate <= largest * (1 + _ROUNDING):
                raise ValueError(f"lr is {rate:g} at version {version}, the terms say {_range(smallest, largest)}")

    def _plan(self, lr: float) -> LocalPlan:
        """Return the plan with the fewest steps and this step size."""
        values: dict[str, Any] = {
            name: getattr(self, name) for name in type(self).model_fields if hasattr(LocalPlan, name)
        }
        values |= {"lr": lr, "lr_decay": None if self.lr_decay is None else _decay(self.lr_decay)}
        return LocalPlan(**values)


def _rates(plan: LocalPlan) -> tuple[float, ...]:
    return plan.lr if isinstance(plan.lr, tuple) else (plan.lr,)


def _range(least: float, most: float) -> str:
    return f"{least:g}" if least == most else f"{least:g} … {most:g}"


def _text(value: object) -> object:
    return "none" if value is None else value
