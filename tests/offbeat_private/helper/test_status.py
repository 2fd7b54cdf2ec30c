import sqlite3
from contextlib import closing

import pytest
from offbeat_private.accounting import epsilon
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.status import status

from tests.offbeat_private.helper.conftest import enrol_clients, records_for


def test_status_shows_the_largest_and_the_median_client_over_all_runs(tmp_path):
    for noise in (5.0, 2.5):
        enrol_clients(tmp_path, noise_multiplier=noise)
        with closing(Helper(tmp_path)) as helper:
            helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
            helper.open(2, records_for(helper, {0: 2, 3: 1, 4: 1}))
            now = status(tmp_path)  # while the helper has the folder
            assert (now.clients, now.batches, now.is_stopped) == (8, 2, False)
    enrol_clients(tmp_path)
    now = status(tmp_path)
    assert now.batches == 0
    assert now.participations == (4, 2)
    costs = epsilon(5.0, 10, 1e-5), epsilon(5.0, 5, 1e-5)  # twice and once 1/25 + 4/25
    assert now.epsilon == pytest.approx(costs)
    assert now.epsilon_replace_one[0] == pytest.approx(epsilon(2.5, 10, 1e-5))


def test_a_folder_without_batches_or_without_noise_or_stopped_has_a_status(tmp_path):
    enrol_clients(tmp_path, noise_multiplier=0.0)
    assert status(tmp_path).epsilon == (0.0, 0.0)
    with closing(Helper(tmp_path)) as helper:
        helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
    assert status(tmp_path).epsilon == (float("inf"), 0.0)
    with closing(sqlite3.connect(tmp_path / "helper.sqlite")) as database, database:
        database.execute("UPDATE run SET stopped = 1")
    assert status(tmp_path).is_stopped
