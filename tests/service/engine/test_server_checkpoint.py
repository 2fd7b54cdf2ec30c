import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.service.engine import server_checkpoint as checkpoint
from offbeat.service.engine.server_checkpoint import CheckpointSchedule
from offbeat.service.refusal import no_space
from offbeat.tensor_file import read_checkpoint
from tests.service.conftest import LENGTH, Peer, body_of, running
from tests.service.http_client import ONES, check_log, check_progress, put_in_pieces, until


def test_a_checkpoint_deletes_nothing_that_an_upload_under_way_needs(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        peers = [server.enrol() for _ in range(4)]
        loop, stop = server.loop, threading.Event()

        def checkpoints() -> None:
            while not stop.is_set():
                asyncio.run_coroutine_threadsafe(server.checkpoints.write(), loop).result(10)

        def uploads(peer: Peer) -> None:
            for number in range(25):
                visit = peer.check_in()
                send = put_in_pieces if number % 3 == 0 else peer.put
                answer = send(peer, visit, body_of(ONES)) if send is put_in_pieces else peer.put(visit, body_of(ONES))
                assert answer.json()["receipt"]["counted"]

        with ThreadPoolExecutor(5) as pool:
            checks = pool.submit(checkpoints)
            for done in [pool.submit(uploads, peer) for peer in peers]:
                done.result(30)
            stop.set()
            checks.result(10)
        check_log(server.folder)
        assert server.service.engine.coordinator.statistics.counted == 100
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        assert server.service.engine.coordinator.statistics.counted == 100
        assert torch.equal(server.service.engine.coordinator.algorithm.state_dict()["buffer.sum"], 100 * ONES)


def test_a_checkpoint_keeps_the_newest_version_that_has_a_file(tmp_path, monkeypatch):
    write, began, goes_on = checkpoint.write_checkpoint, threading.Event(), threading.Event()

    def slowly(path, state):
        began.set()
        goes_on.wait(10)
        write(path, state)

    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1)) as server:
        peer = server.enrol()
        visit = peer.check_in()
        monkeypatch.setattr(checkpoint, "write_checkpoint", slowly)
        written = asyncio.run_coroutine_threadsafe(server.checkpoints.write(), server.loop)
        assert began.wait(10)
        peer.send(visit, ONES)
        peer.send(peer.check_in(), ONES)  # version 2, which no visit has asked for
        goes_on.set()
        written.result(10)
        assert peer.http.get("/v1/models/latest").headers["location"] == "1"
        assert peer.http.get("/v1/models/1").status_code == 200


def test_checkpoints_are_written_one_at_a_time(tmp_path, monkeypatch):
    """Also if one is cancelled while it is written, as the scheduled one may be when the server stops."""
    write, at_once, began = checkpoint.write_checkpoint, [0, 0], threading.Event()

    def slowly(path, state):
        at_once[0] += 1
        at_once[1] = max(at_once)
        began.set()
        time.sleep(0.1)  # so that the others begin before this one ends
        write(path, state)
        at_once[0] -= 1

    with running(tmp_path / "server") as server:
        monkeypatch.setattr(checkpoint, "write_checkpoint", slowly)
        peer = server.enrol()
        peer.send(peer.check_in(), torch.ones(LENGTH))
        cancelled = asyncio.run_coroutine_threadsafe(server.checkpoints.write(), server.loop)
        assert began.wait(10)
        cancelled.cancel()
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(server.checkpoint) for _ in range(3)]
        assert [each.result() for each in made] == [None] * 3
        assert at_once == [0, 1]
        (path,) = (server.folder / "checkpoints").glob("*.safetensors")
        assert read_checkpoint(path)["coordinator.statistics.counted"] == 1


def test_the_reserve_has_room_for_a_checkpoint_a_model_and_the_log(tmp_path):
    with running(tmp_path / "server") as server:
        server.checkpoint()
        files = [
            next((server.folder / name).glob("*.safetensors")).stat().st_size for name in ("checkpoints", "models")
        ]
        assert server.checkpoints.reserve_size == sum(files) + 2**23


class Engine(SimpleNamespace):
    """As much of an engine as a schedule looks at."""

    def __init__(self):
        self.disk = SimpleNamespace(problem=None, keep_reserve=self.keep_reserve, refusal=self.failures)
        self.log_writer = SimpleNamespace(
            number=0,
            is_blocked=False,
            tidy=self.tidy,
            wait_until_durable=self.wait_until_durable,
        )
        self.calls = SimpleNamespace(stored_bytes=0)
        self.publisher = SimpleNamespace(problem=None, publish=self.publish)
        self.lock = asyncio.Lock()
        self.run = SimpleNamespace(now=0.0)
        self.shared = None
        self.done = []
        self.has_room = self.has_files = True
        self.log_problem = None

    async def tidy(self):
        self.done.append("tidy")

    def failures(self, error):
        self.done.append(error)

    async def wait_until_durable(self, *, on_reserve):
        assert on_reserve
        if self.log_problem:
            raise no_space(self.log_problem)

    async def publish(self):
        assert self.lock.locked()
        self.done.append("publish")
        if not self.has_files:
            raise no_space("too many open files")
        self.publisher.problem = None

    def keep_reserve(self, _):
        self.done.append("reserve")
        if self.has_room:
            self.disk.problem = None
        return self.has_room


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(checkpoint, "_LOOK_SECONDS", 0.001)
    return Engine()


def made(engine, *, error=None, seconds=30.0, took=0.0):
    """Let the schedule look some times; return what it has done."""

    async def write():
        engine.run.now += took
        engine.done.append("checkpoint")
        if took:  # updates have arrived
            engine.log_writer.number += 1
            engine.calls.stored_bytes += 1000
        if error:
            raise error

    checkpoints = SimpleNamespace(write=write, reserve_size=0)

    async def look():
        schedule = asyncio.create_task(CheckpointSchedule(engine, checkpoints, seconds=seconds, max_bytes=1000).run())
        await asyncio.sleep(0.005)
        engine.done.clear()
        engine.change()
        await asyncio.sleep(0.03)
        schedule.cancel()
        await asyncio.gather(schedule, return_exceptions=True)

    asyncio.run(look())
    return engine.done


def changes(**values):
    def change(engine):
        for name, value in values.items():
            holder = engine
            *path, last = name.split("__")
            for part in path:
                holder = getattr(holder, part)
            setattr(holder, last, value)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"run__now": 29.0, "log_writer__number": 1}, [], id="too early"),
        pytest.param({"run__now": 31.0, "log_writer__number": 1}, ["checkpoint"], id="time has passed"),
        pytest.param({"run__now": 31.0}, [], id="nothing has happened"),
        pytest.param({"calls__stored_bytes": 999, "log_writer__number": 1}, [], id="few bytes"),
        pytest.param({"calls__stored_bytes": 1000, "log_writer__number": 1}, ["checkpoint"], id="many bytes"),
        pytest.param({"disk__problem": "full", "log_writer__number": 1}, ["checkpoint", "tidy", "reserve"], id="full"),
        pytest.param({"disk__problem": "full"}, ["tidy", "reserve"], id="full, and nothing to free"),
    ],
)
def test_a_checkpoint_is_made_when_it_is_due_and_there_is_something_new(change, expected, engine):
    engine.change = lambda: changes(**change)(engine)
    assert made(engine) == expected


def test_the_reserve_is_left_to_a_log_that_cannot_be_written(engine):
    engine.change = lambda: changes(disk__problem="full", log_writer__is_blocked=True)(engine)
    assert made(engine) == []


def test_without_room_for_the_reserve_it_is_tried_again(engine):
    engine.change = lambda: changes(disk__problem="full", has_room=False)(engine)
    assert made(engine)[:4] == ["tidy", "reserve"] * 2


def test_a_version_that_could_not_be_written_is_written_once_there_is_room(engine):
    engine.change = lambda: changes(publisher__problem="no space", disk__problem="full")(engine)
    assert made(engine) == ["tidy", "reserve", "publish"]
    engine.change = lambda: changes(publisher__problem="no space", disk__problem="full", has_room=False)(engine)
    assert "publish" not in made(engine)


def test_a_version_that_still_cannot_be_written_is_tried_again(engine):
    engine.change = lambda: changes(publisher__problem="too many open files", has_files=False)(engine)
    assert made(engine)[:2] == ["publish", "publish"]


def test_the_reserve_is_kept_once_the_log_is_on_disk(engine):
    engine.change = lambda: changes(disk__problem="full", log_problem="no space")(engine)
    assert made(engine)[:2] == ["tidy", "tidy"]
    assert engine.disk.problem


def test_checkpoints_that_take_long_are_rare(engine):
    engine.change = lambda: changes(calls__stored_bytes=5000, log_writer__number=1)(engine)
    assert made(engine, took=10.0) == ["checkpoint"]
    assert engine.disk.problem is None


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), no_space("full")])
def test_a_failed_checkpoint_is_reported_and_made_again_later(error, engine):
    engine.change = lambda: changes(run__now=31.0, log_writer__number=1)(engine)
    done = made(engine, error=error)
    assert done == (["checkpoint", error] if isinstance(error, OSError) else ["checkpoint"])


def stored_bytes(server):
    """Return how many bytes of updates lie in the server's folder."""
    rooms = [server.folder / name for name in ("updates", "partial")]
    return sum(path.stat().st_size for room in rooms for path in room.iterdir())


def test_many_bytes_are_checkpointed_before_it_is_time(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_MAX_SHARE", 1.0)  # else the next one comes the later the slower the disk is
    stored = 12 * len(body_of(ONES))  # so that the checkpoint covers all
    with running(
        tmp_path / "server", lambda: FedBuff(buffer_size=2), checkpoint_seconds=1e6, checkpoint_bytes=stored
    ) as server:
        peers = [server.enrol() for _ in range(2)]
        (first,) = (server.folder / "checkpoints").iterdir()
        for _ in range(6):
            check_progress(server, peers)
        until(lambda: not first.exists(), seconds=60.0)
        until(lambda: stored_bytes(server) < stored, seconds=60.0)
        check_log(server.folder)
