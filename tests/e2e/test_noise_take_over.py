"""Two servers without a helper, and the one secret of their noise: a take-over changes no number."""

import os
import secrets
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.flapping import FEDBUFF, Flapping, acknowledged
from tests.e2e.server_process import Launcher, until
from tests.e2e.test_take_over import STORE, Pair, check_nothing_lost, database, is_ready, rows_of
from tests.postgres import postgres as postgres

__all__ = ["database"]

LENGTH = 20
PRIVACY = """
[privacy]
min_clients = 2
clip_norm = 4.0
noise_multiplier = 0.5
mechanism = "banded"
max_participations = 100000
min_separation = 2
delta = 1e-3
"""


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_the_noise_goes_on_at_the_standby_and_another_secret_is_refused(
    database: str, launcher: Launcher, tmp_path: Path
) -> None:
    stop, secret = threading.Event(), secrets.token_bytes(32)
    with ExitStack() as stack:
        store = STORE.format(log=database, blobs=f"file://{tmp_path}/blobs")
        pair = Pair(stack, launcher, tmp_path, store + PRIVACY, FEDBUFF, LENGTH)
        for server in pair.servers:
            text = server.file.read_text().replace("[service]", '[service]\nnoise_secret = "copied-secret"')
            server.file.write_text(text)
            path = server.file.parent / "copied-secret"
            path.touch(0o600)
            path.write_bytes(secret)
        one, two = pair.servers
        one.start()
        until(lambda: is_ready(one.url))
        (two.file.parent / "copied-secret").write_bytes(secrets.token_bytes(32))
        two.start()
        assert os.waitstatus_to_exitcode(two.wait()) == 2
        lines = two.log.read_text().splitlines()
        assert [line for line in lines if "made of another secret, of fingerprint" in line] == lines[-1:]
        (two.file.parent / "copied-secret").write_bytes(secret)
        two.start()
        until(lambda: "stands_by" in two.log.read_text())
        token = one.token("enrolment")
        clients = [Flapping(pair.balancer.url, token, LENGTH, stop, seed) for seed in range(8)]
        for client in clients:
            client.start()
        try:
            until(lambda: one.version() > 5)
            version = one.version()
            one.kill(signal.SIGKILL)
            until(lambda: is_ready(two.url))
            until(lambda: max(max(client.digests, default=0) for client in clients) > version + 5)
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        assert two.kill(signal.SIGTERM) == 0
        assert acknowledged(clients) > 0
    # The undisturbed run makes its noise of the same file, at once.
    check_nothing_lost(clients, two, database, LENGTH)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "copied-secret"]
    assert kept
    assert secret.hex() not in str(rows_of(database))
    assert not [path for path in kept if secret in path.read_bytes() or secret.hex() in path.read_text("latin-1")]
