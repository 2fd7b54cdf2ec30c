"""The services of the template's compose.yaml as processes of this machine, which has no Docker.

The same commands run in the same order, each in a folder of its own, where the volumes are links. The server listens at
127.0.0.1 only.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

TEMPLATE = Path(__file__).parents[2] / "src/offbeat/templates/service"
WORKING_DIRECTORY = "/srv/offbeat"
ENTRY_POINTS = {"offbeat": ["offbeat"], "offbeat-helper": ["offbeat-helper"]}
"""The entry points of the images."""
_PATIENCE_SECONDS = 120.0


def read_services() -> dict[str, Any]:
    """Return the services of compose.yaml."""
    return yaml.safe_load((TEMPLATE / "compose.yaml").read_text(encoding="utf-8"))["services"]


def command_line(service: Mapping[str, Any]) -> list[str]:
    """Return the program of a service's container with its arguments."""
    return [*(service.get("entrypoint") or ENTRY_POINTS[service["image"]]), *service["command"]]


def image_files() -> list[Path]:
    """Return the files that the Dockerfile copies into the working directory."""
    text = (TEMPLATE / "Dockerfile").read_text(encoding="utf-8")
    (patterns,) = re.findall(r"^COPY (.+) \./$", text, re.MULTILINE)
    return [path for pattern in patterns.split() for path in TEMPLATE.glob(pattern)]


def write_programs(folder: Path) -> None:
    """Put the images' programs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in {"offbeat": "offbeat", "offbeat-helper": "offbeat_private.helper"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)


class Processes:
    """The processes of the services without a profile; none outlives the context.

    ``changes`` maps text of the server's file to other text.

    Attributes:
        volumes: The folder that holds the volumes.
    """

    def __init__(self, folder: Path, port: int, changes: Mapping[str, str] | None = None) -> None:
        self._folder = folder.resolve()
        self._port = port
        self._changes = changes or {}
        self._services = read_services()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.volumes = self._folder / "volumes"

    def __enter__(self) -> Self:
        write_programs(self._folder / "bin")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._processes):
            self.stop(name)

    def up(self) -> None:
        """Start all services, each once those that it depends on are as it wants them."""
        for name, service in self._services.items():
            if "profiles" not in service:
                self.start(name)

    def start(self, name: str) -> None:
        """Start one service."""
        service = self._services[name]
        for needed, state in service.get("depends_on", {}).items():
            self._wait_for(needed, state["condition"])
        command = [part.replace("//server:8443", f"//127.0.0.1:{self._port}") for part in command_line(service)]
        if name == "server":
            changes = ("service.host=127.0.0.1", 'service.hosts=["127.0.0.1"]', f"service.port={self._port}")
            command += (f"--set={change}" for change in changes)
        self._mount(name)
        with self.log(name).open("ab") as log:
            self._processes[name] = self._popen(name, command, stdout=log, stderr=subprocess.STDOUT)

    def wait(self, name: str) -> int:
        """Return a service's exit code, once it has ended."""
        return self._processes[name].wait(_PATIENCE_SECONDS)

    def stop(self, name: str) -> int:
        """Stop a service as Docker does, and return its exit code."""
        process = self._processes[name]
        process.terminate()
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def log(self, name: str) -> Path:
        """Return the file of a service's output."""
        return self._folder / f"{name}.log"

    def _wait_for(self, name: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            if code := self.wait(name):
                raise SystemExit(f"{name} has failed with {code}: see {self.log(name)}")
            return
        self.wait_until_healthy(name)

    def wait_until_healthy(self, name: str) -> None:
        """Wait until a service's health check succeeds."""
        end = time.monotonic() + _PATIENCE_SECONDS
        check = self._services[name]["healthcheck"]["test"][1:]
        while self._popen(name, check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait():
            if self._processes[name].poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{name} is not healthy: see {self.log(name)}")
            time.sleep(0.5)

    def _popen(self, name: str, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        paths = [str(self._folder / "bin"), os.environ["PATH"]]
        environment = os.environ | {"PATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=self._home(name), env=environment, **more)

    def _home(self, name: str) -> Path:
        """Return a service's working directory."""
        return self._folder / "services" / name

    def _mount(self, name: str) -> None:
        """Make a service's working directory, with the image's files and links to its volumes."""
        home = self._home(name)
        home.mkdir(parents=True, exist_ok=True)
        for file in image_files():
            shutil.copyfile(file, home / file.name)
        settings = (home / "server.toml").read_text(encoding="utf-8")
        for old, new in self._changes.items():
            settings = settings.replace(old, new)
        (home / "server.toml").write_text(settings, encoding="utf-8")
        for volume in self._services[name].get("volumes", []):
            source, target = volume.removesuffix(":ro").split(":")
            path, link = self.volumes / source, home / Path(target).relative_to(WORKING_DIRECTORY)
            path.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(path)
