"""Experiments whose bounds the tests know."""

import pytest
import tomli_w

from offbeat.config import experiment_file
from offbeat_studies.theory_bound.constants import Known
from offbeat_studies.theory_bound.theory_report import TheoryReport, theory_reports

KNOWN = Known(smoothness=0.5, initial_error=2.0, variance=4.0, diversity=0.3, gradient_bound=3.0, max_staleness=1)
UNIFORM = {"distribution": "uniform", "low": 1.0, "high": 2.0}
CONSTANT = {"name": "constant"}


@pytest.fixture
def load(tmp_path):
    """Return a function that makes an experiment of some algorithms; other arguments replace sections' keys."""

    def make(algorithms, **changes):
        table = {
            "data": {"name": "digits"},
            "model": {"name": "softmax"},
            "local": {"steps": 1, "batch_size": 8, "lr": 0.1},
            "population": {"clients": 20},
            "stop": {"versions": 5000},
            "evaluate": {"every_seconds": 20.0},
            "algorithms": algorithms,
        }
        for section, keys in changes.items():
            table[section] = {**table.get(section, {}), **keys} if section != "stop" else keys
        path = tmp_path / "experiment.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        return experiment_file.load(path)

    return make


def one(experiment, known=KNOWN):
    (report,) = theory_reports(experiment, experiment.algorithms, known).values()
    assert isinstance(report, TheoryReport)
    return report


def broken(report):
    return [assumption.text for assumption in report.bound.broken]
