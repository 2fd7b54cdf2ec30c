"""A server of several runs that is killed again and again: what it acknowledged counts once, in its own run.

``OFFBEAT_SERVER_KILLS`` says how often; ``make torture`` does 200.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.e2e.client_processes import ClientProcess, Notes
from tests.e2e.flapping import FEDAVG, FEDBUFF, check_counts, vector_of
from tests.e2e.host_process import LENGTH, FlappingSite, Host, Operator
from tests.e2e.server_process import Launcher, until
from tests.e2e.test_service_bad_lines import encoded, learnt
from tests.e2e.undisturbed import Undisturbed
from tests.service.conftest import body_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "2"))
SITES, CLIENTS = 6, 20
RUNS = {"all": (FEDBUFF, []), "gpu": (FEDAVG, ["gpu"])}
MOST_RUNS = 4
_VERSIONS = 10**6


def test_killed_at_random_each_run_has_its_own_updates_once(
    launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers, stop = random.Random(seed), threading.Event()
    salts = {name: number for number, name in enumerate([*RUNS, *(f"run-{n}" for n in range(MOST_RUNS))])}
    with Host(launcher, tmp_path, CLIENTS) as server:
        server.start()
        operator = Operator(server, MOST_RUNS, stop, numbers.randrange(2**32))
        for name, (algorithm, labels) in RUNS.items():
            operator.create(name, algorithm, labels, _VERSIONS)
        tokens = [operator.token(), operator.token("gpu")]
        sites = [
            FlappingSite(server.url, tokens[number % 2], salts, stop, numbers.randrange(2**32))
            for number in range(SITES)
        ]
        gate = tmp_path / "gate"
        gate.write_text(str(10**9))
        url, token = f"{server.url}/runs/gpu", operator.token_of("gpu")  # of a client that joins a run itself
        own = ClientProcess(launcher, tmp_path / "own", url=url, token=token, gate=str(gate))
        for thread in (operator, *sites):
            thread.start()

        def acknowledged(run: str) -> int:
            return sum(len(site.at[run].told) for site in sites if run in site.at)

        def until_more(run: str) -> None:
            before, done = acknowledged(run), operator.done
            until(lambda: (acknowledged(run) > before and operator.done > done + 2) or operator.problems)

        try:
            for number in range(KILLS):
                until_more(numbers.choice(list(RUNS)))
                time.sleep(numbers.uniform(0.0, 0.3))
                assert server.kill() == signal.SIGKILL
                if number % 3 == 1:
                    own.strike()
                    own.start_again()
                server.start()
            for name in RUNS:
                until_more(name)
            until(lambda: own.notes().receipts())
        finally:
            stop.set()
            for thread in (operator, *sites):
                thread.join(60)
            own.strike()
            own.wait()
        assert server.kill(signal.SIGTERM) == 0
    assert [*operator.problems, *(problem for site in sites for problem in site.problems)] == []
    assert len({site.root.client for site in sites}) == SITES
    for name in operator.runs:
        check_run(server, name, sites, own.notes() if name == "gpu" else None, salts[name])
    total = {name: acknowledged(name) for name in operator.runs}
    say(f"{KILLS} kills, {operator.done} changes by the operator, updates acknowledged by run: {total}")


def check_run(server: Host, run: str, sites: list[FlappingSite], own: Notes | None, salt: int) -> None:
    """Check a run of a stopped server against the one that its log describes."""
    is_own = False  # which encodes its updates in another way

    def delta(client: int, visit: int, start: Tensor, offset: Tensor | None) -> Tensor:
        nonlocal is_own
        is_own = own is not None and client == own.number
        return learnt(client, visit, start, offset) if is_own else vector_of(client, visit, LENGTH, salt)

    def body(vector: Tensor) -> bytes:
        return encoded(vector) if is_own else body_of(vector)

    folder = server.folder / "runs" / run
    undisturbed = Undisturbed(server.files[run], folder, delta, body)
    check_counts(folder, undisturbed)
    if undisturbed.coordinator.algorithm.version == 0:  # created, and no more
        return
    flapping = [site.at[run] for site in sites if run in site.at]
    undisturbed.check({(each.client, visit): receipt for each in flapping for visit, receipt in each.told.items()})
    for each in flapping:
        if each.digests:
            undisturbed.check_reads(each.digests)
    if own is not None:
        for visit, counted in own.receipts().items():
            receipt = undisturbed.receipts.get((own.number, visit))
            assert counted is (receipt is not None and receipt.counted)
