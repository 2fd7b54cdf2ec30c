"""``offbeat.client`` has all names that a client's file imports."""

import offbeat_client

import offbeat.client


def test_it_has_the_names_of_the_light_client_with_its_own_run_client():
    assert set(offbeat.client.__all__) == {*offbeat_client.__all__, "LocalSGD"} - {"run"}
    differ = [
        name for name in offbeat_client.__all__
        if name != "run" and getattr(offbeat.client, name) is not getattr(offbeat_client, name)
    ]  # fmt: skip
    assert differ == ["run_client"]
