"""Fronts in processes of their own: clients notice nothing."""

import pytest

from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, check_log, kind_of, put_in_pieces


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    with running(tmp_path_factory.mktemp("fronts") / "server", front_processes=2) as server:
        yield server


def test_clients_take_part(fronts):
    peers = [fronts.enrol() for _ in range(3)]
    for _ in range(2):
        for peer in peers:
            assert peer.send(peer.check_in(), ONES)["counted"]
    visit = peers[0].check_in()
    assert put_in_pieces(peers[0], visit, body_of(ONES)).json()["receipt"]["counted"]
    assert peers[0].http.get(f"/v1/models/{visit['version']}").status_code == 200
