import asyncio
import json
import re

import pytest

from offbeat.service.live import viewers as module
from offbeat.service.live.run_history import RunHistory
from offbeat.service.live.viewers import MOST_VIEWERS, Viewers
from offbeat.service.refusal import Refusal

ALWAYS = lambda: True  # noqa: E731


class Run:
    """A run whose state is a number."""

    def __init__(self):
        self.number = 0
        self.asked = 0
        self.is_broken = self.is_full = False
        self.history = RunHistory()
        self.while_waiting = lambda: None
        self.viewers = Viewers(self.state, self.history, lambda: 1.5, self.wait_until_durable)

    def state(self):
        self.asked += 1
        if self.is_broken:
            raise ZeroDivisionError
        return {"number": self.number}

    async def wait_until_durable(self):
        self.while_waiting()
        if self.is_full:
            raise Refusal("no-space", "the disk is full")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.02)


def play(script):
    """Run a script with a run whose producer is at work."""

    async def main():
        run = Run()
        producing = asyncio.create_task(run.viewers.produce())
        try:
            await asyncio.wait_for(script(run), 20)
            assert not producing.done()
        finally:
            producing.cancel()

    asyncio.run(main())


async def next_of(events):
    event = await anext(events)
    found = re.fullmatch(r"id: (.+)\ndata: (.+)\n\n", event.decode())
    assert found, event
    return found[1], json.loads(found[2])


def test_without_viewers_nothing_is_made():
    async def script(run):
        await asyncio.sleep(0.1)
        assert run.asked == 0
        with run.viewers.place():
            await next_of(run.viewers.events("", ALWAYS))
        asked = run.asked
        assert asked > 0
        await asyncio.sleep(0.1)
        assert run.asked <= asked + 1

    play(script)


def test_one_producer_serves_all_viewers():
    async def script(run):
        async def view():
            with run.viewers.place():
                events = run.viewers.events("", ALWAYS)
                return [(await next_of(events))[1]["state"]["number"] for _ in range(3)]

        async def change():
            while True:
                run.number += 1
                await asyncio.sleep(0.001)

        changing = asyncio.create_task(change())
        seen = await asyncio.gather(*(view() for _ in range(20)))
        changing.cancel()
        assert all(numbers == sorted(set(numbers)) for numbers in seen)
        assert run.asked < 20

    play(script)


def test_there_are_two_events_a_second_at_most(monkeypatch):
    monkeypatch.undo()

    async def script(run):
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            await next_of(events)
            began = asyncio.get_running_loop().time()
            for _ in range(3):
                run.number += 1
                await next_of(events)
            assert asyncio.get_running_loop().time() - began > 1.4

    play(script)


def test_while_nothing_changes_there_are_only_pings(monkeypatch):
    monkeypatch.setattr(module, "_PING_SECONDS", 0.1)

    async def script(run):
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            await next_of(events)
            assert await anext(events) == b": ping\n\n"
            run.number += 1
            assert (await next_of(events))[1]["state"] == {"number": 1}

    play(script)


def test_a_slow_viewer_skips_states_but_no_entry_of_the_history():
    async def script(run):
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            _, first = await next_of(events)
            assert first["history"] == {"whole": True, "versions": [], "evaluations": []}
            for version in range(1, 6):
                run.number = version
                run.history.note_evaluation(version, {"accuracy": version})
                await asyncio.sleep(0.05)
            _, last = await next_of(events)
            assert last["state"]["number"] == 5
            assert last["history"]["whole"] is False
            assert [version for version, _ in last["history"]["evaluations"]] == [1, 2, 3, 4, 5]

    play(script)


def test_who_comes_back_gets_what_it_has_missed():
    async def script(run):
        run.history.note_evaluation(1, {"accuracy": 0.1})
        with run.viewers.place():
            known, _ = await next_of(run.viewers.events("", ALWAYS))
            run.history.note_evaluation(2, {"accuracy": 0.2})
            await asyncio.sleep(0.1)
            _, event = await next_of(run.viewers.events(known, ALWAYS))
            assert event["history"] == {"whole": False, "versions": [], "evaluations": [[2, {"accuracy": 0.2}]]}

    play(script)


@pytest.mark.parametrize("unknown", ["00000000-1", "x", "-", "1-2-3", "{server}-x", "{server}-" + "9" * 30])
def test_an_id_of_an_earlier_server_gets_the_whole_history(unknown):
    async def script(run):
        run.history.note_evaluation(1, {"accuracy": 0.1})
        with run.viewers.place():
            known, _ = await next_of(run.viewers.events("", ALWAYS))
            last_id = unknown.format(server=known.partition("-")[0])
            _, event = await next_of(run.viewers.events(last_id, ALWAYS))
            assert event["history"]["whole"] is True
            assert len(event["history"]["evaluations"]) == 1

    play(script)


def test_a_viewer_whose_token_ends_sees_no_more():
    async def script(run):
        tokens = {"valid"}
        with run.viewers.place():
            events = run.viewers.events("", lambda: "valid" in tokens)
            await next_of(events)
            tokens.clear()
            run.number += 1
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    play(script)


def test_the_places_are_limited_and_free_again():
    async def script(run):
        from contextlib import ExitStack

        with ExitStack() as stack:
            for _ in range(MOST_VIEWERS):
                stack.enter_context(run.viewers.place())
            with pytest.raises(Refusal, match="close one of them"), run.viewers.place():
                pass
        assert len(run.viewers) == 0
        with run.viewers.place():
            assert len(run.viewers) == 1

    play(script)


def test_a_full_disk_is_shown_and_no_state_that_is_not_on_it():
    async def script(run):
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            await next_of(events)
            run.is_full, run.number = True, 7
            run.history.note_evaluation(7, {"accuracy": 0.7})
            _, event = await next_of(events)
            assert event["state"] == {"number": 0, "problem": "the disk is full"}
            assert event["history"]["evaluations"] == []
            run.is_full = False
            _, event = await next_of(events)
            assert event["state"] == {"number": 7}
            assert event["history"]["evaluations"] == [[7, {"accuracy": 0.7}]]

    play(script)


def test_what_comes_during_the_wait_for_the_disk_is_in_the_next_event():
    async def script(run):
        run.while_waiting = lambda: run.history.note_evaluation(run.history.number, {"accuracy": 0.5})
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            seen = [len((await next_of(events))[1]["history"]["evaluations"]) for _ in range(3)]
            assert seen == [0, 1, 1]

    play(script)


def test_a_state_that_fails_does_not_end_the_producer():
    async def script(run):
        run.is_broken = True
        with run.viewers.place():
            events = run.viewers.events("", ALWAYS)
            assert "fails" in (await next_of(events))[1]["state"]["problem"]
            run.is_broken = False
            assert (await next_of(events))[1]["state"] == {"number": 0}

    play(script)


def test_an_event_keeps_a_bounded_number_of_its_forms():
    history = RunHistory()
    event = module._Event("server", "{}", 1.0, history, 0)
    for since in range(1000):
        assert event.bytes(since) == event.bytes(since)
    assert len(event._bytes) <= MOST_VIEWERS
