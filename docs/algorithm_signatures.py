"""Signatures of the algorithms, for the API reference.

The reference is made from the source, where algorithms have no ``__init__``: ``Algorithm`` makes it from the annotated
attributes, the hyper-parameters.
"""

from typing import Any

from griffe import Attribute, Class, Extension, Function, Parameter, ParameterKind, Parameters


class AlgorithmSignatures(Extension):
    """Gives each algorithm an ``__init__`` with its hyper-parameters."""

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Add the method; griffe calls this for each class that it has read."""
        if [str(base).partition("[")[0] for base in cls.bases] != ["Algorithm"] or "__init__" in cls.members:
            return
        keywords = [
            Parameter(name, annotation=found.annotation, kind=ParameterKind.keyword_only, default=found.value)
            for name, found in cls.members.items()
            if isinstance(found, Attribute) and found.annotation is not None and found.value is not None
        ]
        me = Parameter("self", kind=ParameterKind.positional_or_keyword)
        cls.set_member("__init__", Function("__init__", parameters=Parameters(me, *keywords)))
