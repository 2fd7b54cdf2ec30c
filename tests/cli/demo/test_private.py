from contextlib import closing

import pytest
from offbeat_private.helper.helper import Helper

from offbeat.cli.demo.private import receipts
from tests.offbeat_private.helper.conftest import CLIENTS, enrol_clients, records_for


@pytest.fixture
def helper_folder(tmp_path):
    """The folder of a helper that has opened two sums."""
    folder = tmp_path / "helper"
    enrol_clients(folder)
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 3, 1: 3, 2: 3}))
        helper.open(2, records_for(helper, {0: 5, 3: 3, 4: 3}))
    return folder


@pytest.fixture
def logs(tmp_path):
    """The clients' log files, without receipts."""
    paths = {f"client-{client}": tmp_path / f"{client}.log" for client in range(CLIENTS)}
    for path in paths.values():
        path.write_text("visit 3: 10 steps from version 3\n", encoding="utf-8")
    return paths


def write(path, *visits):
    more = ", staleness 0; 1 of 1 updates counted; next: visit 9"
    lines = [f"00:00:00 visit {visit}: {receipt}{more}\n" for visit, receipt in visits]
    path.write_text("".join(lines), encoding="utf-8")


def test_receipts_are_in_sums_or_wait_for_one(helper_folder, logs):
    write(logs["client-0"], (3, "counted"), (4, "unused"), (5, "counted"), (5, "counted"), (6, "counted"))
    write(logs["client-1"], (3, "counted"))
    write(logs["client-7"], (9, "counted"))
    found = receipts(logs, helper_folder)
    assert found == (3, 2, 0)
    assert found.total == 5


def test_an_update_in_none_of_the_sums_up_to_a_newer_one_is_lost(helper_folder, logs):
    write(logs["client-0"], (3, "counted"), (4, "counted"), (5, "counted"))
    assert receipts(logs, helper_folder) == (2, 0, 1)
