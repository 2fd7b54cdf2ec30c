"""The power goes after any fsync or commit, and chance decides which unsynced writes are lost; then clients go on.

Nothing acknowledged is lost or doubled, and no version that somebody has read changes its contents.
"""

import asyncio
import itertools
from random import Random, SystemRandom

from tests.effort import IS_LONG
from tests.service.power import Power
from tests.service.test_faults import CLIENTS, Run

TURNS = 2
WAYS = 3 if IS_LONG else 1  # at each moment: all unsynced writes are lost, or chance decides


class Moment:
    """A loss of power, and what clients knew at that moment; what is left of the disk goes into ``folder``."""

    def __init__(self, run, power, folder, chance):
        self.told, self.read = dict(run.told), dict(run.read)
        self._folder = folder
        power.lose(folder, chance)

    def go_on(self):
        """Start the server again, let each client do a visit, and check all that clients were ever told."""
        run = Run(self._folder)
        run.told, run.read = self.told, self.read
        known = len(run.told)
        asyncio.run(run.live(1))
        assert (run.ends, run.failed_starts) == (0, 0)
        assert len(run.told) == known + CLIENTS
        run.check()


def test_whatever_unsynced_writes_are_lost_nothing_acknowledged_is(tmp_path):
    seed = SystemRandom().randrange(2**32)
    chance = Random(seed)
    moments = []
    numbers = itertools.count()
    run = Run(tmp_path / "server")

    def lose():
        for how in chance.sample([None, chance, chance], WAYS):
            moments.append(Moment(run, power, tmp_path / str(next(numbers)), how))

    power = Power(tmp_path / "server", after_each=lose)
    with power.on():
        asyncio.run(run.live(TURNS))
    assert len(moments) > 25 * WAYS
    for moment in moments:
        try:
            moment.go_on()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
