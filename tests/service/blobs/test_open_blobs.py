import asyncio
import sys
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.blobs.object_blobs import ObjectBlobs
from offbeat.service.blobs.open_blobs import open_blobs


def created_and_fetched(url: str | None, folder: Path) -> Path:
    blobs = open_blobs(url, folder, 100)
    assert isinstance(blobs, FolderBlobs)
    asyncio.run(blobs.create("r1/x", b"x"))
    return blobs.fetch("r1/x")


def test_no_url_is_the_folder(tmp_path: Path) -> None:
    assert created_and_fetched(None, tmp_path / "here") == tmp_path / "here/r1/x"


def test_the_url_of_a_folder(tmp_path: Path) -> None:
    assert created_and_fetched(f"file://{tmp_path}/a%20b", tmp_path / "here") == tmp_path / "a b/r1/x"


@pytest.mark.parametrize("url", ["nonsense", "s3://", "s3:bucket", "http://a/b", "file:relative", "file://host/a"])
def test_what_is_no_url_of_a_store_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(OffbeatError, match=r"^store\.blobs cannot be '[^']+': allowed are s3://BUCKET/PREFIX, [^\n]+$"):
        open_blobs(url, tmp_path, 100)


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/a", "s3://bucket/a?secret_access_key=secret"])
def test_credentials_in_a_url_are_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        OffbeatError, match=r"^[^\n]+ set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in [^\n]+$"
    ) as caught:
        open_blobs(url, tmp_path, 100)
    assert "secret@" not in str(caught.value)
    assert "=secret" not in str(caught.value)


def test_plain_http_must_be_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(OffbeatError, match=r"^AWS_ENDPOINT_URL is plain HTTP, [^\n]+ AWS_ALLOW_HTTP=true$"):
        open_blobs("s3://bucket/a", tmp_path, 100)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert isinstance(open_blobs("s3://bucket/a", tmp_path, 100), ObjectBlobs)


def test_half_of_the_credentials_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(OffbeatError, match=r"^cannot use s3://bucket/a: [^\n]+; set AWS_ACCESS_KEY_ID and [^\n]+$"):
        open_blobs("s3://bucket/a", tmp_path, 100)


def test_azure_without_an_account_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(
        OffbeatError, match=r"^cannot use az://box/a: [^\n]+; set AZURE_STORAGE_ACCOUNT_NAME and [^\n]+$"
    ):
        open_blobs("az://box/a", tmp_path, 100)


def test_the_blobs_of_a_folder_stay_when_objects_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = created_and_fetched(None, tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    open_blobs("s3://bucket/a", tmp_path, 100)
    assert path.read_bytes() == b"x"


def test_obstore_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(OffbeatError, match=r"^store\.blobs needs obstore: pip install 'offbeat\[cluster\]'$"):
        open_blobs("s3://bucket/a", tmp_path, 100)
