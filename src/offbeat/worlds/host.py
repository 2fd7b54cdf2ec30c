"""From the file of a server of several runs to a running server."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from offbeat_core.serving.certificates import Certificates

from offbeat.config.host_file import HostFile, parse_run
from offbeat.service.hosting.hosted_run import Prepare, PreparedRun
from offbeat.service.hosting.hosting import HostListening, HostSettings, host
from offbeat.service.server.event_loop import run_until_a_signal
from offbeat.worlds.serve import certificates_of, prepared


def run_host(file: HostFile, folder: Path, ready: Callable[[HostListening], None], fronts: int = 0) -> None:
    """Run a server of several runs until SIGTERM or Ctrl-C.

    ``ready`` is called when it listens. Runs may name files in ``folder``. So many ``fronts`` serve sites in processes
    of their own.
    """
    certificates = certificates_of(file.service)
    settings = HostSettings(
        folder=Path(file.service.folder),
        service=file.service,
        certificates=certificates,
        login=file.login and file.login.settings(),
        front_processes=fronts,
    )
    prepare = preparing(file, folder, certificates, fronts)
    run_until_a_signal(lambda stop: host(settings, prepare, ready=ready, stop=stop))


def preparing(file: HostFile, folder: Path, certificates: Certificates | None = None, fronts: int = 0) -> Prepare:
    """Return what prepares the runs of a server; they may name files in ``folder``."""

    @contextmanager
    def prepare(name: str, text: str) -> Generator[PreparedRun]:
        run, admission, quota = parse_run(text, name, file, folder)
        with prepared(run, lambda: certificates, fronts) as (run_settings, coordinator, layout):
            limited = replace(run_settings, upload_budget=int(min(quota.uploads_gb * 1e9, 2.0**63)))
            yield PreparedRun(limited, coordinator, layout, admission.rule(), quota.requests_a_second)

    return prepare
