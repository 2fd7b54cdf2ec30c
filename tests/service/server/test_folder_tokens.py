import pytest

from offbeat.errors import OffbeatError
from offbeat.service.server import admin
from tests.service.conftest import running
from tests.service.http_client import kind_of


@pytest.mark.parametrize("kind", ["enrolment", "admin"])
def test_the_token_of_a_deleted_file_stops_working_when_the_server_starts_again(kind, tmp_path):
    file = tmp_path / "server" / f"{kind}-token"
    with running(tmp_path / "server"):
        before = file.read_text().strip()
    file.unlink()
    with running(tmp_path / "server") as server:
        after = file.read_text().strip()
        assert after != before
        assert not server.service.accounts.is_valid(before, kind)
        assert server.service.accounts.is_valid(after, kind)
        made = server.admin.http.post("/v1/enrolment-tokens", json={}).json()["token"]
    with running(tmp_path / "server") as server:
        assert file.read_text().strip() == after
        assert server.service.accounts.is_valid(made, "enrolment")


def test_a_revoked_token_in_the_folder_is_replaced_at_the_next_start(tmp_path):
    with running(tmp_path / "server") as server:
        (which,) = [token["id"] for token in admin.tokens(tmp_path / "server") if token["kind"] == "admin"]
        admin.revoke(tmp_path / "server", which)
        assert kind_of(server.admin.http.get("/v1/status"), 401) == "revoked-token"
        with pytest.raises(OffbeatError, match="delete admin-token in the server's folder"):
            admin.status(tmp_path / "server")
    with running(tmp_path / "server"):
        assert admin.status(tmp_path / "server")["version"] == 0
