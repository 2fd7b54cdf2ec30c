"""Kubernetes' schemas and the command line accept what the Helm chart of the template ``service`` renders.

This needs helm, and for the schemas the package kubernetes-validate; CI has neither.
"""

import shutil
import subprocess
import tomllib

import pytest
import yaml
from processes import TEMPLATE
from test_command_lines import check

from offbeat.config import server_file

CHART = TEMPLATE / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def render(*options):
    done = subprocess.run(
        ["helm", "template", "trial", str(CHART), *options], capture_output=True, text=True, check=True
    )
    return {(part["kind"], part["metadata"]["name"]): part for part in yaml.safe_load_all(done.stdout)}


def containers(rendered):
    for (kind, _), part in rendered.items():
        if kind in ("Deployment", "StatefulSet"):
            yield from part["spec"]["template"]["spec"]["containers"]


@needs_helm
def test_kubernetes_accepts_the_chart():
    schemas = pytest.importorskip("kubernetes_validate")
    parts = render("--set", "service.type=LoadBalancer")
    assert len(parts) == 4
    for part in parts.values():
        schemas.validate(part, "1.34", strict=True)


@needs_helm
def test_the_commands_are_ones_that_offbeat_accepts(monkeypatch):
    """The servers' file with the settings of the command line is a whole one, with the addresses of all servers."""
    monkeypatch.setenv("PGPASSWORD", "x")
    roles = {}
    for container in containers(render("--set", "servers=3", "--set", "log=postgresql://a@b/c")):
        check(["offbeat", *container["args"]])
        changes = [part.removeprefix("--set=") for part in container["args"] if part.startswith("--set=")]
        server = server_file.load(TEMPLATE / "server.toml", changes)
        roles[container["name"]] = server.fronts.certificate
        assert server.store.log == "postgresql://a@b/c"
        assert [host for host, _ in server.fronts.addresses] == [f"trial-{number}.trial-servers" for number in range(3)]
    assert {name: str(path).rpartition("/")[2] for name, path in roles.items()} == {
        "server": "leader.pem", "front": "front.pem",
    }  # fmt: skip


@needs_helm
def test_a_front_does_not_get_the_password_of_the_database():
    names = {
        container["name"]: [source["secretRef"]["name"] for source in container["envFrom"]]
        for container in containers(render())
    }
    secrets = VALUES["secrets"]
    assert names == {"server": [secrets["database"], secrets["bucket"]], "front": [secrets["bucket"]]}


def test_the_chart_has_the_version_of_the_images():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((TEMPLATE.parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
