"""The receipts of clients, beside the sums that the helper has opened."""

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from offbeat_private.helper.store import Store

_RECEIPT = re.compile(r"visit (\d+): counted\b", re.MULTILINE)


class Receipts(NamedTuple):
    """Numbers of acknowledged updates, by their place.

    Attributes:
        in_sums: In a sum that the helper has opened.
        waiting: Newer than the client's last opened one.
        lost: In no sum, though a newer one of the client is.
    """

    in_sums: int
    waiting: int
    lost: int

    @property
    def total(self) -> int:
        """All receipts."""
        return sum(self)


def receipts(logs: Mapping[str, Path], helper: Path) -> Receipts:
    """Compare the clients' log files, by name, with the folder of the helper.

    The two were written by different processes than the server.
    """
    with closing(Store(helper, read_only=True)) as store:
        names, histories = store.roster(), store.opened().histories
    in_sums = waiting = lost = 0
    for key, name in names.items():
        visits = {int(visit) for visit in _RECEIPT.findall(logs[name].read_text(encoding="utf-8"))}
        history = histories[key]
        due = sum(visit <= history.visit for visit in visits)
        in_sums += min(due, history.participations)
        lost += max(0, due - history.participations)
        waiting += len(visits) - due
    return Receipts(in_sums, waiting, lost)
