import pytest

from offbeat.algorithms.components.checks import check_client


@pytest.mark.parametrize("client", [0, 4])
def test_a_client_of_the_run_passes(client):
    assert check_client(client, 5) is None


@pytest.mark.parametrize("client", [-1, 5])
def test_a_client_outside_the_run_is_refused(client):
    with pytest.raises(ValueError, match=f"client must be in 0 … 4, got {client}"):
        check_client(client, 5)
