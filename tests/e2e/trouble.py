"""The troubles of a request on its way."""

import random
from enum import Enum


class Trouble(Enum):
    """A request's fate."""

    NONE = "none"
    WAIT = "waits a while"
    CUT = "the server gets its beginning only"
    LOSE_ANSWER = "the client gets the beginning of its answer only"
    TWICE = "the server gets it over two lines at once, the client gets one of the answers"
    AGAIN = "the server gets it again later, when the client has gone on"
    LATE = "the server gets it only when the client has given it up and gone on"


TROUBLES = [trouble for trouble in Trouble if trouble is not Trouble.NONE]


class Pack:
    """Troubles as a pack of cards, dealt and then shuffled anew; so there is enough of each, whatever the seed."""

    def __init__(self, kind: str, numbers: random.Random) -> None:
        # There are not so many of these two.
        more = [] if kind in ("heartbeat", "rest") else [Trouble.CUT, Trouble.LOSE_ANSWER] + 8 * [Trouble.NONE]
        self._all = TROUBLES + more
        self._left: list[Trouble] = []
        self._numbers = numbers

    def deal(self) -> Trouble:
        """Return what becomes of the next request."""
        if not self._left:
            self._left = self._numbers.sample(self._all, len(self._all))
        return self._left.pop()
