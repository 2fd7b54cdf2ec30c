from offbeat.service.masked.client_keys import ClientKeys

ONE, TWO = bytes([1] * 32), bytes([2] * 32)


def test_a_client_has_one_key_and_a_key_one_client():
    keys = ClientKeys()
    assert keys.allows(0, ONE)
    keys.add(0, ONE)
    assert keys.allows(0, ONE)
    assert not keys.allows(0, TWO)
    assert not keys.allows(1, ONE)
    assert keys.allows(1, TWO)
    assert (keys.client(ONE), keys.client(TWO)) == (0, None)


def test_keys_come_back_from_their_entries():
    keys = ClientKeys()
    keys.add(3, ONE)
    keys.add(1, TWO)
    assert keys.entries() == [(3, "01" * 32), (1, "02" * 32)]
    again = ClientKeys([list(entry) for entry in keys.entries()])  # as JSON has them
    assert not again.allows(2, ONE)
    assert again.client(TWO) == 1
