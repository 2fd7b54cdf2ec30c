import asyncio
from types import SimpleNamespace

import pytest

from offbeat.service.engine.metrics import Metrics
from offbeat.service.http.request_timer import RequestTimer


@pytest.mark.parametrize("route", ["/v1/models/{version}", None])
def test_the_time_until_an_answer_begins_is_recorded_for_its_route(route):
    metrics, sent = Metrics(), []

    async def app(scope, receive, send):
        if route:
            scope["route"] = SimpleNamespace(path=route)
        await asyncio.sleep(0.02)
        await send({"type": "http.response.start"})
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body"})

    async def send(message):
        sent.append(message["type"])

    asyncio.run(RequestTimer(app, metrics)({"type": "http"}, None, send))
    assert sent == ["http.response.start", "http.response.body"]
    text = metrics.text().decode()
    label = f'{{route="{route or "other"}"}}'
    assert f"offbeat_request_seconds_count{label} 1.0" in text
    assert 0.02 <= float(text.partition(f"offbeat_request_seconds_sum{label} ")[2].split()[0]) < 0.2
