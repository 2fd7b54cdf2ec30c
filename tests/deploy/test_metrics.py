"""The alert rules and the board name metrics that a real server gives."""

import json
import re
from pathlib import Path

import pytest
import yaml
from processes import TEMPLATE

from offbeat.service.engine.privacy_status import PrivacyStatus
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.refusal import KINDS
from tests.service.conftest import running

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\boffbeat_\w+")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names of the samples that a server reports, with those of a private run."""
    with running(tmp_path_factory.mktemp("metrics") / "server") as server:
        text = server.admin.http.get("/metrics").text
    private = Metrics()
    private.set_privacy(
        PrivacyStatus(
            delta=1e-6,
            epsilon=None,
            epsilon_replace_one=None,
            sums_opened=0,
            sums_discarded=0,
            sums_waiting=0,
            suspended_clients=0,
            helper="ok",
        )
    )
    text += private.text().decode()
    families = re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE)
    # Families with labels have no samples yet.
    return {name for name, _ in families} | {f"{name}_bucket" for name, kind in families if kind == "histogram"}


def rules():
    groups = yaml.safe_load((TEMPLATE / "monitoring/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board():
    return json.loads((TEMPLATE / "monitoring/grafana.json").read_text())


def test_the_rules_name_metrics_that_exist(names):
    used = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert len(used) > 8
    assert used <= names


def test_the_board_names_metrics_that_exist(names):
    queries = [target["expr"] for panel in board()["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in board()["templating"]["list"]]
    used = {name for query in queries for name in NAME.findall(query)}
    assert len(used) > 12
    assert used <= names


def test_the_rules_name_refusals_that_exist():
    named = {
        kind for rule in rules() for found in re.findall(r'kind=~?"([^"]+)"', rule["expr"]) for kind in found.split("|")
    }
    assert named
    assert named <= set(KINDS)


def test_each_alert_leads_to_a_section_of_the_runbook():
    page = (ROOT / "docs/runbook.md").read_text()
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    for rule in rules():
        page_name, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page_name == "docs/runbook.md"
        assert anchor in anchors
