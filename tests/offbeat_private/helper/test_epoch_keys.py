import stat

import pytest
from offbeat_private.helper.epoch_keys import EpochKeys


def test_a_key_is_made_once_and_lasts_until_the_next_epoch_ends(tmp_path):
    keys = EpochKeys(tmp_path)
    keys.keep(0)
    first = keys.read(0).private_bytes_raw()
    keys.keep(0)
    keys.keep(1)
    assert EpochKeys(tmp_path).read(0).private_bytes_raw() == first
    assert keys.read(1).private_bytes_raw() != first
    keys.keep(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    with pytest.raises(FileNotFoundError):
        keys.read(0)
