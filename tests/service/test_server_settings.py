from pathlib import Path

import pytest
from pydantic import ValidationError

from offbeat.config.server_file import ServiceSection
from offbeat.service import server_settings
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluationSettings
from offbeat.service.server_settings import ServerSettings, ServiceSettings, StoreSettings


def test_keys_that_fix_the_run_are_marked():
    assert ServiceSettings.fixed() == {"seed", "max_share"}
    assert ServiceSection.fixed() == {"seed", "max_share", "clients", "initial_model"}


@pytest.mark.parametrize(("lease_seconds", "wait_seconds"), [(30.0, 30.0), (None, 600.0)])
def test_clients_evaluate_if_there_are_versions_to_evaluate(lease_seconds, wait_seconds):
    def settings(**changes):
        return ServerSettings(
            folder=Path("x"), service=ServiceSettings(seed=5), lease_seconds=lease_seconds, **changes
        ).client_evaluation

    assert settings(evaluate_every=3, evaluate_on_clients=4) == ClientEvaluationSettings(
        number=4, every_versions=3, wait_seconds=wait_seconds, lower_is_better=frozenset({"loss"}), seed=5
    )
    assert settings(evaluate_every=3) is None
    assert settings(evaluate_on_clients=4) is None


def test_a_shared_log_is_in_postgresql_and_its_password_is_elsewhere():
    store = StoreSettings(log="postgresql://offbeat@db:5432/offbeat", blobs="s3://bucket/prefix")
    assert store.blobs == "s3://bucket/prefix"
    for log, line in {
        "sqlite:///x": "log must begin with postgresql://",
        "postgresql://offbeat:secret@db/offbeat": "log must not hold a password: put it into PGPASSWORD",
    }.items():
        with pytest.raises(ValidationError, match=line):
            StoreSettings(log=log, blobs="s3://bucket")
    with pytest.raises(ValidationError, match=r"presigned needs blobs in s3://, gs:// or az://: leave it out for a "):
        StoreSettings(log="postgresql://offbeat@db/offbeat", blobs="file:///mnt/shared", presigned=True)


def test_blake3_needs_its_package(monkeypatch):
    monkeypatch.setattr(server_settings, "has_blake3", lambda: True)
    assert ServiceSettings(digest="blake3").digest == "blake3"
    monkeypatch.setattr(server_settings, "has_blake3", lambda: False)
    with pytest.raises(ValidationError, match=r"the package blake3 is missing: pip install 'offbeat\[blake3\]'"):
        ServiceSettings(digest="blake3")
