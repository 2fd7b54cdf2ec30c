"""The README of ``offbeat new --template service`` as a newcomer follows it.

Its commands run in their order, as they stand there: the server and the sites in the background, all others to their
end. In between the page is opened, and the server and a site are killed and started again.
"""

import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
LASTING = ("offbeat server start ", "offbeat join ")
_PATIENCE_SECONDS = 120.0


class Federation:
    """The processes of a folder that ``offbeat new`` wrote; none outlives the context.

    Attributes:
        seconds: The time that all steps took.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        readme = (folder / "README.md").read_text(encoding="utf-8")
        self._steps = [COMMAND.findall(part) for part in readme.split("\n## ")[1:]]
        self._titles = [part.partition("\n")[0] for part in readme.split("\n## ")[1:]]
        (self._server,) = self._commands("Start the server")
        self._sites = [command for command in self._commands("Join") if command.startswith(LASTING)]
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def follow(self) -> None:
        """Carry out all steps."""
        self._step("the server starts", self._start_server)
        self._step("three sites join", self._join)
        self._step("a token for another site is made", lambda: self._run_all("Join"))
        self._step("the page is opened", self._open_page)
        self._step("status, clients, readiness", lambda: self._run_all("Watch"))
        self._step("the run is paused, resumed, extended; a site is revoked", self._control)
        self._step("the server is killed and started again", self._kill_server)
        self._step("a site is killed and started again", self._kill_site)
        self._step("a backup is made and restored", self._restore)
        self._step("the model is exported", lambda: self._run_all("Take the model"))

    def _step(self, what: str, carry_out: Callable[[], None]) -> None:
        began = time.monotonic()
        carry_out()
        seconds = time.monotonic() - began
        self.seconds += seconds
        print(f"{seconds:7.1f} s  {what}", flush=True)

    def _commands(self, title: str) -> list[str]:
        (found,) = [step for name, step in zip(self._titles, self._steps, strict=True) if title in name]
        return found

    def _run_all(self, title: str) -> None:
        for command in self._commands(title):
            if not command.startswith(LASTING):
                self._run(command)

    def _run(self, command: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=self._folder, env=self._variables, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _start(self, command: str) -> None:
        with self._log(command).open("wb") as log:
            self._processes[command] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], cwd=self._folder, env=self._variables, stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _log(self, command: str) -> Path:
        return self._folder / f"{command.split()[-1]}.log"

    def _end(self, command: str, number: signal.Signals) -> None:
        self._processes[command].send_signal(number)
        self._processes[command].wait(_PATIENCE_SECONDS)

    def _until(self, what: str, is_so: Callable[[], Any]) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > end:
                logs = "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self._folder.glob("*.log")))
                sys.exit(f"not within {_PATIENCE_SECONDS:.0f} s: {what}\n{logs}")
            time.sleep(0.2)

    def _start_server(self) -> None:
        self._start(self._server)
        self._until("the server listens", lambda: b"Listening" in self._log(self._server).read_bytes())

    def _join(self) -> None:
        for command in self._sites:
            self._start(command)
        self._until("three sites' updates count", lambda: sum(count > 0 for count in self._counted().values()) == 3)

    def _counted(self) -> dict[str, int]:
        """Return the number of counted updates by site."""
        listed = json.loads(self._run("offbeat server clients list server --json"))
        return {client["name"]: client["counted"] for client in listed["clients"]}

    def _site_works(self, number: int) -> None:
        """Wait until more updates of a site count."""
        before = self._counted()
        assert len(before) == 3, before
        name = f"site-{number}"
        self._until(f"{name} works on", lambda: self._counted()[name] > before[name])

    def _open_page(self) -> None:
        (url,) = set(re.findall(r"https://localhost:\d+/", (self._folder / "README.md").read_text("utf-8"))) - {""}
        trusted = ssl.create_default_context(cafile=self._folder / "server/tls/ca.pem")
        with urllib.request.urlopen(url, context=trusted) as page:
            assert b"<title>" in page.read()
        token = (self._folder / "server/admin-token").read_text().strip()
        request = urllib.request.Request(f"{url}v1/admin/clients", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=trusted) as answer:
            assert len(json.load(answer)["clients"]) == 3

    def _control(self) -> None:
        self._run_all("Pause")
        site = self._sites[2]
        self._until("the revoked site ends", lambda: self._processes[site].poll() is not None)
        assert b"revoked" in self._log(site).read_bytes()
        self._site_works(0)

    def _kill_server(self) -> None:
        before = self._counted()
        self._end(self._server, signal.SIGKILL)
        self._start_server()
        assert all(now >= then for now, then in zip(self._counted().values(), before.values(), strict=True))
        self._site_works(1)

    def _kill_site(self) -> None:
        self._end(self._sites[0], signal.SIGKILL)
        self._start(self._sites[0])
        self._site_works(0)

    def _restore(self) -> None:
        back_up, *restore = self._commands("Back up")
        self._run(back_up)
        self._end(self._server, signal.SIGINT)
        for command in restore:
            self._run(command)
        self._start_server()
        self._site_works(0)
