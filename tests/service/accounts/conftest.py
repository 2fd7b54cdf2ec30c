"""Accounts in a log, without a server around them."""

import json

import pytest

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.registry import OWNER, AccountRegistry
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.refusal import Refusal, no_space
from offbeat.service.store.server_state import ServerState


class LogWriter:
    """Keeps all changes, unless there is a ``problem``."""

    def __init__(self):
        self.problem = None
        self.changes = []

    def check(self):
        if self.problem is not None:
            raise no_space(self.problem)

    def enter(self, change, entry=None, head=None):
        self.changes.append(json.loads(json.dumps(change)))

    def run_once_durable(self, action):
        action()


class Opened:
    """The accounts of a log, which can be opened again; the time is ``now``.

    Every second time they are those of a checkpoint.
    """

    def __init__(self):
        self.now = 1000.0
        self.log_writer = LogWriter()
        self._is_saved = False

    def open(self, *, limit=3, token_seconds=100.0, max_examples=50):
        registry = AccountRegistry()
        for owner, name, values in self.log_writer.changes:
            if owner == OWNER:
                registry.apply(name, values)
        self._is_saved = not self._is_saved
        if self._is_saved:
            registry = AccountRegistry(json.loads(json.dumps(registry.state_dict())))
        return Accounts(
            registry,
            self.log_writer,
            AuditLog(self.log_writer, ServerState(), lambda: self.now),
            clients_limit=limit,
            token_seconds=token_seconds,
            max_examples=max_examples,
            clock=lambda: self.now,
        )


@pytest.fixture
def folder():
    return Opened()


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
