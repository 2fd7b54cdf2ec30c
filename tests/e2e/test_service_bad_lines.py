"""Clients that are killed, on bad lines, at a server that is killed: what counted counts once, and nothing is lost.

``OFFBEAT_SERVER_KILLS`` says how often somebody is killed; ``make torture`` does 200.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from tests.e2e.client_processes import Notes
from tests.e2e.flaky_proxy import FlakyProxy
from tests.e2e.killing import VICTIMS, World
from tests.e2e.launcher_program import trained
from tests.e2e.server_process import Launcher, Server
from tests.e2e.trouble import TROUBLES
from tests.e2e.undisturbed import Undisturbed

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "3"))
CLIENTS = 5
SMALL_LENGTH, LARGE_LENGTH = 20, 300_000  # updates below and above 1 MiB go different ways
FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 5"
FEDLAAVG = "algorithm = 'fedlaavg'\ncohort = 3"
SCAFFOLD = "algorithm = 'scaffold'\ncohort = 3\nserver_lr = 0.1"
# Where updates of an earlier version count, those who passed the gate before may make another one.
RUNS = {
    "fedbuff": (FEDBUFF, SMALL_LENGTH, 2),
    "fedlaavg with large models": (FEDLAAVG, LARGE_LENGTH, 1),
    "scaffold": (SCAFFOLD, SMALL_LENGTH, 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_whoever_dies_and_whatever_the_line_does_each_update_counts_once(
    name: str, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    algorithm, length, versions_a_kill = RUNS[name]
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")  # shown if the test fails
    numbers = random.Random(seed)
    # In CI each of the three runs kills a third of the kinds, once.
    victims = KILLS // len(VICTIMS) * VICTIMS or VICTIMS[list(RUNS).index(name) :: len(RUNS)]
    numbers.shuffle(victims)
    # Without who is away for long there is another version.
    versions = versions_a_kill * sum(1 + ("for long" in victim) for victim in victims) + 6
    server = Server(launcher, tmp_path, algorithm, length, CLIENTS, versions)
    with server, FlakyProxy(server.port, numbers.randrange(2**32)) as proxy:
        world = World(server, proxy, launcher, tmp_path, CLIENTS, numbers)
        try:
            for victim in victims:
                world.kill(victim)
            world.let_hearts_beat()
            world.end(versions)
        finally:
            for client in world.clients:
                print(client.said)

    assert proxy.witness.problems == []
    assert world.killed == Counter(victims)
    undisturbed = Undisturbed(server.file, server.folder, learnt, encoded)
    undisturbed.check(proxy.witness.told)
    assert proxy.witness.reads.problems == []
    undisturbed.check_reads(proxy.witness.reads.digests)
    for client in world.clients:
        check_notes(client.notes(), undisturbed)
    check_troubles(proxy, is_large=length == LARGE_LENGTH)
    told = proxy.witness.told.values()
    say(
        f"{len(victims)} kills, {len(told)} updates acknowledged, {sum(receipt.counted for receipt in told)} counted, "
        f"{sum(proxy.done.values())} requests"
    )


def learnt(client: int, visit: int, start: Tensor, offset: Tensor | None) -> Tensor:
    added = None if offset is None else {"weight": offset.view(1, -1)}
    return start - trained({"weight": start.view(1, -1)}, client, visit, added)["weight"].view(-1)


def encoded(vector: Tensor) -> bytes:
    return save({"update": vector})


def check_notes(client: Notes, undisturbed: Undisturbed) -> None:
    """Check that what a client has noted is what the log says."""
    number = client.number
    assert number is not None
    for visit, counted in client.receipts().items():
        receipt = undisturbed.receipts.get((number, visit))
        assert counted is (receipt is not None and receipt.counted)
    assert client.last() == undisturbed.last.get(number)
    memory, expected = client.memory(), undisturbed.memories.get(number)
    assert (memory is None) is (expected is None)
    if memory is not None and expected is not None:
        assert torch.equal(memory, expected)


def check_troubles(proxy: FlakyProxy, *, is_large: bool) -> None:
    """Check that what can go wrong on a line did."""
    assert "other" not in {kind for kind, _ in proxy.done}, "there are requests that the proxy does not know"
    # The rest of an upload is asked for only when its beginning was cut off, which is too rare in CI's few updates.
    kinds = ["check-in", "upload", "heartbeat", "download", *(["rest"] if is_large and len(VICTIMS) <= KILLS else [])]
    assert [(kind, trouble) for kind in kinds for trouble in TROUBLES if not proxy.done[kind, trouble]] == []
