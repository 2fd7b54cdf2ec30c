import pytest
from pydantic import TypeAdapter, ValidationError

from offbeat.config.model_sections import CnnSection, LstmSection, ModelSection, OwnModelSection

read = TypeAdapter(ModelSection).validate_python


def test_the_name_chooses_the_section():
    assert isinstance(read({"name": "cnn"}), CnnSection)
    lstm = read({"name": "lstm", "hidden": 3})
    assert isinstance(lstm, LstmSection)
    assert (lstm.hidden, lstm.embedding, lstm.loss, lstm.batch_norm) == (3, 25, "cross_entropy", "refuse")
    own = read({"name": "torch.nn:Linear", "arguments": {"in_features": 2}})
    assert isinstance(own, OwnModelSection)


@pytest.mark.parametrize(
    "table", [{"name": "cnn", "hidden": 3}, {"name": "mlp", "hidden": [0]}, {"name": "cnn", "loss": "hinge"}], ids=str
)
def test_a_wrong_key_or_value_is_refused(table):
    with pytest.raises(ValidationError):
        read(table)
