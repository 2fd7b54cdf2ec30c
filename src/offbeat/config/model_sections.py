"""The section ``[model]``, one for each built-in model and one for the user's own."""

from typing import Annotated, Any, Literal

from offbeat_core.tables.section import Count, Section
from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from offbeat.config.given_objects import OR_GIVEN, Given
from offbeat.config.import_path import is_import_path
from offbeat.config.user_paths import ImportPath, name_or_import_path
from offbeat.training.objectives import LOSSES

Table = dict[str, Any]


class AnyModelSection(Section):
    """Keys of all models."""

    loss: Annotated[str | Given, OR_GIVEN] = "cross_entropy"
    """cross_entropy, mse, bce, model (the model gets the labels and returns its own ``loss``), or the import path of a
    function of (outputs, labels)."""
    batch_norm: Literal["refuse", "local"] = "refuse"
    """BatchNorm layers: an error, or statistics of each minibatch, which are never sent."""

    @field_validator("loss")
    @classmethod
    def _check_known(cls, loss: str | Given, info: ValidationInfo) -> str | Given:
        if isinstance(loss, Given):
            if not callable(loss.value):
                raise ValueError("must be a name or a function of (outputs, labels)")
            return loss
        return name_or_import_path(loss, info, LOSSES)


class SoftmaxSection(AnyModelSection):
    """Multinomial logistic regression."""

    name: Literal["softmax"]


class MlpSection(AnyModelSection):
    """A multi-layer perceptron with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(strict=False)] = (128,)
    """Units of each hidden layer."""


class CnnSection(AnyModelSection):
    """A small convolutional network."""

    name: Literal["cnn"]


class ResnetSection(AnyModelSection):
    """ResNet-18 for small images, with GroupNorm."""

    name: Literal["resnet18"]


class LstmSection(AnyModelSection):
    """A two-layer LSTM over tokens."""

    name: Literal["lstm"]
    hidden: Count = 16
    """Units of each layer."""
    embedding: Count = 25
    """Length of a token's vector."""


class OwnModelSection(AnyModelSection):
    """A model of the user's own."""

    name: Annotated[ImportPath | Given, OR_GIVEN]
    """The import path of a ``torch.nn.Module`` class, or of a function that returns a module."""
    arguments: Table = Field(default_factory=dict)
    """Its keyword arguments."""


def _kind_of_model(value: Any) -> str | None:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if isinstance(name, Given):
        return "own"
    if not isinstance(name, str):
        return None
    return "own" if is_import_path(name) else name


ModelSection = Annotated[
    Annotated[SoftmaxSection, Tag("softmax")]
    | Annotated[MlpSection, Tag("mlp")]
    | Annotated[CnnSection, Tag("cnn")]
    | Annotated[ResnetSection, Tag("resnet18")]
    | Annotated[LstmSection, Tag("lstm")]
    | Annotated[OwnModelSection, Tag("own")],
    Discriminator(_kind_of_model),
]
