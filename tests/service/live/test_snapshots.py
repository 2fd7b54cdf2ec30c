import asyncio
import json
import time

import pytest

from offbeat.service.live import snapshots as module
from offbeat.service.live.run_history import RunHistory
from offbeat.service.live.snapshots import MOST_PAGES, Snapshots
from offbeat.service.refusal import Refusal


class Run:
    """A run whose state is a number, as are its pages of sites."""

    def __init__(self):
        self.number = 0
        self.asked = 0
        self.is_full = False
        self.history = RunHistory()
        self.while_waiting = lambda: None
        self.pages = []
        self.snapshots = Snapshots(self.state, self.sites, self.history, lambda: 1.5, self.wait_until_durable)

    def state(self):
        self.asked += 1
        return {"number": self.number}

    def sites(self, after):
        self.pages.append(after)
        return json.dumps({"after": after, "number": self.number})

    async def wait_until_durable(self):
        self.while_waiting()
        if self.is_full:
            raise Refusal("no-space", "the disk is full")

    async def answer(self, last_id="", after=-1):
        return json.loads(await self.snapshots.answer(last_id, after, role="viewer"))


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    monkeypatch.setattr(module, "_MAX_SHARE", 1e9)
    return Run()


def test_an_answer_holds_one_moment(run):
    run.number = 7
    answer = asyncio.run(run.answer())
    assert answer == {
        "id": answer["id"],
        "seconds": 1.5,
        "role": "viewer",
        "state": {"number": 7},
        "sites": {"after": -1, "number": 7},
        "history": {"whole": True, "versions": [], "evaluations": []},
    }


def test_one_snapshot_serves_all_who_ask_within_half_a_second(run, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    async def script():
        for _ in range(20):
            await run.answer()
        run.number = 1
        answers = await asyncio.gather(*(run.answer() for _ in range(20)))
        assert {answer["state"]["number"] for answer in answers} == {0}
        assert run.asked == 1
        clock[0] += 0.5
        assert (await run.answer())["state"]["number"] == 1
        assert run.asked == 2

    asyncio.run(script())


def test_a_snapshot_that_takes_long_to_make_is_shown_for_longer(run, monkeypatch):
    monkeypatch.setattr(module, "_MAX_SHARE", 0.01)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    seconds = iter([0.0, 0.2])
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))

    async def script():
        await run.answer()
        clock[0] += 19.9
        await run.answer()
        assert run.asked == 1

    asyncio.run(script())


def test_each_page_of_sites_is_of_the_same_moment_as_the_state(run, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 100.0)

    async def script():
        await run.answer()
        run.number = 1
        other = await run.answer(after=49)
        assert (other["state"]["number"], other["sites"]) == (1, {"after": 49, "number": 1})
        first = await run.answer()
        assert (first["state"]["number"], first["sites"]) == (1, {"after": -1, "number": 1})
        assert run.asked == 2

    asyncio.run(script())


def test_pages_that_nobody_looks_at_any_more_are_not_made(run, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    async def script():
        for after in range(1000):
            await run.answer(after=after)
        assert len(run.snapshots._wanted) == MOST_PAGES
        clock[0] += 11
        run.pages.clear()
        await run.answer()
        assert run.pages == [-1]

    asyncio.run(script())


def test_who_comes_back_gets_what_it_has_missed(run):
    async def script():
        run.history.note_evaluation(1, {"accuracy": 0.1})
        known = (await run.answer())["id"]
        run.history.note_evaluation(2, {"accuracy": 0.2})
        missed = {"whole": False, "versions": [], "evaluations": [[2, {"accuracy": 0.2}]]}
        assert (await run.answer(known))["history"] == missed

    asyncio.run(script())


@pytest.mark.parametrize("unknown", ["00000000-1", "x", "-", "1-2-3", "{server}-x", "{server}-" + "9" * 30])
def test_an_id_of_an_earlier_server_gets_the_whole_history(unknown, run):
    async def script():
        run.history.note_evaluation(1, {"accuracy": 0.1})
        known = (await run.answer())["id"]
        answer = await run.answer(unknown.format(server=known.partition("-")[0]))
        assert answer["history"]["whole"] is True
        assert len(answer["history"]["evaluations"]) == 1

    asyncio.run(script())


def test_no_state_is_shown_before_it_is_on_the_disk(run):
    async def script():
        known = (await run.answer())["id"]
        run.is_full, run.number = True, 7
        run.history.note_evaluation(7, {"accuracy": 0.7})
        with pytest.raises(Refusal, match="the disk is full"):
            await run.answer(known)
        run.is_full = False
        answer = await run.answer(known)
        assert answer["state"] == {"number": 7}
        assert answer["history"]["evaluations"] == [[7, {"accuracy": 0.7}]]

    asyncio.run(script())


def test_what_comes_during_the_wait_for_the_disk_is_in_the_next_answer(run):
    run.while_waiting = lambda: run.history.note_evaluation(run.history.number, {"accuracy": 0.5})

    async def script():
        known, seen = "", []
        for _ in range(3):
            answer = await run.answer(known)
            known = answer["id"]
            seen.append(len(answer["history"]["evaluations"]))
        assert seen == [0, 1, 1]

    asyncio.run(script())
