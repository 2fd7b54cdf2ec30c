"""Client time, by hand."""

import numpy as np
import pytest

from offbeat_studies.benchmark.client_time import client_seconds
from tests.report.example_runs import a_run

SIZE = 1000


def run(visits, begun, seconds=(0, 10, 20, 30)):
    """Return a run of visits (assigned, ended); ``begun`` are how many had begun at each evaluation."""
    columns = {"bytes_down": [SIZE * number for number in begun]}
    events = [(client, 0, *times, "lost") for client, times in enumerate(visits)]
    made = a_run(values=[0.1] * len(seconds), seconds=seconds, visits=events, columns=columns)
    made.events["bytes_down"] = np.full(len(visits), SIZE)
    return made


def test_a_visit_counts_from_assignment_to_end():
    # At 10 s: 5 + 7; at 20 s: 5 + 15 (the second ended at 18) + 5 of the third; at 30 s 10 more of it.
    made = run([(0, 5), (3, 18), (15, 30)], begun=(1, 2, 3, 3))
    assert client_seconds(made) == pytest.approx([0, 12, 25, 35])


def test_visits_that_are_still_open_at_the_end_count_from_where_they_began():
    # One of the two open visits began before 10 s, the other before 20 s: 10 · ½, then 10 · 1½, then 10 · 2.
    made = run([(0, 10)], begun=(1, 2, 3, 3))
    assert client_seconds(made) == pytest.approx([0, 10 + 5, 10 + 5 + 15, 10 + 5 + 15 + 20])


def test_a_run_without_a_visit_took_no_client_time():
    assert client_seconds(run([], begun=(0, 0, 0, 0))) == pytest.approx([0, 0, 0, 0])
