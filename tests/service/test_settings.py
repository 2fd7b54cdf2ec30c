from dataclasses import fields
from pathlib import Path

import pytest

from offbeat.config.server_file import ServiceSection
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluationSettings
from offbeat.service.settings import ServerSettings


def test_the_keys_of_a_servers_file_are_fields_with_the_same_defaults():
    settings = {field.name: field.default for field in fields(ServerSettings)}
    keys = {name: key.default for name, key in ServiceSection.model_fields.items()}
    certificates, helper = {"tls", "certificate", "key"}, {"helper_terms", "helper_token_file", "helper_ca"}
    # The first two are the coordinator's; the others become ``certificates`` and ``privacy``.
    assert keys.keys() - settings.keys() == {"clients", "initial_model"} | certificates | helper
    shared = (keys.keys() & settings.keys()) - {"folder"}
    assert {name: keys[name] for name in shared} == {name: settings[name] for name in shared}


@pytest.mark.parametrize(("lease_seconds", "wait_seconds"), [(30.0, 30.0), (None, 600.0)])
def test_clients_evaluate_if_there_are_versions_to_evaluate(lease_seconds, wait_seconds):
    def settings(**changes):
        return ServerSettings(folder=Path("x"), seed=5, lease_seconds=lease_seconds, **changes).client_evaluation

    assert settings(evaluate_every=3, evaluate_on_clients=4) == ClientEvaluationSettings(
        number=4, every_versions=3, wait_seconds=wait_seconds, lower_is_better=frozenset({"loss"}), seed=5
    )
    assert settings(evaluate_every=3) is None
    assert settings(evaluate_on_clients=4) is None
