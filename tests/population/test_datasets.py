import pytest

from offbeat.errors import OffbeatError
from offbeat.population import DATASETS, load_dataset


def test_a_data_set_knows_the_name_that_it_is_loaded_by():
    assert load_dataset("digits").name == "digits"


def test_the_registry():
    assert set(DATASETS) == {"digits", "fashion-mnist"}


def test_an_unknown_name():
    with pytest.raises(OffbeatError, match="unknown data set 'fashon-mnist': did you mean 'fashion-mnist'"):
        load_dataset("fashon-mnist")
