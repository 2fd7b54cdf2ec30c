"""A helper that is killed at random: no seed in two answers, no number with two answers, no participation lost."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from offbeat_private.helper.helper import Helper

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, enrol_clients
from tests.offbeat_private.helper.test_helper import expected_words

ROOT = Path(__file__).parents[3]
KILLS = 25


def killed(folder, chance):
    """Kill a helper many times while it opens batches."""
    command = [sys.executable, "-m", "tests.offbeat_private.helper.helper_launcher", str(folder)]
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        for _ in range(KILLS):
            launcher.stdin.write(f"{chance.randrange(10**9)} {chance.randrange(4)} {chance.uniform(0, 0.03)}\n")
            launcher.stdin.flush()
            assert launcher.stdout.readline() == f"{int(signal.SIGKILL)}\n"
        launcher.stdin.close()


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_helper_that_is_killed_at_random_opens_each_batch_once(tmp_path):
    folder = tmp_path / "helper"
    terms = enrol_clients(folder, max_participations=10_000, length=3000).terms
    killed(folder, Random(3))
    with closing(Helper(folder)) as helper:
        counter = helper.facts().head.number
    lines = [line.split() for line in (tmp_path / "answered").read_text().splitlines() if len(line.split()) == 2]
    digests = {}
    for name, digest in lines:
        number = int(name.split("-")[0])
        assert digests.setdefault(number, (name, digest)) == (name, digest)
    assert max(digests) in (counter, counter - 1)
    asked = Counter(int(path.name.split("-")[0]) for path in (tmp_path / "requests").glob("[0-9]*"))
    assert max(asked.values()) > 1  # another batch was tried after a kill
    assert counter > KILLS // 2
    with closing(sqlite3.connect(folder / "helper.sqlite")) as database:
        seeds = database.execute("SELECT client, hash FROM seeds").fetchall()
        assert len({seed for _, seed in seeds}) == len(seeds) == 3 * counter
        assert [row[0] for row in database.execute("SELECT number FROM batches ORDER BY 1")] == [*range(1, counter + 1)]
        versions = database.execute("SELECT start_version FROM models ORDER BY 1").fetchall()
        assert [version for (version,) in versions] == [*range(1, counter + 1)]  # those of the batches' visits
        counts = dict(database.execute("SELECT key, participations FROM clients").fetchall())
    assert counts == {key: sum(client == key for client, _ in seeds) for key in CLIENT_KEYS}
    for number, (name, digest) in digests.items():
        first = int(name.split("-")[2])
        visits = {(first + client) % len(CLIENT_KEYS): number for client in range(3)}
        words = expected_words(folder, terms, number, visits)
        assert hashlib.sha256(b"".join(word.to_bytes(4, "little") for word in words)).hexdigest() == digest
