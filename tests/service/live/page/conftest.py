"""A browser, and a server with clients that train."""

import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from offbeat_client import Backoff, OffbeatError, run_client

from offbeat.algorithms import FedBuff
from tests.service.conftest import running

# Accuracy 0.5, 0.6, …: each evaluation is a bit better.
EVALUATION = """
import json, sys
for number, path in enumerate(sys.stdin):
    print(json.dumps({"accuracy": min(0.5 + number / 10, 0.95), "loss": 1 / (number + 1)}), flush=True)
"""
EVALUATED = {"evaluate_every": 1, "evaluate_command": [sys.executable, "-c", EVALUATION]}


@pytest.fixture
def page(browser):
    """The browser, without the token of the test before."""
    browser.driver.get("about:blank")
    yield browser
    with suppress(Exception):
        browser.run("sessionStorage.clear()")
    browser.driver.get("about:blank")


@contextmanager
def federation(folder, names, versions=6, **settings):
    """Run a server that clients with these names have trained up to a version."""
    settings = {"lease_seconds": 60.0, "max_staleness": 4, "stop_versions": 1000, **EVALUATED, **settings}
    make = lambda: FedBuff(buffer_size=2, concurrency=4)  # noqa: E731
    with running(folder / "server", make, **settings) as server:
        threads = [
            threading.Thread(target=take_part, args=(server, folder / str(number), name, versions))
            for number, name in enumerate(names)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.05)  # so that their numbers are in order
        for thread in threads:
            thread.join()
        yield server


def take_part(server, folder, name, versions):
    """Train as a real client until the run has so many versions."""
    token = server.enrolment_token
    while server.service.engine.coordinator.algorithm.version < versions:
        with suppress(OffbeatError):
            run_client(server.url, lambda _: fit, folder, enrolment_token=token, name=name, visits=1, backoff=Backoff())


def fit(model, visit):
    return {name: values - 0.1 for name, values in model.items()}, 10


def sign_in(browser, url, token, **look):
    browser.visit(f"{url}/#token={token}", **look)
    eventually(lambda: browser.find("#connection").text == "Live")
    eventually(lambda: browser.texts("#tiles dd"))


def eventually(condition, seconds=30.0):
    """Return what a condition says once that is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "that takes too long"
        time.sleep(0.05)
    return found


def tile(browser, name):
    """Return the number of a tile."""
    return dict(zip(browser.texts("#tiles dt"), browser.texts("#tiles dd:not(.note)"), strict=True))[name]


def cells(browser, row):
    return browser.texts(f"#sites tbody tr:nth-child({row}) > *")
