import pytest
from offbeat_core.setting_names import setting, settings_named


def test_a_key_is_its_own_name_outside_of_the_context():
    assert setting("stop.versions") == "stop.versions"
    with settings_named({"stop.versions": "versions", "stop": ""}):
        assert [setting(key) for key in ("stop.versions", "stop", "local.lr")] == ["versions", "", "local.lr"]
        with settings_named({}):
            assert setting("stop.versions") == "stop.versions"
        assert setting("stop.versions") == "versions"
    with pytest.raises(KeyError), settings_named({"stop": "end"}):
        raise KeyError
    assert setting("stop") == "stop"
