"""Callbacks that nobody has begun: none logs anybody in, asks the provider, or is an error of the server.

``OFFBEAT_HOSTILE`` says how many; ``make hostile`` makes 100,000.
"""

import asyncio
import logging
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.conftest import Served
from tests.service.login.conftest import BrowserAt, Fooled

NUMBER = int(os.environ.get("OFFBEAT_HOSTILE", "1000"))


def hostile_query(numbers: random.Random, states: list[str]) -> str:
    """Return the query of a callback that nobody has begun, or begun elsewhere."""
    values = [*states, "", "x" * numbers.choice([1, 43, 5000]), "%00", "%ff%fe", "é", "../..", "<b>", "' OR 1=1 --"]
    names = ["code", "state", "iss", "error", "id_token", "session_state", "code", "state", "é", ""]
    pairs = [(numbers.choice(names), numbers.choice(values)) for _ in range(numbers.randrange(8))]
    return "&".join(f"{name}={value}" for name, value in pairs)


def test_random_callbacks_log_nobody_in(
    honest: Fooled, browser_at: BrowserAt, caplog: pytest.LogCaptureFixture
) -> None:
    url, seed = honest.server.url, random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers = random.Random(seed)
    begun = [browser_at(url) for _ in range(5)]
    states = [honest.begin(person)["state"] for person in begun]
    cookies = [person.http.cookies["offbeat-login"] for person in begun]
    before = honest.provider.asked["/token"]

    def attack(_: int) -> int:
        cookie = numbers.choice([*cookies, "", "0.x", ".", "é".encode().decode("latin-1"), "9" * 3000])
        pages = {"Offbeat-Page": numbers.choice([b"1", b"0"])}
        # The states of the cookies that go with them would be a login.
        own = states[cookies.index(cookie)] if cookie in cookies else None
        query = hostile_query(numbers, [state for state in states if state != own])
        session = numbers.choice(["", "obs_" + "A" * 43])
        headers = {"Cookie": f"offbeat-login={cookie}; offbeat={session}".encode("latin-1")}
        path = numbers.choice(["/v1/login/callback", "/v1/login/callback", "/v1/logout", "/v1/login/callback/"])
        method = numbers.choice(["GET", "GET", "GET", "POST", "HEAD", "DELETE"])
        client = clients[numbers.randrange(len(clients))]
        answer = client.request(method, f"{url}{path}?{query}", headers=headers | pages)
        assert "set-cookie" not in answer.headers
        return answer.status_code

    clients = [browser_at(url).http for _ in range(4)]
    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(8) as pool:
        statuses = set(pool.map(attack, range(NUMBER)))
    assert statuses <= {400, 401, 404, 405}
    assert honest.provider.asked["/token"] == before
    assert honest.server.service.accounts.sessions.accounts == {}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert honest.log_in(begun[0]).status_code == 303
    assert honest.server.admin.http.get("/v1/status").status_code == 200
    asyncio.run_coroutine_threadsafe(_a_minute_passes(honest.server), honest.server.loop).result(10)


async def _a_minute_passes(server: Served) -> None:
    """Do what the server does each minute with the refusals so far."""
    server.service.progress.report()
    server.service.progress.hour.note()
    server.service.accounts.audit.flush()
