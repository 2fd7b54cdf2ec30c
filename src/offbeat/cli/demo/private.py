"""``offbeat demo --private``: a helper opens sums of masked updates."""

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from offbeat_client.private_updates import public_key
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_table
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.helper.helper_database import HelperDatabase
from offbeat_private.helper.helper_folder import HelperFolder
from offbeat_private.helper.roster import enrol, parse_roster

from offbeat.cli.demo.demo_run import DemoRun, Say, accuracy_line, dataset_or_digits, demo_run, free_port, server_file
from offbeat.config.server_file import load
from offbeat.data.dataset import Dataset
from offbeat.worlds.workload import build_model

_CLIP_NORM = 2.0  # seldom less than the norm of a client's update
_RECEIPT = re.compile(r"visit (\d+): counted\b", re.MULTILINE)


def run_private_demo(
    say: Say,
    folder: Path = Path("runs/demo"),
    *,
    data: str = "fashion-mnist",
    clients: int = 8,
    versions: int = 40,
    steps: int = 50,
) -> None:
    """Run a demo with masks; for folder, processes and signals see ``demo_run``."""
    with demo_run(say, folder, clients, versions) as run:
        dataset = dataset_or_digits(data, say)
        say(f"A server, a helper and {clients} clients learn {dataset.name}, each in a process of its own")
        _prepare(run, folder, dataset, versions, steps)
        run.start_server()
        run.join("--terms", str(HelperFolder(folder / "helper").terms))
        say(f"Clients mask their updates, and the helper opens sums of {run.buffer_size} or more clients")
        victims = [f"client-{clients // 3}", "helper", "server", f"client-{2 * clients // 3}", "helper", "server"]
        run.kill(victims)
        final = run.final_status()
        _say_opened(say, run, folder, final["counted"])
        say("Killed: 2 clients, 2 times the helper, 2 times the server")
        say(accuracy_line(final, dataset))


def _prepare(run: DemoRun, folder: Path, dataset: Dataset, versions: int, steps: int) -> None:
    """Make keys, enrol the helper and start it, write the server's file."""
    port = free_port()
    agreed: dict[str, Any] = {
        "min_clients": run.buffer_size,
        "clip_norm": _CLIP_NORM,
        "max_participations": versions,  # a client is in a version once, so this is not a limit
    }
    run.write_server_file(
        data=dataset.name,
        steps=steps,
        service={
            "helper_terms": "helper/terms.json",
            "helper_token_file": "helper-token",
            "helper_ca": "helper/tls/ca.pem",
        },
        privacy={"helper": f"https://127.0.0.1:{port}", **agreed},
    )
    file = load(server_file(folder))
    model = build_model(file.model, dataset, 0)
    terms = {
        "length": model.vector.numel(),
        "buffer": 2 * run.buffer_size - 1,  # a refused sum's updates go into the next one
        "noise_multiplier": 0.0,
        "delta": 1e-5,
        **agreed,
    }
    local = file.local.model_dump(include=set(AgreedPlan.model_fields), exclude_none=True)
    roster = folder / "roster.toml"
    keys = {name: public_key(home) for name, home in run.homes().items()}
    roster.write_text(tomli_w.dumps({"terms": terms, "local": local, "clients": keys}), encoding="utf-8")
    enrolled = enrol(parse_roster(read_table(roster), roster), folder / "helper", ["127.0.0.1"])
    (folder / "helper-token").write_text(enrolled.token, encoding="ascii")
    run.start("helper", "helper", "serve", "--folder", str(folder / "helper"), "--port", str(port))


def _say_opened(say: Say, run: DemoRun, folder: Path, counted: int) -> None:
    """Report the updates that counted, their sums, and ε."""
    with closing(HelperDatabase(folder / "helper", read_only=True)) as store:
        sizes = store.batch_sizes()
    say(f"{counted} updates counted; the server has seen none of them, only masked vectors and opened sums")
    enough = sum(size >= run.buffer_size for size in sizes)
    say(f"{enough} of {len(sizes)} sums that the helper opened have {run.buffer_size} or more distinct clients")
    found = receipts({name: folder / f"{name}.log" for name in run.homes()}, folder / "helper")
    if found.lost:
        raise OffbeatError(f"{found.lost} of {found.total} updates were lost: please report it, with {folder}")
    say(
        f"No update was lost: of {found.total} with a receipt, {found.in_sums} are in these sums and {found.waiting} "
        "wait for the next one"
    )
    say(
        f"ε: no limit, since masks alone hide updates here; noise that hides one of {len(run.homes())} clients would "
        "hide the model, too"
    )


class Receipts(NamedTuple):
    """Numbers of acknowledged updates, by their place.

    Attributes:
        in_sums: In a sum that the helper has opened.
        waiting: Newer than the client's last opened one.
        lost: In no sum, though a newer one of the client is.
    """

    in_sums: int
    waiting: int
    lost: int

    @property
    def total(self) -> int:
        """All receipts."""
        return sum(self)


def receipts(logs: Mapping[str, Path], helper: Path) -> Receipts:
    """Compare the clients' log files, by name, with the folder of the helper.

    The two were written by different processes than the server.
    """
    with closing(HelperDatabase(helper, read_only=True)) as store:
        names, histories = store.roster(), store.opened().histories
    in_sums = waiting = lost = 0
    for key, name in names.items():
        visits = {int(visit) for visit in _RECEIPT.findall(logs[name].read_text(encoding="utf-8"))}
        history = histories[key]
        due = sum(visit <= history.visit for visit in visits)
        in_sums += min(due, history.participations)
        lost += max(0, due - history.participations)
        waiting += len(visits) - due
    return Receipts(in_sums, waiting, lost)
