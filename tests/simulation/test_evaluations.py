import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import user_code

from offbeat.algorithms import AsyncCommSGD, FedAsync, FedAvg, FedBuff, FedFa, FedLaAvg, FedLuck, Port
from offbeat.algorithms.components.schedules.patterns import round_robin
from offbeat.client_metrics import CLIENTS_EVALUATED
from offbeat.population.availability import Always
from offbeat.simulation.evaluations import EvaluationsByClients
from offbeat.simulation.totals import Stop
from offbeat.simulation.training_queue import DivergedError
from tests.effort import cases
from tests.simulation.conftest import TIMES, one_by_one, resume, run

ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=3),
    "fedbuff of one": lambda: one_by_one(4),
    "fedfa": lambda: FedFa(window=3, concurrency=3),
    "fedlaavg": lambda: FedLaAvg(cohort=2),
    "port": lambda: Port(min_clients=1, staleness_bound=1, concurrency=3),
    "async_comm_sgd": lambda: AsyncCommSGD(pattern=round_robin(2, 1), average=True, period=1.5),
    "fedluck": lambda: FedLuck(period=1.5, steps=(1, 3), compression=(0.5, 1.0)),
}


def made(simulation):
    return [(evaluation.seconds, evaluation.version) for evaluation in simulation.run()]


def expected_of(by_seconds, every):
    """Return the expected evaluations and the error of a simulation.

    They are derived from the steps of one that is evaluated at other times.
    """
    last, evaluation, problem = {}, None, ""  # last: the version at the end of each instant
    try:
        while not by_seconds.finished:
            evaluation = by_seconds.step() or evaluation
            last[by_seconds._now] = by_seconds.coordinator.algorithm.version
    except OffbeatError as error:
        last.pop(by_seconds._now, None)  # nothing more is done in that instant
        problem = str(error)
    expected = [(0.0, 0)]
    for seconds, version in last.items():
        if version // every > expected[-1][1] // every:
            expected.append((seconds, version))
    end = None if problem or evaluation is None else (evaluation.seconds, evaluation.version)
    return expected + [end] * (end not in (None, expected[-1])), problem


def to_the_end(simulation):
    evaluations = []
    try:
        for evaluation in simulation.run():
            evaluations.append((evaluation.seconds, evaluation.version))
    except OffbeatError as error:
        return evaluations, str(error)
    return evaluations, ""


@pytest.mark.parametrize(
    ("every", "expected"),
    [(1, [(second, second) for second in range(8)]), (3, [(0, 0), (3, 3), (6, 6), (7, 7)]), (100, [(0, 0), (7, 7)])],
)
@pytest.mark.parametrize("stop", [Stop(virtual_seconds=7.0), Stop(versions=7), Stop(updates=7)])
def test_a_version_each_second(simulate, every, expected, stop):
    assert made(simulate(step_seconds=(1.0,), stop=stop, every_versions=every)) == expected


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        # Four versions a second: 3 is passed at 1 s, by 4; after 12 the next multiple of 10 is 20, not 22.
        (3, [(0, 0), (1, 4), (2, 8), (3, 12), (4, 16), (5, 20), (6, 24), (7, 28), (7.5, 28)]),
        (10, [(0, 0), (3, 12), (5, 20), (7.5, 28)]),
    ],
)
def test_versions_of_one_instant_are_evaluated_once_after_all_of_them(simulate, every, expected):
    stop = Stop(virtual_seconds=7.5)
    simulation = simulate(one_by_one(4), step_seconds=(1.0,) * 4, stop=stop, every_versions=every)
    evaluations = list(simulation.run())
    assert [(evaluation.seconds, evaluation.version) for evaluation in evaluations] == expected
    # Work has been given out by then: for the next second all four have got the model.
    downloads = [8 * 4 * (second + 1) for second, _ in expected[1:-1]]
    assert [evaluation.bytes_down for evaluation in evaluations[1:-1]] == downloads


def test_an_instant_lasts_while_visits_take_no_time(simulate, intervals):
    availability = intervals([(3, 10)])
    simulation = simulate(step_seconds=(1e-300,), availability=availability, stop=Stop(versions=9), every_versions=2)
    assert made(simulation) == [(0, 0), (3, 9)]


@settings(max_examples=cases(25))
@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    step_seconds=st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0]), min_size=4, max_size=4),
    transfers=st.sampled_from([{}, {"down": 16.0, "up": 6.0}]),
    lossy=st.booleans(),
    away=st.sampled_from([None, "pause", "lose"]),
    stop=st.sampled_from([Stop(virtual_seconds=24.0), Stop(versions=7), Stop(updates=150)]),
    seconds=st.sampled_from([0.3, 1.0, 2.5, 1e9]),
    every=st.integers(1, 6),
)
def test_nothing_else_depends_on_evaluations(
    simulate, intervals, name, step_seconds, transfers, lossy, away, stop, seconds, every
):
    def world(**when):
        return simulate(
            ALGORITHMS[name](),
            step_seconds=step_seconds,
            loss_probability=(0.0, 0.5, 0.0, 0.5) if lossy else None,
            availability=intervals(*TIMES) if away else None,
            when_away=away or "pause",
            lease_seconds=5.0,
            stop=stop,
            **transfers,
            **when,
        )

    by_versions, by_seconds = world(every_versions=every), world(every=seconds)
    assert to_the_end(by_versions) == expected_of(by_seconds, every)
    assert by_versions.ended == by_seconds.ended
    assert torch.equal(by_versions.model, by_seconds.model)


@pytest.mark.parametrize(("name", "every"), [("fedbuff of one", 1), ("fedbuff of one", 3), ("fedluck", 1)])
def test_a_run_resumes_from_every_step_to_the_same_evaluations(simulate, name, every):
    def world():
        return simulate(
            ALGORITHMS[name](), step_seconds=(1.0, 1.0, 1.5, 1.5), stop=Stop(virtual_seconds=6.0), every_versions=every
        )

    evaluations, saved, before = run(world()), world(), []
    waiting = 0
    while not saved.finished:
        restored = world()
        restored.load_state_dict(saved.state_dict())
        # Between the version and its evaluation, too.
        due = restored._evaluations.state_dict()
        waiting += due["evaluate_at_version"] == math.inf and due["last"] is not None
        assert before + run(restored) == evaluations
        evaluation = saved.step()
        before += [] if evaluation is None else [evaluation]
    assert before == evaluations
    assert waiting > 0
    assert len(evaluations) >= 3


@pytest.mark.parametrize(("every", "seconds"), [(3.0, [0, 3, 6, 9, 10]), (5.0, [0, 5, 10])])
def test_evaluations_are_on_a_grid_from_the_start_and_once_at_the_end(simulate, every, seconds):
    simulation = simulate(every=every, stop=Stop(virtual_seconds=10.0))
    assert [evaluation.seconds for evaluation in run(simulation)] == seconds


def test_an_evaluation_is_after_all_other_events_of_its_instant(simulate):
    simulation = simulate(step_seconds=(1.0,), every=1.0, stop=Stop(virtual_seconds=3.0))
    assert [version for _, version in made(simulation)] == [0, 1, 2, 3]


def test_a_model_that_overflows_ends_the_run(simulate):
    simulation = simulate(FedBuff(buffer_size=1, server_lr=1e38), stop=Stop(versions=50), every=0.1)
    with pytest.raises(
        DivergedError, match=r"step from version \d+ was refused: the new model is not finite.*server_lr"
    ):
        run(simulation)


def test_the_same_model_is_not_evaluated_twice(simulate):
    simulation = simulate(every=0.01, stop=Stop(versions=3))
    evaluated = []
    simulation._evaluations._evaluate = lambda model: evaluated.append(model) or (0.0, {})
    rows = run(simulation)
    assert len(evaluated) == 4 < len(rows)


def clients_of(availability=None, number=3, examples=(5, 1, 0, 2), measure=None, seed=1):
    """Clients whose loss is their number plus the first parameter."""
    return EvaluationsByClients(
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
