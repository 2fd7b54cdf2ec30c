"""Offbeat's half of the examples for users of other frameworks, in the simulator and on a server."""

import re

import pytest

from offbeat.config import experiment_file, server_file
from offbeat.runs.run_all import run_all
from tests.examples.both_worlds import function
from tests.examples.migrate.served import EXAMPLE, ROOT, served

PAGES = sorted(ROOT.glob("docs/how-to/from-*.md"))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbuff"])
def test_the_simulation_learns(algorithm, tmp_path, quiet):
    experiment = experiment_file.load(EXAMPLE / "experiment.toml", [])
    (run,) = run_all(experiment, [algorithm], tmp_path / "runs", quiet)
    assert run.history["accuracy"][0] < 0.3
    assert run.history["accuracy"][-1] > 0.8


def test_the_clients_of_a_server_learn(tmp_path):
    assert float(served(tmp_path).rpartition(" ")[2]) > 0.8


def test_both_worlds_have_the_plan_of_the_sites_own_training():
    plan = server_file.load(EXAMPLE / "server.toml").local.plan()
    assert experiment_file.load(EXAMPLE / "experiment.toml", []).local.plan() == plan
    site = function(EXAMPLE / "digits.py", "site_data")(0)
    assert plan.steps * plan.batch_size == len(site)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_shows_the_files(page):
    shown = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(shown) >= 2
    for name, text in shown:
        assert text in (EXAMPLE / name).read_text("utf-8"), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_names_the_version_that_the_tests_install(page):
    peer = page.stem.removeprefix("from-")
    if peer == "flower":  # the newest that pyproject.toml allows
        return
    pinned = (ROOT / f"studies/peers/requirements/{peer}.txt").read_text("utf-8").splitlines()[0].partition("==")[2]
    assert f" {pinned} " in page.read_text("utf-8")
