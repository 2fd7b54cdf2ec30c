"""The defaults of what an author writes."""

import math

import pytest
import torch

from offbeat.algorithms import Algorithm, FedBuff


def test_what_an_algorithm_need_not_say():
    algorithm = FedBuff()
    algorithm.start(torch.zeros(1), clients=1)
    assert algorithm.round is None
    assert algorithm.period is None
    assert algorithm.needs_base is False
    assert algorithm.selection == "uniform"
    assert algorithm.measures is False
    assert algorithm.pooled is False
    assert algorithm.weighs_all_clients is False
    assert algorithm.max_step_norm == math.inf
    assert algorithm.result is algorithm.model
    assert algorithm.returns_in(0) == algorithm.round
    assert list(algorithm.urgent()) == []
    assert list(algorithm.sealed) == []
    assert algorithm.tick() is False


def test_an_algorithm_says_how_it_is_composed_and_how_it_steps(mean, begin, upload):
    class Composed(Algorithm):
        name = "composed"

    class Steps(mean):
        next_model = Algorithm.next_model

    with pytest.raises(NotImplementedError):
        Composed()
    algorithm = begin(Steps(size=1))
    assert algorithm.receive(upload(0, 0, 1)) is True
    with pytest.raises(NotImplementedError):
        algorithm.model  # noqa: B018 - reading takes the step
