"""The lives of a masked client that is killed at each of its steps in turn."""

import math
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from offbeat_client.client_run import run_client
from offbeat_client.http.retry import Backoff
from offbeat_private.terms import Terms

from tests.offbeat_client.conftest import KilledError, Server
from tests.offbeat_client.helper_facts import Helper, private_folder

LEAST_STEPS = 60  # a life of three visits has more


def lives(
    server: Server,
    helper: Helper,
    kill_at: Callable[[float], None],
    folder: Path,
    *,
    terms: Terms,
    offer: Callable[[], None],
    make_client: Callable[[], Any],
    backoff: Backoff,
) -> Iterator[tuple[Any, int, Path]]:
    """Yield the client, its number of kills and its folder after each life; the last life has no kill.

    Each begins with a new client, for which ``offer`` has the server offer visits. During the upload of visit 1 the
    helper's epoch ends.
    """

    def is_stale(announced: dict[str, Any]) -> bool:
        bound = helper.envelope(announced).binding
        if bound.visit == 1 and bound.epoch == 0:
            helper.epoch, helper.head_number = 1, 101
        return bound.epoch < helper.epoch

    server.is_stale = is_stale
    for step in count():
        helper.epoch = helper.head_number = 0
        for memory in (server.put, server.bodies, server.receipts, server.heard, server.received, server.visits):
            memory.clear()
        server.open = None
        offer()
        (folder / str(step)).mkdir()
        home, client, kills = private_folder(folder / str(step) / "me", terms), make_client(), 0

        def live(home: Path = home, client: Any = client) -> None:
            enrolment = {"enrolment_token": "obe_1", "terms": home.with_name("terms.json")}
            run_client(server.url, lambda _: client, home, backoff=backoff, **enrolment)

        kill_at(step)
        try:
            live()
        except KilledError:
            kills = 1
        kill_at(math.inf)
        if kills:
            live()
        yield client, kills, home
        if not kills:
            assert step > LEAST_STEPS
            return
