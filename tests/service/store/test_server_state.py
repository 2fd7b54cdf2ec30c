"""The state of a server beside its coordinator."""

import json

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.audit.verification import LogHead
from offbeat.service.log.log import Row
from offbeat.service.store.server_state import RunState, ServerState, check_config


def config(versions=None, **stop):
    stop |= {} if versions is None else {"versions": versions}
    return {"model": {"name": "mlp"}} | ({"stop": stop} if stop else {})


def begun(before):
    state = RunState()
    state.apply("begin", {"run": "1f", "config": before})
    return state


def test_a_run_that_has_not_begun_takes_any_settings(tmp_path):
    check_config(tmp_path, RunState(), config(10))


def test_a_run_goes_on_with_the_same_settings_or_a_later_end(tmp_path):
    state = begun(config(10, target=0.9))
    check_config(tmp_path, state, config(10, target=0.9))
    check_config(tmp_path, state, config(20, target=0.9))
    state.apply("configure", {"config": config(20, target=0.9)})
    with pytest.raises(OffbeatError, match=r"holds a run of 20 versions: stop.versions may only grow"):
        check_config(tmp_path, state, config(10, target=0.9))
    for other, keys in ((config(30, target=0.9) | {"model": {"name": "cnn"}}, "model, stop"), (config(30), "stop")):
        with pytest.raises(OffbeatError, match=rf"other settings \({keys}\)"):
            check_config(tmp_path, state, other)
    check_config(tmp_path, state, config(target=0.9))
    state.apply("configure", {"config": config(target=0.9)})
    with pytest.raises(OffbeatError, match=r"holds a run without stop.versions: leave it out$"):
        check_config(tmp_path, state, config(30, target=0.9))


def test_the_run_is_paused_resumed_and_extended():
    state = begun(config(10))
    state.apply("pause", {})
    state.apply("extend", {"versions": 15})
    assert (state.run_id, state.is_paused, state.stop_versions) == ("1f", True, 15)
    state.apply("resume", {})
    state.apply("configure", {"config": config(20)})
    assert (state.is_paused, state.stop_versions) == (False, 20)
    with pytest.raises(ValueError, match="does not know the change 'stop'"):
        state.apply("stop", {})


def test_each_row_changes_the_part_that_owns_it_also_after_a_checkpoint():
    changes = [
        ("run", "begin", {"run": "1f", "config": config(10)}),
        ("accounts", "make_token", {"token": "a", "kind": "enrolment", "uses": 1, "expires": None, "name": ""}),
        ("accounts", "enrol", {"client": 0, "name": "ward", "at": 5.0, "token": "b", "expires": 9.0, "examples": None,
                               "by": "a"}),
        ("coordinator", "assign", {"clients": [0], "now": 1.0}),
        ("evaluations", "begin", {"version": 1, "clients": [0]}),
        ("coordinator", "receive", {"client": 0, "visit": 0, "now": 2.0, "outcome": [True, 3]}),
    ]  # fmt: skip
    heads = [f"{number:064x}" if number % 2 else None for number in range(len(changes))]
    rows = [
        Row(number, 1, owner, name, json.dumps(values), head=head)
        for number, ((owner, name, values), head) in enumerate(zip(changes, heads, strict=True), start=1)
    ]
    for saved in range(len(rows) + 1):
        state = ServerState()
        for row in rows[:saved]:
            state.apply(row, row.values)
        state = ServerState(json.loads(json.dumps(state.state_dict())))
        for row in rows[saved:]:
            state.apply(row, row.values)
        assert state.run.run_id == "1f"
        assert state.registry.accounts["a"].uses == 0
        assert state.registry.sites[0].name == "ward"
        assert (state.tally[0].counted, state.tally[0].staleness_sum) == (1, 3)
        assert state.audit_head == LogHead(3, heads[5])
