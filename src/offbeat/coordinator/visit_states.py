"""The states of a visit, and the calls that lead from one to the next.

A client has at most one open visit, so a client's state is that of its latest visit; its earlier ones are closed.

- NEW: the client was never given this visit. OPEN: the client works, and has a slot. LAPSED: the slot is free again,
  because the lease has ended or the client gave up; the update may still come. CLOSED: the update came, or will not
  count any more. HELD: closed by the end of the run, with the slot kept until the run continues.
- ``assign`` begins the next visit, in place of the latest one. A client whose visit has a slot is dropped first, so
  ``assign`` finds none that is OPEN. A client with a HELD visit may have another one: its slot goes over to that.
- ``renew`` moves the end of a lease. ``drop`` and ``lapse`` free a slot: the client gave up; its lease has ended.
- ``offer`` closes a visit only if its update would not count now. ``receive`` closes it, whether the update counts or
  not. An update may come at any time while its visit is open, and is answered once: a closed visit stays closed, and is
  answered as it was the first time, since a client repeats a call if the connection broke off before the answer.
- ``finish`` closes all visits: the run is over. ``free_slot`` frees a slot that it has kept.

A call that is not in a state's row is an error of the caller. It raises ``ValueError``, and nothing has changed.
"""

from enum import IntEnum


class VisitState(IntEnum):
    """The state of a visit."""

    OPEN = 0
    LAPSED = 1
    CLOSED = 2
    HELD = 3
    NEW = 4


class VisitCall(IntEnum):
    """A call of the coordinator that may change the state of a visit."""

    ASSIGN = 0
    RENEW = 1
    OFFER = 2
    RECEIVE = 3
    DROP = 4
    LAPSE = 5
    FINISH = 6
    FREE_SLOT = 7


_S, _C = VisitState, VisitCall

STATES: dict[VisitState, dict[VisitCall, VisitState]] = {
    _S.NEW: {_C.ASSIGN: _S.OPEN, _C.LAPSE: _S.NEW, _C.FINISH: _S.NEW, _C.FREE_SLOT: _S.NEW},
    _S.OPEN: {
        _C.RENEW: _S.OPEN,
        _C.OFFER: _S.CLOSED,
        _C.RECEIVE: _S.CLOSED,
        _C.DROP: _S.LAPSED,
        _C.LAPSE: _S.LAPSED,
        _C.FINISH: _S.HELD,
        _C.FREE_SLOT: _S.OPEN,
    },
    _S.LAPSED: {
        _C.ASSIGN: _S.OPEN,
        _C.RENEW: _S.LAPSED,
        _C.OFFER: _S.CLOSED,
        _C.RECEIVE: _S.CLOSED,
        _C.DROP: _S.LAPSED,
        _C.LAPSE: _S.LAPSED,
        _C.FINISH: _S.CLOSED,
        _C.FREE_SLOT: _S.LAPSED,
    },
    _S.HELD: dict.fromkeys(VisitCall, _S.HELD) | {_C.ASSIGN: _S.OPEN, _C.FREE_SLOT: _S.CLOSED},
    _S.CLOSED: dict.fromkeys(VisitCall, _S.CLOSED) | {_C.ASSIGN: _S.OPEN},
}
"""The next state, by state and call; a call that is not there raises ``ValueError``."""

# The same by numbers: millions of calls look it up.
_NEXT = tuple(tuple(STATES[state].get(call) for call in VisitCall) for state in VisitState)


def next_state(state: int, call: VisitCall) -> VisitState:
    """Return the state after a call; a ``ValueError`` if the call is not allowed."""
    after = _NEXT[state][call]
    if after is None:
        raise ValueError(f"{call.name.lower()} does not go with a visit that is {VisitState(state).name}")
    return after
