"""The decision of a server that stands by when it tries to lead."""

from contextlib import closing

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.engine import start_up
from offbeat.service.engine.standby import Silence
from offbeat.service.log.open_log import open_log
from offbeat.service.log.signs_of_life import SeenLeader
from offbeat.service.store.server_state import RunState
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import running


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_new_log_is_led_at_once():
    assert Silence(Clock()).is_long(0, None)


def test_a_leader_is_silent_once_neither_rows_nor_signs_have_come_for_a_while():
    clock = Clock()
    silence = Silence(clock)
    assert not silence.is_long(7, SeenLeader(1, 5, "a"))
    clock.now += 2.4
    assert not silence.is_long(7, SeenLeader(1, 5, "a"))
    assert not silence.is_long(8, SeenLeader(1, 5, "a"))  # a row has come
    clock.now += 2.4
    assert not silence.is_long(8, SeenLeader(1, 6, "a"))  # a sign has come
    clock.now += 2.4
    assert not silence.is_long(8, SeenLeader(2, 6, "b"))  # another one leads
    clock.now += 2.5
    assert silence.is_long(8, SeenLeader(2, 6, "b"))


def test_a_leader_that_has_not_shown_itself_yet_has_the_same_time():
    clock = Clock()
    silence = Silence(clock)
    assert not silence.is_long(1, None)
    clock.now += 2.5
    assert silence.is_long(1, None)


def test_a_server_of_other_settings_that_followed_the_beginning_does_not_lead(tmp_path, store, monkeypatch):
    with running(tmp_path / "one", store=store, config={"seed": 1}):
        pass
    with closing(open_log(store.log)) as log:
        last = log.last_number_now()
        monkeypatch.setattr(start_up, "_run_state", lambda _: RunState())  # as it was when both were started
        with pytest.raises(OffbeatError, match=r"a run with other settings \(seed\)"):  # noqa: SIM117
            with running(tmp_path / "two", store=store, config={"seed": 2}):
                pass
        assert log.last_number_now() == last
