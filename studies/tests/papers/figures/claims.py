"""Claims and runs for tests."""

from offbeat_studies.papers.figures.sections import Claim
from tests.report.example_runs import a_run

LOSS = {"metrics": [], "target": 0.5}


def loss_run(label, *values, seed=0):
    return a_run(label, seed, values, evaluate=LOSS)


def claim(**changes):
    values = {"name": "c", "quantity": "final", "of": "a", "relation": "at most", "than": "b", "paper": "p", **changes}
    return Claim(**values)
