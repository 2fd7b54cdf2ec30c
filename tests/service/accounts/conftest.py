"""Accounts in a database, without a server around them."""

import pytest

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.refusal import Refusal, no_space
from offbeat.service.store.database import open_database


class LogWriter:
    """Writes each statement at once, unless there is a ``problem``."""

    def __init__(self, database):
        self.problem = None
        self._database = database

    def check(self):
        if self.problem is not None:
            raise no_space(self.problem)

    def execute(self, *statements):
        with self._database.begin() as connection:
            for statement in statements:
                connection.execute(statement)

    def run_once_durable(self, action):
        action()


class Opened:
    """The accounts of a folder, which can be opened again; the time is ``now``."""

    def __init__(self, path):
        self.now = 1000.0
        self._database = open_database(path)
        self.log_writer = LogWriter(self._database)

    def open(self, *, limit=3, token_seconds=100.0, max_examples=50):
        return Accounts(
            self._database,
            self.log_writer,
            clients_limit=limit,
            token_seconds=token_seconds,
            max_examples=max_examples,
            clock=lambda: self.now,
        )

    def close(self):
        self._database.dispose()


@pytest.fixture
def folder(tmp_path):
    opened = Opened(tmp_path / "x.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def accounts(folder):
    return folder.open()


@pytest.fixture
def refused():
    """Return a function that returns the kind of the refusal of a call."""

    def refusal(call, *arguments, **more):
        with pytest.raises(Refusal) as caught:
            call(*arguments, **more)
        assert "\n" not in caught.value.detail
        return caught.value.kind

    return refusal
