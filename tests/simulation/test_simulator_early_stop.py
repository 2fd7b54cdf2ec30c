"""Runs that end by a metric, and are the beginning of those that do not."""

import torch

from offbeat.early_stop import EarlyStop
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import resume, run

TWENTY = Stop(virtual_seconds=20.0)


def target(value, metric="accuracy"):
    return EarlyStop(metric, lower_is_better=False, target=value)


def patience(number, metric="loss"):
    return EarlyStop(metric, lower_is_better=True, patience=number)


def test_a_run_ends_with_the_evaluation_that_reaches_the_target(simulate):
    whole, early = simulate(every=1.0, stop=TWENTY), simulate(every=1.0, stop=TWENTY, early_stop=target(0.5))
    rows, ended = run(whole), run(early)
    first = next(number for number, row in enumerate(rows) if row.metrics["accuracy"] >= 0.5)
    assert 0 < first < len(rows) - 1
    assert ended == rows[: first + 1]
    assert early.finished
    assert early.ended == [visit for visit in whole.ended if visit.ended_seconds <= ended[-1].seconds]


def test_a_run_ends_when_the_loss_has_not_fallen_for_long(simulate):
    rows = run(simulate(every=1.0, stop=TWENTY))
    ended = run(simulate(every=1.0, stop=TWENTY, early_stop=patience(3)))
    last = rows.index(ended[-1])
    assert ended == rows[: last + 1]
    assert last < len(rows) - 1
    losses = list({row.version: row.loss for row in ended}.values())
    best = losses.index(min(losses))
    assert best == len(losses) - 1 - 3


def test_a_target_that_is_not_reached_changes_nothing(simulate):
    whole, early = simulate(every=1.0, stop=TWENTY), simulate(every=1.0, stop=TWENTY, early_stop=target(1e9))
    assert run(whole) == run(early)
    assert torch.equal(whole.model, early.model)


def test_a_run_resumes_from_every_step_to_the_same_end(simulate, tmp_path):
    def world():
        return simulate(every=1.0, stop=TWENTY, early_stop=patience(3))

    rows, saved, before = run(world()), world(), []
    while not saved.finished:
        assert before + run(resume(world(), saved, tmp_path)) == rows
        evaluation = saved.step()
        before += [] if evaluation is None else [evaluation]
    assert before == rows
