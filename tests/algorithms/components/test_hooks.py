"""The defaults of what an author writes."""

import pytest

from offbeat.algorithms import Algorithm


def test_compose_and_next_model_must_be_defined(mean, begin, upload):
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
