"""Evaluations by clients, and that nothing else depends on them."""

import math
import re

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import user_code

from offbeat.client_metrics import CLIENTS_EVALUATED
from offbeat.population.availability import Always
from offbeat.simulation.client_evaluations import ClientEvaluations
from offbeat.simulation.records import Stop
from tests.simulation.conftest import TIMES, resume, run


def clients_of(availability=None, number=3, examples=(5, 1, 0, 2), measure=None, seed=1):
    """Clients whose loss is their number plus the first parameter."""
    return ClientEvaluations(
        measure or (lambda client, model, _: (client + float(model[0]), {"accuracy": client / 4})),
        availability or Always(),
        examples,
        number=number,
        metrics=["accuracy"],
        lower_is_better={"loss"},
        seed=seed,
    )


def test_clients_with_examples_measure_the_model():
    clients = clients_of()
    summary = clients.happen(2.5, 7, torch.tensor([10.0, 0.0]))
    assert sorted(made.result.client for made in clients.made) == [0, 1, 3]
    assert {(made.seconds, made.version) for made in clients.made} == {(2.5, 7)}
    (third,) = (made.row() for made in clients.made if made.result.client == 3)
    assert third == {"seconds": 2.5, "version": 7, "client": 3, "examples": 2, "loss": 13.0, "accuracy": 0.75}
    assert summary[CLIENTS_EVALUATED] == 3
    assert summary["client_loss"] == pytest.approx(10 + (0 * 5 + 1 * 1 + 3 * 2) / 8)
    assert (summary["client_loss_worst"], summary["client_accuracy_worst"]) == (13.0, 0.0)


def test_only_available_clients_are_chosen(intervals):
    available = intervals([(0, 4)], [(2, 9)], [(0, 9)], [(4, 9)])
    for now, expected in ((0.0, [0]), (2.0, [0, 1]), (4.0, [1, 3]), (9.0, [])):
        clients = clients_of(available, number=4)
        clients.happen(now, 0, torch.zeros(1))
        assert sorted(made.result.client for made in clients.made) == expected


def test_the_choice_depends_on_seed_and_version_alone():
    def chosen(version, seed=1):
        clients = clients_of(examples=[1] * 30, seed=seed)
        clients.happen(0.0, version, torch.zeros(1))
        return [made.result.client for made in clients.made]

    assert len(set(chosen(4))) == 3
    assert chosen(4) == chosen(4) != chosen(5)
    assert chosen(4) != chosen(4, seed=2)


def test_a_client_whose_loss_is_not_finite_does_not_answer():
    clients = clients_of(measure=lambda client, *_: (math.inf if client == 1 else 2.0, {"accuracy": 0.5}))
    assert clients.happen(0.0, 0, torch.zeros(1))[CLIENTS_EVALUATED] == 2
    assert sorted(made.result.client for made in clients.made) == [0, 3]


def test_a_client_whose_metric_is_undefined_keeps_its_others(caplog):
    """As that of the recall, for a client without positives; the test set has some, so the metric as such works."""

    def measure(client, _, on_undefined):
        if client == 1:
            return 2.0, {"accuracy": 0.5}
        on_undefined(OffbeatError("the metric accuracy is nan, which is not a finite number"))
        return 4.0 + client, {}

    clients = clients_of(measure=measure)
    summary = clients.happen(0.0, 7, torch.zeros(1))
    assert summary[CLIENTS_EVALUATED] == 3
    assert summary["client_loss"] == (4 * 5 + 2 * 1 + 7 * 2) / 8
    assert (summary["client_accuracy"], summary["client_accuracy_worst"]) == (0.5, 0.5)
    rows = {made.result.client: made.row()["accuracy"] for made in clients.made}
    assert rows.pop(1) == 0.5
    assert all(map(math.isnan, rows.values()))
    clients.happen(0.0, 8, torch.zeros(1))
    (message,) = caplog.messages  # once in a run
    assert re.match(r"client [03] does not measure version 7: the metric accuracy is nan", message)


def test_a_client_without_a_loss_does_not_answer(caplog):
    def measure(client, *_):
        if client == 1:
            raise OffbeatError("evaluation: the loss ignores all labels here")
        return 2.0, {"accuracy": 0.5}

    assert clients_of(measure=measure).happen(0.0, 7, torch.zeros(1))[CLIENTS_EVALUATED] == 2
    assert "the loss ignores all labels here" in caplog.text


def test_a_client_that_does_not_fit_into_memory_ends_the_run():
    def measure(client, _, __):
        with user_code("evaluation: the model or the loss failed"):
            raise MemoryError

    with pytest.raises(OffbeatError, match="evaluation: the model or the loss failed: MemoryError"):
        clients_of(measure=measure).happen(0.0, 0, torch.zeros(1))


def test_nobody_is_there(intervals):
    summary = clients_of(intervals([(5, 6)], [(5, 6)], [(5, 6)], [(5, 6)])).happen(0.0, 0, torch.zeros(1))
    assert summary.pop(CLIENTS_EVALUATED) == 0
    assert all(map(math.isnan, summary.values()))


@pytest.fixture
def world(simulate, intervals):
    """Return a function that builds a simulation of clients that come and go."""

    def build(clients=None, **when):
        arguments = {
            "step_seconds": (1.0, 1.0, 1.5, 4.0),
            "stop": Stop(virtual_seconds=24.0),
            **(when or {"every": 2.5}),
        }
        return simulate(availability=intervals(*TIMES), lease_seconds=5.0, clients=clients, **arguments)

    return build


@pytest.mark.parametrize("when", [{"every": 0.5}, {"every_versions": 2}])
def test_nothing_else_depends_on_clients_evaluations(world, when):
    with_clients, without = world(clients_of(), **when), world(**when)
    rows, plain = run(with_clients), run(without)
    assert [(*row[:-1], row.metrics["accuracy"]) for row in rows] == [
        (*row[:-1], row.metrics["accuracy"]) for row in plain
    ]
    assert with_clients.ended == without.ended
    assert torch.equal(with_clients.model, without.model)
    assert with_clients.evaluated_by


def test_a_version_is_evaluated_once(world):
    simulation = world(clients_of(), every=0.1)
    versions = [row.version for row in run(simulation)]
    measured = [(made.version, made.result.client) for made in simulation.evaluated_by]
    assert len(versions) > len(set(versions))
    assert len(measured) == len(set(measured))


def test_a_run_resumes_from_every_step(world, tmp_path):
    whole = world(clients_of())
    rows, made = run(whole), list(whole.evaluated_by)
    saved, before = world(clients_of()), []
    while not saved.finished:
        restored = resume(world(clients_of()), saved, tmp_path)
        number = len(saved.evaluated_by)
        assert before + run(restored) == rows
        assert saved.evaluated_by + restored.evaluated_by == made
        assert saved.evaluated_by == made[:number]
        evaluation = saved.step()
        before += [] if evaluation is None else [evaluation]
    assert before == rows
