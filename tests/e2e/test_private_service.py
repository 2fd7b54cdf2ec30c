"""Server, helper and clients as processes that are killed: each model is that of the same updates in the clear.

``OFFBEAT_PRIVATE_KILLS`` says how often each kind of process is killed; ``make torture`` does 200.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.e2e.private_client import STEP, whole_numbers
from tests.e2e.private_service import CLIENTS, PrivateService
from tests.e2e.server_process import Launcher

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")

KILLS = int(os.environ.get("OFFBEAT_PRIVATE_KILLS", "1"))


class Case(NamedTuple):
    """An algorithm, and the divisor of its sums, a power of two, so that the arithmetic is exact."""

    algorithm: str
    divisor: int
    least: int = 2
    places: int = CLIENTS
    payload: str = "delta"


CASES = {
    "fedbuff": Case("buffer_size = 2\nconcurrency = 4\nstaleness.name = 'constant'", 2),
    "fedlaavg": Case("cohort = 2\nweighting = 'uniform'", CLIENTS, payload="difference"),
    "mifa": Case("weighting = 'uniform'", CLIENTS, payload="difference"),
    "fedluck": Case("period = 0.2", CLIENTS, least=CLIENTS, places=CLIENTS + 1),  # its sums are those of all four
    "async_comm_sgd": Case("period = 0.2\nweighting = 'uniform'", CLIENTS),
}
QUICK = ("fedbuff", "fedlaavg")


def model_in_the_clear(sums: list[list[tuple[int, int]]], case: Case) -> list[float]:
    """Return the model after the versions of these updates."""
    model, latest = np.zeros(4), dict[int, list[int]]()
    for updates in sums:
        now = {client: whole_numbers(client, visit) for client, visit in updates}
        latest = latest | now if case.payload == "difference" else now
        model -= STEP * np.sum(list(latest.values()), axis=0) / case.divisor
    return model.tolist()


def check(service: PrivateService, final: dict[str, Any], case: Case) -> tuple[int, list[list[tuple[int, int]]]]:
    """Check the model against that of the helper's sums, and what counted against what clients were told.

    Returns how many updates counted, and the sums. ``final`` is the last status.
    """
    sums, received = service.sums(), service.received()
    assert service.version() == len(sums) == final["version"]
    assert all(case.least <= len(updates) == len(dict(updates)) for updates in sums)
    assert service.model() == model_in_the_clear(sums, case)
    for client, visits in service.acknowledged().items():
        assert set(visits) <= set(received[client])  # none is lost,
        assert len(received[client]) == len(set(received[client]))  # and none counts twice
    counted = sum(map(len, received.values()))
    assert (final["counted"], final["unused"], final["privacy"]["sums_discarded"]) == (counted, 0, 0)
    at_work = final["assigned"] - counted - final["lost"]
    assert 0 <= at_work <= CLIENTS
    assert 0 <= counted - sum(map(len, sums)) < case.least + CLIENTS  # wait for the next sum
    return counted, sums


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in CASES if name not in QUICK)]
)
def test_a_private_run_survives_kills_of_server_helper_and_clients(
    name: str, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")  # shown if the test fails
    numbers, case = random.Random(seed), CASES[name]
    service = PrivateService(
        launcher, tmp_path, f"algorithm = '{name}'\n{case.algorithm}", least=case.least, places=case.places,
        payload=case.payload,
    )  # fmt: skip
    for _ in range(KILLS):
        service.kill(numbers)
    final = service.end()
    assert service.killed == {"server": KILLS, "helper": KILLS, "client": KILLS}

    counted, sums = check(service, final, case)
    summed = sum(map(len, sums))
    say(
        f"{name}: {KILLS} kills each of server, helper and clients, {len(sums)} versions, {final['assigned']} updates "
        f"assigned, {counted} counted, {summed} of them in sums, {final['lost']} lost"
    )
