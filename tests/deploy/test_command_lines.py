"""Command lines in Dockerfiles, compose file and systemd units are ones that the programs accept."""

import configparser
import json
import re
import runpy
import shlex

import click
import pytest
import yaml
from offbeat_private.helper.commands import helper
from processes import DEPLOY, WORKING_DIRECTORY, command_line, read_services

from offbeat.cli.main import app
from offbeat.config import server_file

PROGRAMS = {"offbeat": app, "offbeat-helper": helper}
SCRIPTS = {"back_up.sh": 3, "hand_out.sh": 3}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICES = read_services()


def check(command):
    """Parse a command line as its program does; run nothing."""
    program, *arguments = command
    if program in PROGRAMS:
        _check_arguments(PROGRAMS[program], arguments)
    elif program in SCRIPTS:
        assert len(arguments) == SCRIPTS[program]
        assert arguments[-1].isdigit() or program not in SCRIPTS
    elif arguments[0] == "join_site.py":
        runpy.run_path(str(DEPLOY / "join_site.py"))["parser"]().parse_args(arguments[1:])
    else:
        assert program == "python", program
        assert (DEPLOY / arguments[0]).exists()


def _check_arguments(command, arguments):
    with command.make_context(command.name, list(arguments)) as context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            _, inner, rest = command.resolve_command(context, rest)
            _check_arguments(inner, rest)


def unit(path):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


@pytest.mark.parametrize("name", SERVICES)
def test_the_compose_file(name):
    service = SERVICES[name]
    check(command_line(service))
    if "healthcheck" in service:
        check(service["healthcheck"]["test"][1:])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_units(path):
    program, *arguments = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program.startswith("/opt/offbeat/bin/")
    check([program.rpartition("/")[2], *arguments])


def test_the_dockerfiles():
    server, client = (
        {
            key: json.loads(value)
            for key, value in re.findall(r"^(ENTRYPOINT|CMD) (.*)$", (DEPLOY / file).read_text(), re.MULTILINE)
        }
        for file in ("server.Dockerfile", "client.Dockerfile")
    )
    check(server["ENTRYPOINT"] + server["CMD"])
    assert (client["ENTRYPOINT"], client["CMD"][0]) == (["python"], "join_site.py")


def test_a_wrong_option_is_refused():
    with pytest.raises(click.UsageError):
        check(["offbeat", "serve", "server.toml", "--no-such-option"])
    with pytest.raises(click.UsageError):
        check(["offbeat", "helper", "serves"])


def test_the_units_are_hardened():
    for path in UNITS:
        service = unit(path)["Service"]
        assert service["User"].startswith("offbeat")
        assert service["ProtectSystem"] == "strict"
        assert service["NoNewPrivileges"] == "yes"
        if service.get("Type") != "oneshot":
            assert service["Restart"] == "on-failure"


def test_the_servers_file_names_the_services_host():
    server = server_file.load(DEPLOY / "server.toml")
    assert {"server", "127.0.0.1"} <= set(server.service.hosts)
    assert server.service.tls
    assert server.service.host == "0.0.0.0"


def test_each_volume_is_declared_and_belongs_to_the_images_user():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in compose["services"].values():
        dockerfile = (DEPLOY / service["build"]["dockerfile"].rpartition("/")[2]).read_text()
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            assert source.startswith("./") or source in compose["volumes"]
            assert target.startswith(f"{WORKING_DIRECTORY}/")
            assert source.startswith("./") or target in dockerfile, target
