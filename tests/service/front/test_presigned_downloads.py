"""Models that clients download from the bucket itself, which asks for signatures."""

from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import sqlalchemy as sa
from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import download

from offbeat.service.internal.internal_certificates import make_internal_certificates
from offbeat.service.store_settings import StoreSettings
from tests.object_store import ObjectStore
from tests.postgres import postgres as postgres
from tests.service.front_elsewhere import front_elsewhere, leading_elsewhere
from tests.service.http_client import ONES, kind_of

KEYS = ("AKIDPRESIGNED", "PRESIGNED+SECRET")


class Version(NamedTuple):
    version: int
    model_sha256: str
    length: int


ABLE = {"Offbeat-Supports": "redirects"}


def test_a_client_that_can_follow_gets_a_url_of_its_version_alone(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weed").mkdir()
    made = make_internal_certificates(tmp_path / "tls", ["leader"], ["front"])
    log = postgres.replace("+psycopg", "")
    store = StoreSettings(log=log, blobs="s3://offbeat/signed", presigned=True)
    with ObjectStore(tmp_path / "weed", keys=KEYS) as objects:
        settings = {"ACCESS_KEY_ID": KEYS[0], "SECRET_ACCESS_KEY": KEYS[1], "ENDPOINT_URL": objects.address}
        for name, value in {**settings, "ALLOW_HTTP": "true", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        with (
            leading_elsewhere(tmp_path / "leader", store, made["leader"]) as leader,
            front_elsewhere(tmp_path / "front", store, leader, made["front"]) as peer_of,
        ):
            token = leader.enrol().token
            for number, peer in enumerate((peer_of(token), leader.enrol())):  # the leader is a front, too
                visit = peer.check_in()
                assert visit is not None
                content = peer.http.get(f"/v1/models/{visit['version']}").content
                answer = peer.http.get(f"/v1/models/{visit['version']}", headers=ABLE, follow_redirects=False)
                assert (answer.status_code, answer.headers["etag"]) == (307, f'"{visit["model_sha256"]}"')
                url = answer.headers["location"]
                assert url.startswith(f"{objects.address}/offbeat/signed/")
                assert "X-Amz-Expires=3600" in url
                assert httpx.get(url).content == content
                assert httpx.get(url.partition("?")[0]).status_code == 403
                assert httpx.put(url, content=content).status_code == 403
                name = f"models/{visit['version']}-{visit['model_sha256'][:16]}"
                assert httpx.get(url.replace(name, f"updates/{visit['number']}")).status_code == 403
                known = {**ABLE, "If-None-Match": answer.headers["etag"]}
                assert peer.http.get(f"/v1/models/{visit['version']}", headers=known).status_code == 304
                wanted = Version(visit["version"], visit["model_sha256"], visit["length"])
                folder = tmp_path / f"client-{number}"
                folder.mkdir()
                with Connection(str(peer.http.base_url), peer.token) as connection:
                    assert download(connection, wanted, folder).read_bytes() == content
                assert peer.send(visit, ONES)["counted"]
            no_token = httpx.get(f"{leader.admin.http.base_url}/v1/models/0", headers=ABLE)
            assert kind_of(no_token, 401) == "no-token"
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS log, bodies, runs, servers")
    engine.dispose()
