"""Command lines in README, Dockerfile, compose file and systemd units are ones that the programs accept."""

import configparser
import json
import re
import shlex
import subprocess
import tomllib

import click
import pytest
import yaml
from offbeat_private.helper.commands import helper
from processes import TEMPLATE, WORKING_DIRECTORY, command_line, image_files, read_services

from offbeat.cli.main import app
from offbeat.config import server_file

PROGRAMS = {"offbeat": app, "offbeat-helper": helper}
UNITS = sorted((TEMPLATE / "systemd").glob("*.service"))
SERVICES = read_services()


def check(command):
    """Parse a command line as its program does; run nothing."""
    program, *arguments = command
    if program in PROGRAMS:
        _check_arguments(PROGRAMS[program], arguments)
    elif program.endswith("sh"):
        script, _, _, number = arguments
        assert (TEMPLATE / script.rpartition("/")[2]).name == "back_up.sh"
        assert number.isdigit()
    else:
        assert program == "cp", program


def _check_arguments(command, arguments, parent=None):
    with command.make_context(command.name, list(arguments), parent) as context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            _, inner, rest = command.resolve_command(context, rest)
            _check_arguments(inner, rest, context)


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
    assert program.startswith("/opt/offbeat/bin/") or program == "/bin/sh"
    check([program.rpartition("/")[2], *arguments])


def test_the_readme():
    text = (TEMPLATE / "README.md").read_text()
    inline = (command.replace("\n", " ") for command in re.findall(r"`(offbeat server tokens [^`]+)`", text))
    commands = [*re.findall(r"^\$ (offbeat .+)$", text, re.MULTILINE), *inline]
    assert len(commands) > 12
    for command in commands:
        check(shlex.split(command))


def test_the_readme_names_all_files_of_the_template():
    text = (TEMPLATE / "README.md").read_text()
    folders = {path.name for path in TEMPLATE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert all(f"`{name}/`" in text for name in folders), folders
    assert all(path.name in text for path in image_files())


def test_the_dockerfile():
    text = (TEMPLATE / "Dockerfile").read_text()
    found = re.findall(r"^ENTRYPOINT (.+)\nCMD (.+)$", text, re.MULTILINE)
    assert len(found) == 2
    for parts in found:
        check([word for part in parts for word in json.loads(part)])
    assert {"client.py", "data.py", "model.py", "server.toml"} < {path.name for path in image_files()}


def test_the_image_keeps_what_pytorch_needs_to_be_imported(tmp_path):
    """The command that makes the image smaller, in a folder of such files."""
    kept = [tmp_path / name for name in ("torch/bin/torch_shm_manager", "torch/lib/libtorch.so", "numpy/testing/x.py")]
    removed = [
        tmp_path / name for name in ("torch/bin/models/x", "torch/bin/protoc", "torch/include/x", "numpy/tests/x")
    ]
    for path in (*kept, *removed):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    text = (TEMPLATE / "Dockerfile").read_text().replace("\\\n", "")
    command = re.findall(r"find /usr/local/lib .*", text)[-1]
    subprocess.run(["sh", "-c", command.replace("/usr/local/lib", str(tmp_path))], check=True)
    assert [path.exists() for path in kept] == [True] * len(kept)
    assert not any(path.exists() for path in removed)


def test_a_wrong_option_is_refused():
    with pytest.raises(click.UsageError):
        check(["offbeat", "server", "start", "server.toml", "--no-such-option"])
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


def test_the_servers_file_is_for_sites_anywhere():
    server = server_file.load(TEMPLATE / "server.toml")
    assert server.service.tls
    assert server.service.host == "0.0.0.0"
    command = command_line(SERVICES["server"])
    names = tomllib.loads(command[command.index("--set") + 1])["service"]["hosts"]
    assert "server" in names  # by which the other containers call it


def test_each_volume_is_declared_and_belongs_to_the_images_user():
    compose = yaml.safe_load((TEMPLATE / "compose.yaml").read_text())
    dockerfile = (TEMPLATE / "Dockerfile").read_text()
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            assert source in compose["volumes"]
            assert target.startswith(f"{WORKING_DIRECTORY}/")
            assert target in dockerfile, target
