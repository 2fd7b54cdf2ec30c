import math
import re
import sqlite3
from contextlib import closing

import pytest
from offbeat_private.accounting import epsilon
from offbeat_private.helper.commands import read_status
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.signed_terms import verify

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, KEYS, LOCAL, TERMS, enrol_clients, records_for
from tests.offbeat_private.helper.test_roster import CLIENTS


@pytest.fixture
def roster(tmp_path):
    """A roster's file."""
    lines = ["[terms]", *(f"{key} = {value}" for key, value in TERMS.items())]
    lines += ["[local]", *(f"{key} = {value}" for key, value in LOCAL.items()), "[clients]"]
    path = tmp_path / "roster.toml"
    path.write_text("\n".join([*lines, *(f'{name} = "{key}"' for name, key in CLIENTS.items())]), encoding="utf-8")
    return path


def test_enrol_prints_the_token_once_and_status_the_cost(offbeat, roster, tmp_path):
    folder = tmp_path / "helper"
    code, output, errors = offbeat("helper", "enrol", str(roster), "--folder", str(folder))
    assert (code, errors) == (0, "")
    assert f": {len(KEYS)} clients\n" in output
    assert f"For server and clients: {folder / 'terms.json'}\n" in output
    fingerprint = verify((folder / "terms.json").read_bytes()).terms.digest[:16].hex()
    (line,) = [line for line in output.splitlines() if line.startswith("Fingerprint, which each client compares: ")]
    assert line.rpartition(": ")[2].replace(" ", "") == fingerprint
    assert output.splitlines()[-1].startswith("For the server, not shown again: obh_")
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
    code, output, _ = offbeat("helper", "status", "--folder", str(folder))
    assert code == 0
    assert f"fingerprint: {line.rpartition(': ')[2]}\n" in output
    assert "batches: 1\n" in output
    assert "participations by client: largest 1, median 0\n" in output
    assert re.search(r"^epsilon by client: largest [\d.]+, median 0 \(delta 1e-05\)$", output, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["enrol", "nothing.toml"], "offbeat: no such file: nothing.toml"),
        (["status", "--folder", "nothing"], "offbeat: nothing is not a helper's folder"),
        (["serve", "--folder", "nothing"], "offbeat: nothing is not a helper's folder"),
    ],
)
def test_a_mistake_is_one_line(offbeat, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, errors = offbeat("helper", *arguments)
    assert code == 2
    assert errors.startswith(message)
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_status_shows_the_largest_and_the_median_client_over_all_runs(tmp_path):
    for noise in (5.0, 2.5):
        enrol_clients(tmp_path, noise_multiplier=noise)
        with closing(Helper(tmp_path)) as helper:
            helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
            helper.open(2, records_for(helper, {0: 2, 3: 1, 4: 1}))
            now = read_status(tmp_path)  # while the helper has the folder
            assert (now.clients, now.batches, now.is_stopped) == (8, 2, False)
    enrol_clients(tmp_path)
    now = read_status(tmp_path)
    assert now.batches == 0
    assert now.participations == (4, 2)
    costs = epsilon(5.0, 10, 1e-5), epsilon(5.0, 5, 1e-5)  # twice and once 1/25 + 4/25
    assert now.epsilon == pytest.approx(costs)
    assert now.epsilon_replace_one[0] == pytest.approx(epsilon(2.5, 10, 1e-5))


def test_a_limit_of_epsilon_holds_over_runs_of_different_noise_and_status_lists_the_clients(offbeat, tmp_path):
    # ε = 3 at δ = 1e-5 is σ = 1.3906 for one participation, so μ² = 0.517: 2/25 + 2/6.25 = 0.4 is within, 0.56 is not.
    limit = {"epsilon_total": 3.0}
    enrol_clients(tmp_path, noise_multiplier=5.0, **limit)
    with closing(Helper(tmp_path)) as helper:
        for visit in (1, 2):
            helper.open(visit, records_for(helper, {0: visit, 1: visit, 2: visit}))
    enrol_clients(tmp_path, noise_multiplier=2.5, **limit)
    with closing(Helper(tmp_path)) as helper:
        for visit in (1, 2):
            helper.open(visit, records_for(helper, {0: visit, 3: visit, 4: visit}))
        with pytest.raises(HelperRefusal) as caught:
            helper.open(3, records_for(helper, {0: 3, 1: 3, 2: 3}))
        assert (caught.value.kind, caught.value.client) == ("epsilon-spent", CLIENT_KEYS[0])
        helper.open(3, records_for(helper, {1: 3, 2: 3, 5: 3}))
    code, output, _ = offbeat("helper", "status", "--folder", str(tmp_path), "--clients")
    assert code == 0
    assert "epsilon of a client over all runs: at most 3\n" in output
    names = sorted(CLIENTS)
    listed = [line for line in output.splitlines() if line.partition(":")[0] in names]
    assert [line.partition(",")[0] for line in listed] == [
        f"{name}: {number} participations" for name, number in zip(names, (4, 3, 3, 2, 2, 1, 0, 0), strict=True)
    ]
    by_hand = epsilon(math.sqrt(1 / 0.4), 1, 1e-5), epsilon(math.sqrt(1 / 0.4) / 2, 1, 1e-5)
    assert listed[0].endswith(f"epsilon {by_hand[0]:.4g}, replace-one {by_hand[1]:.4g}")


def test_a_folder_without_batches_or_without_noise_or_stopped_has_a_status(tmp_path):
    enrol_clients(tmp_path, noise_multiplier=0.0)
    assert read_status(tmp_path).epsilon == (0.0, 0.0)
    with closing(Helper(tmp_path)) as helper:
        helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
    assert read_status(tmp_path).epsilon == (float("inf"), 0.0)
    with closing(sqlite3.connect(tmp_path / "helper.sqlite")) as database, database:
        database.execute("UPDATE run SET stopped = 1")
    assert read_status(tmp_path).is_stopped
