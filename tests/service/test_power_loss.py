"""Acknowledged updates survive a loss of power.

Each fsync is needed for that.
"""

import asyncio
import math
from contextlib import closing

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.coordinator import Coordinator
from offbeat.service.engine.start_up import open_engine
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.store import Store
from tests.service.conftest import PLAN, body_of, running
from tests.service.power import Power

LENGTH = 300_000  # more than a megabyte: a file of its own
LAYOUT = [("w", (LENGTH,))]
SMALL_LENGTH = 6
SMALL_LAYOUT = [("w", (SMALL_LENGTH,))]


def algorithm():
    return FedBuff(buffer_size=2, concurrency=4, staleness=constant())


async def recovered(folder, length, layout):
    """Restart from the files; return the number of updates that count, and the models of all available versions."""
    coordinator = Coordinator(algorithm(), torch.zeros(length), clients=5, local=PLAN, seed=7)
    with closing(Store(folder)) as store:
        engine, _ = await open_engine(store, coordinator, layout, ServerSettings(folder=folder), lambda error: None)
        models = [(version, engine.models.read(version).clone()) for version in engine.run.needed_versions()]
        models.append((coordinator.statistics.counted // 2, coordinator.algorithm.model.clone()))
        await engine.close()
    return coordinator.statistics.counted, models


def holds(folder, acknowledged, length, layout):
    """Return whether all that was acknowledged is there, in full."""
    try:
        counted, models = asyncio.run(recovered(folder, length, layout))
    except Exception:  # whatever comes of files that are not what they should be
        return False
    return counted >= acknowledged and all((model == -version).all() for version, model in models)


def survives(tmp_path, length, layout, without=None):
    """Lose the power after each answer of a run; return whether nothing was lost, and how many fsyncs were left out."""
    power = Power(tmp_path / "server", without)
    moments = []
    with (
        power.on(),
        running(
            tmp_path / "server", algorithm, model=torch.zeros(length), layout=layout, checkpoint_seconds=math.inf
        ) as server,
    ):

        def lose(acknowledged):
            target = tmp_path / f"after{len(moments)}"
            power.lose(target)
            moments.append((target, acknowledged))

        assert server.enrol().check_in()["version"] == 0  # it stays at work, and may ask for its model again
        peers = [server.enrol() for _ in range(3)]
        counted = 0
        for turn in range(4):
            visits = [peer.check_in() for peer in peers]
            lose(counted)
            for peer, visit in zip(peers, visits, strict=True):
                answer = peer.put(visit, body_of(torch.ones(length)))
                assert answer.json()["receipt"]["counted"]
                counted += 1
                lose(counted)
            if turn % 2:
                server.checkpoint()
                lose(counted)
    return all(holds(folder, acknowledged, length, layout) for folder, acknowledged in moments), power.left_out


@pytest.mark.parametrize(("length", "layout"), [(SMALL_LENGTH, SMALL_LAYOUT), (LENGTH, LAYOUT)], ids=["small", "large"])
def test_whenever_the_power_is_lost_all_that_was_acknowledged_is_there(length, layout, tmp_path):
    assert survives(tmp_path, length, layout) == (True, 0)


@pytest.mark.parametrize(
    "without",
    [(what, name) for name in ("updates", "models", "checkpoints") for what in ("file", "folder")],
    ids=" ".join,
)
def test_without_any_one_fsync_something_is_lost(without, tmp_path):
    sizes = [(SMALL_LENGTH, SMALL_LAYOUT), (LENGTH, LAYOUT)]
    for length, layout in sizes[1:] if "updates" in without else sizes[:1]:
        held, left_out = survives(tmp_path / str(length), length, layout, without)
        assert left_out > 0
        assert not held
