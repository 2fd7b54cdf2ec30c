import inspect
import math
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from annotated_types import Interval
from torch import Tensor

from offbeat.algorithms import Algorithm, FedBuff, FedFa
from offbeat.algorithms.components import (
    ClosedBuffer,
    Continuous,
    Count,
    NotNegative,
    Positive,
    Share,
    Staleness,
    Sum,
    polynomial,
)
from offbeat.algorithms.components.hyper_parameters import hyper_parameters


class Own(Algorithm):
    """A user's algorithm with a hyper-parameter of every kind."""

    name = "own"

    places: Count = 3
    lr: Positive = 0.5
    decay: NotNegative = 0.0
    share: Share = 1.0
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    tolerance: Annotated[float, Interval(gt=-1)] = 0.0
    workers: Annotated[int, Interval(ge=2, le=8)] = 4
    mode: Literal["fast", "safe"] = "fast"
    staleness: Staleness = polynomial(a=2.0)
    is_verbose: bool = False

    def check_values(self) -> None:
        if self.workers > self.places * 2:
            raise ValueError(f"workers must be at most 2 · places, {2 * self.places}, got {self.workers}")

    def compose(self) -> None:
        self.schedule = Continuous(self.places)
        self.buffer = Sum()

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model - self.lr * closed.total()


@pytest.mark.parametrize("number", [np.int64, np.array, torch.tensor])
def test_numbers_of_numpy_and_torch_become_pythons(number):
    algorithm = Own(places=number(5), lr=number(1), staleness=polynomial(a=number(2)))
    assert (algorithm.places, algorithm.lr, algorithm.staleness.parameters) == (5, 1, {"a": 2})
    numbers = (algorithm.places, algorithm.lr, algorithm.staleness.parameters["a"])
    assert {type(number) for number in numbers} == {int}


def test_annotations_are_keyword_only_arguments_with_defaults_in_their_order():
    parameters = inspect.signature(Own).parameters
    assert list(parameters) == [
        *("places", "lr", "decay", "share", "momentum"),
        *("tolerance", "workers", "mode", "staleness", "is_verbose"),
    ]
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert [parameter.default for parameter in parameters.values()] == [
        *(3, 0.5, 0.0, 1.0, 0.9),
        *(0.0, 4, "fast", polynomial(a=2.0), False),
    ]
    with pytest.raises(TypeError):
        Own(3)
    with pytest.raises(TypeError, match="speed"):
        Own(speed=3)


def test_declarations_of_an_algorithm_are_not_hyper_parameters():
    for name in ("name", "payload", "period", "max_step_norm", "schedule", "buffer", "pooled"):
        assert name not in hyper_parameters(Own)
        assert name not in hyper_parameters(FedBuff)


def test_a_subclass_adds_hyper_parameters_and_changes_defaults():
    class Steered(FedBuff):
        name = "steered"
        buffer_size: Count = 3
        strength: Share = 0.5

    assert list(hyper_parameters(Steered)) == [*hyper_parameters(FedBuff), "strength"]
    assert (Steered().buffer_size, Steered().strength, FedBuff().buffer_size) == (3, 0.5, 10)
    with pytest.raises(ValueError, match=r"strength must be in \(0, 1\], got 2"):
        Steered(strength=2.0)
    with pytest.raises(ValueError, match="buffer_size must be a whole number of at least 1, got 0"):
        Steered(buffer_size=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"places": 0}, "places must be a whole number of at least 1, got 0"),
        ({"places": 2.0}, "places must be a whole number of at least 1, got 2.0"),
        ({"places": True}, "places must be a whole number of at least 1, got True"),
        ({"places": np.timedelta64(3, "ns")}, r"places must be a whole .*, got (np|numpy)\.timedelta64\(3,'ns'\)"),
        ({"places": "3"}, "places must be a whole number of at least 1, got '3'"),
        ({"places": 2**31}, "places must be at most 2147483647, got 2147483648"),
        ({"lr": 0.0}, "lr must be greater than 0, got 0.0"),
        ({"lr": math.nan}, "lr must be finite in 32 bits, got nan"),
        ({"lr": math.inf}, "lr must be"),
        ({"lr": 1e39}, "lr must be"),
        ({"lr": True}, "lr must be greater than 0, got True"),
        ({"lr": "0.1"}, "lr must be greater than 0, got '0.1'"),
        ({"lr": None}, "lr must be greater than 0, got None"),
        ({"decay": -1e-9}, "decay must be at least 0, got -1e-09"),
        ({"share": 0}, r"share must be in \(0, 1\], got 0"),
        ({"share": 1.5}, r"share must be in \(0, 1\], got 1.5"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\), got -0.1"),
        ({"tolerance": -1.0}, "tolerance must be greater than -1, got -1.0"),
        ({"workers": 1}, r"workers must be a whole number in \[2, 8\], got 1"),
        ({"workers": 9}, r"workers must be a whole number in \[2, 8\], got 9"),
        ({"mode": "Fast"}, "mode must be 'fast' or 'safe', got 'Fast'"),
        ({"mode": None}, "mode must be 'fast' or 'safe', got None"),
        ({"places": 1, "workers": 3}, "workers must be at most 2 · places, 2, got 3"),
    ],
)
def test_values_out_of_bounds_are_refused_in_one_line(values, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        Own(**values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"places": 2**31 - 1},
        {"places": np.int64(2)},
        {"lr": 1e-45},
        {"lr": 3},
        {"lr": np.float32(0.5)},
        {"lr": Fraction(1, 2)},
        {"share": 1, "decay": 0},
        {"momentum": 0, "tolerance": -0.999, "workers": 2},
        {"workers": 6, "mode": "safe"},
    ],
)
def test_the_ends_of_the_bounds_are_allowed(values: dict[str, Any]):
    own = Own(**values)
    assert {name: getattr(own, name) for name in values} == values


def test_single_values_are_checked_before_check_values():
    with pytest.raises(ValueError, match="window must be a whole number of at least 1"):
        FedFa(window=0, release_every=5)


def test_an_optional_hyper_parameter_is_checked_unless_it_is_none():
    class Bounded(FedBuff):
        name = "bounded"
        limit: Positive | None = None

    assert Bounded().limit is None
    assert Bounded(limit=2.0).limit == 2.0
    with pytest.raises(ValueError, match="limit must be greater than 0, got -2"):
        Bounded(limit=-2.0)
