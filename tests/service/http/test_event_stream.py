import asyncio

import pytest

from offbeat.service.http import event_stream
from offbeat.service.http.event_stream import EventStream
from offbeat.service.live.run_history import RunHistory
from offbeat.service.live.viewers import Viewers


async def durable():
    pass


def play(script):
    async def main():
        viewers = Viewers(lambda: {"number": 1}, RunHistory(), lambda: 0.0, durable)
        producing = asyncio.create_task(viewers.produce())
        try:
            await asyncio.wait_for(script(viewers), 20)
        finally:
            producing.cancel()

    asyncio.run(main())


async def never():
    await asyncio.Event().wait()


def stream(viewers):
    return EventStream(viewers, "", lambda: True)


def test_the_head_names_no_length():
    async def script(viewers):
        sent = []
        left = asyncio.Event()

        async def send(message):
            sent.append(message)
            if len(sent) == 2:
                left.set()

        async def receive():
            await left.wait()
            return {"type": "http.disconnect"}

        await stream(viewers)({}, receive, send)
        names = {name for name, _ in sent[0]["headers"]}
        assert b"content-type" in names
        assert b"content-length" not in names
        assert sent[1]["body"].startswith(b"id: ")
        assert len(viewers) == 0

    play(script)


def test_a_viewer_that_takes_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(event_stream, "_SEND_SECONDS", 0.05)

    async def script(viewers):
        async def send(message):
            if message["type"] == "http.response.body":
                await never()

        await stream(viewers)({}, never, send)
        assert len(viewers) == 0

    play(script)


@pytest.mark.parametrize("is_stuck", [False, True])
def test_the_end_of_the_server_ends_the_stream(is_stuck):
    async def script(viewers):
        async def send(message):
            if is_stuck and message["type"] == "http.response.body":
                await never()

        serving = asyncio.create_task(stream(viewers)({}, never, send))
        await asyncio.sleep(0.05)
        assert len(viewers) == 1
        viewers.close()
        await serving
        assert len(viewers) == 0

    play(script)
