from dataclasses import fields

from offbeat.config.server_file import ServiceSection
from offbeat.service.settings import ServerSettings


def test_the_keys_of_a_servers_file_are_fields_with_the_same_defaults():
    settings = {field.name: field.default for field in fields(ServerSettings)}
    keys = {name: key.default for name, key in ServiceSection.model_fields.items()}
    certificates, helper = {"hosts", "tls", "certificate", "key"}, {"helper_terms", "helper_token_file", "helper_ca"}
    # The first two are the coordinator's; the others become ``certificates`` and ``privacy``.
    assert keys.keys() - settings.keys() == {"clients", "initial_model"} | certificates | helper
    shared = (keys.keys() & settings.keys()) - {"folder"}
    assert {name: keys[name] for name in shared} == {name: settings[name] for name in shared}
