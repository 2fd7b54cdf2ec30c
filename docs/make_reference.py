"""The page ``docs/reference.md``, from the models that check an experiment.

So the page agrees with the check of an experiment's file.

``make reference``
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Interval
from offbeat_core.number_checks import LARGEST_COUNT, LARGEST_FLOAT32

from offbeat.algorithms import ALGORITHMS
from offbeat.algorithms.components.hyper_parameters import hyper_parameters
from offbeat.compression import Compressor
from offbeat.config.algorithm_table import (
    FACTORIES,
    as_inline_toml,
    default_hyper_parameters,
    hyper_parameters_of,
)
from offbeat.config.experiment_file import Experiment
from offbeat.config.fronts_section import FrontsSection
from offbeat.config.host_file import AdmissionSection, QuotaSection
from offbeat.config.local_section import COMPRESSION_FACTORIES, LR_DECAY_FACTORIES
from offbeat.config.login_section import LoginSection
from offbeat.config.server_file import ServiceSection
from offbeat.config.webhook_section import WebhookSection
from offbeat.service.store_settings import StoreSettings

PAGE = Path(__file__).with_name("reference.md")

_INTRODUCTION = """\
<!-- Made by `make reference`; change the descriptions in the code, not here. -->
# The experiment file

Every key of an experiment's TOML file, with its allowed values and its default. Paths are relative to the file's
folder. An import path is `my_code.py:name` or `package.module:name`. `--set section.key=value` changes a key from the
command line; the value is TOML.
"""

_TYPES = {
    "boolean": "`true` or `false`",
    "integer": "whole number",
    "number": "number",
    "string": "string",
    "object": "table",
}

_OWN_PATTERN = (
    '| `{ name = "my_patterns.py:rule", longest_gap = … }` | A rule of your own: `rule(client, round, clients)` '
    "returns the first round after `round` in which the client talks, at most `longest_gap` rounds later. |"
)


def reference() -> str:
    """Return the page."""
    schema = Experiment.model_json_schema()
    kinds: dict[str, Any] = schema["$defs"]
    top = {key: value for key, value in schema["properties"].items() if not _refers(value)}
    # Without the list of required keys: a missing `name` is taken from the file's name.
    parts = [_INTRODUCTION, "## Top level", _table({"properties": top}, "")]
    for key, value in schema["properties"].items():
        if _refers(value) and key != "algorithms":
            parts += _section(key, value, kinds)
    parts += ["## `[algorithms.LABEL]`", *_algorithms(kinds["AlgorithmTable"])]
    parts += ["## `[service]`", *_service(ServiceSection.model_json_schema())]
    parts += ["## `[store]`", *_store(StoreSettings.model_json_schema())]
    parts += ["## `[webhook]`", *_webhook(WebhookSection.model_json_schema())]
    parts += ["## `[login]`", *_login(LoginSection.model_json_schema())]
    parts += ["## `[fronts]`", *_fronts(FrontsSection.model_json_schema())]
    parts += ["## `[admission]`", *_admission(AdmissionSection.model_json_schema())]
    parts += ["## `[quota]`", *_quota(QuotaSection.model_json_schema())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _section(key: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[str]:
    choices = _choices(value)
    if len(choices) > 1:
        yield f"## `[{key}]`"
        yield _kinds(choices, kinds)
        return
    section = kinds[choices[0]]
    yield f"## `[{key}]`"
    yield _sentence(section)
    yield _table(section, f"{key}.")
    shown: dict[tuple[str, ...], str] = {}
    for name, below in section["properties"].items():
        inner = _choices(below)
        if inner:
            yield f"### `{key}.{name}`"
            yield below.get("description", "")
            first = shown.setdefault(tuple(inner), name)
            yield _kinds(inner, kinds) if first == name else f"The same tables as `{key}.{first}`."
    if key == "local":
        yield from _compression()
        yield "### `local.lr_decay`"
        yield "lr · f(v) is the step size of a visit that starts at version v."
        yield _factories(LR_DECAY_FACTORIES)


def _kinds(choices: Iterable[str], kinds: Mapping[str, Any]) -> str:
    """Return a list of the tables that a key accepts, with their keys."""
    lines: list[str] = []
    choices = list(choices)
    for choice in choices:
        section = kinds[choice]
        properties = dict(section["properties"])
        selector = next((name for name in ("name", "distribution") if "const" in properties.get(name, {})), None)
        if selector:
            head = f'`{selector} = "{properties.pop(selector)["const"]}"`. '
        elif choice == "OwnModelSection":
            head = '`name = "my_code.py:make_model"`. '
        else:
            head = ""
        lines.append(f"- {head}{_one_line(section['description'])}")
        # Keys that all models share are listed once, below.
        for name, key in properties.items():
            if name not in ("loss", "batch_norm"):
                lines.append(f"    - `{name}`: {_key(name, key, section)}")
    shared = {name: key for name, key in kinds[choices[0]]["properties"].items() if name in ("loss", "batch_norm")}
    if shared:
        lines += ["", "All of them also have:", ""]
        lines += [f"- `{name}`: {_key(name, key, kinds[choices[0]])}" for name, key in shared.items()]
    return "\n".join(lines)


def _table(section: Mapping[str, Any], prefix: str) -> str:
    lines = ["| key | meaning | allowed | default |", "| --- | --- | --- | --- |"]
    for name, key in section["properties"].items():
        if name == "algorithms":
            continue
        meaning = _one_line(key.get("description", "")) or "see below"
        lines.append(f"| `{prefix}{name}` | {meaning} | {_allowed(key)} | {_default(name, key, section)} |")
    return "\n".join(lines)


def _key(name: str, key: Mapping[str, Any], section: Mapping[str, Any]) -> str:
    description = _one_line(key.get("description", ""))
    parts = [description] if description else []
    allowed, default = _allowed(key), _default(name, key, section)
    allowed = allowed[0].upper() + allowed[1:]
    return " ".join([*parts, f"{allowed}; required." if default == "required" else f"{allowed}; default: {default}."])


def _allowed(key: Mapping[str, Any]) -> str:
    if _choices(key):
        return "a table, see below"
    options = [option for option in key.get("anyOf", [key]) if option.get("type") != "null"]
    return " or ".join(_allowed_value(option) for option in options)


def _allowed_value(value: Mapping[str, Any]) -> str:
    if "enum" in value or "const" in value:
        return " or ".join(f"`{as_inline_toml(choice)}`" for choice in value.get("enum") or [value["const"]])
    if value.get("type") == "array":
        return f"a list, each {_allowed_value(value['items'])}"
    name = _TYPES[value["type"]]
    words = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
    limits = [f"{word} {value[limit]:g}" for limit, word in words.items() if limit in value and value[limit] < 2**63]
    return f"{name} {', '.join(limits)}".strip()


def _default(name: str, key: Mapping[str, Any], section: Mapping[str, Any]) -> str:
    if name in section.get("required", ()):
        return "required"
    default = key.get("default")
    if isinstance(default, dict):
        default = {inner: value for inner, value in default.items() if value is not None}
    return "none" if default is None else f"`{as_inline_toml(default)}`"


def _algorithms(table: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "At least one table. LABEL names the folders of the runs: letters, digits, spaces and `. _ + -`. Besides the "
        "two keys below a table holds the algorithm's hyper-parameters."
    )
    yield _table(table, "")
    lines = [
        "| algorithm | description | hyper-parameters, defaults, allowed values |",
        "| --- | --- | --- |",
    ]
    for name, kind in ALGORITHMS.items():
        values, hints = hyper_parameters_of(kind()), hyper_parameters(kind)
        keys = [
            (f"`{key} = {as_inline_toml(values[key])}`" if key in values else f"`{key}`: none")
            + f", {_range_of(hints[key])}"
            for key in default_hyper_parameters(kind)
        ]
        lines.append(f"| `{name}` | {_one_line((kind.__doc__ or '').partition(chr(10))[0])} | {'<br>'.join(keys)} |")
    yield "\n".join(lines)
    for title, makers in FACTORIES.items():
        yield f"### `{title}`"
        yield _factories(makers) + (f"\n{_OWN_PATTERN}" if title == "pattern" else "")


def _service(section: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Only in a server's file: folder, address, certificate, and limits on clients. [Operate a "
        "server](concepts/operate.md#settings) says what else differs there."
    )
    properties = section["properties"].items()
    required_first = sorted(properties, key=lambda item: item[0] not in section["required"])
    yield _table({**section, "properties": dict(required_first)}, "service.")


def _store(section: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Only in a server's file: a log and large files that [several servers](how-to/several-servers.md) share. "
        "Without it both are in `service.folder`."
    )
    yield _table(section, "store.")


def _webhook(section: Mapping[str, Any]) -> Iterator[str]:
    yield "Only in a server's file: [messages](concepts/operate.md#messages) about events of the run to a URL of yours."
    yield _table(section, "webhook.")


def _login(section: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Only in a server's file: [logins](concepts/clients-and-tokens.md#logins) of people through an OpenID Connect "
        "provider."
    )
    yield _table(section, "login.")


def _fronts(section: Mapping[str, Any]) -> Iterator[str]:
    yield "Only in a server's file with `[store]`: [fronts](how-to/several-servers.md#fronts) on other machines."
    yield _table(section, "fronts.")


def _admission(section: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Only in the file of a run on a [server of several runs](how-to/several-runs.md): which of its sites take part."
    )
    yield _table(section, "admission.")


def _quota(section: Mapping[str, Any]) -> Iterator[str]:
    yield "Only in the file of a run on such a server: the run's share of it."
    yield _table(section, "quota.")


def _factories(makers: Mapping[str, Callable[..., Any]]) -> str:
    """Return the tables that name a maker."""
    lines = ["| table | description |", "| --- | --- |"]
    for name, maker in makers.items():
        seed = " `seed`: the run's by default." if "seed" in inspect.signature(maker).parameters else ""
        lines.append(f"| {_made_by_name(name, maker)} | {_summary(maker)}{seed} |")
    return "\n".join(lines)


def _range_of(hint: Any) -> str:
    """Return in words the values that a hyper-parameter's annotation allows."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_range_of(option) for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        return " or ".join(f"`{as_inline_toml(choice)}`" for choice in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))} numbers"
    if get_origin(hint) is not Annotated:
        return {bool: "`true` or `false`", int: "whole number", float: "number", str: "string"}.get(hint, "a table")
    kind, *bounds = get_args(hint)
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    limits = [
        f"{word} {getattr(bound, name):g}"
        for bound in bounds
        if isinstance(bound, Interval)
        for name, word in words.items()
        if getattr(bound, name) not in (None, LARGEST_COUNT, LARGEST_FLOAT32)
    ]
    return f"{'whole number' if kind is int else 'number'} {', '.join(limits)}".strip()


def _compression() -> Iterator[str]:
    yield "### `local.compression`"
    yield (
        "`…` is required; d is the number of the model's parameters, s = 2^(bits − 1) − 1. `error_feedback` and "
        "FedLaAvg's differences need a contraction; see [Compression](concepts/compression.md)."
    )
    lines = ["| table | description | contraction | parameters |", "| --- | --- | --- | --- |"]
    for name, maker in COMPRESSION_FACTORIES.items():
        cells = _made_by_name(name, maker), _summary(maker), _contraction(maker), _arguments(maker)
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)


def _contraction(maker: Callable[..., Any]) -> str:
    """Return the condition under which a compressor is a contraction.

    Its docstring says "Return True: …" or "Return whether …: …".
    """
    if not (isinstance(maker, type) and issubclass(maker, Compressor)):
        return ""
    when = _summary(maker.is_contraction).removeprefix("Return ").partition(":")[0].rstrip(".")
    return "always" if when == "True" else when.replace("whether", "if", 1)


def _arguments(maker: Callable[..., Any]) -> str:
    """Return the arguments in a docstring, which describes each on one line."""
    _, _, described = (inspect.getdoc(maker) or "").partition("Args:\n")
    found = re.findall(r"^ {4}(\w+): (.*)$", described.partition("\n\n")[0], re.MULTILINE)
    return "<br>".join(f"`{name}`: {_one_line(meaning)}" for name, meaning in found)


def _made_by_name(name: str, maker: Callable[..., Any]) -> str:
    parameters = inspect.signature(maker).parameters.items()
    defaults = [
        f"{key} = {'…' if p.default is p.empty else as_inline_toml(p.default)}"
        for key, p in parameters
        if key != "seed"
    ]
    text = ", ".join([f'name = "{name}"', *defaults])
    return f"`{{ {text} }}`"


def _summary(maker: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring, for a table's cell."""
    return _one_line((inspect.getdoc(maker) or "").partition("\n\n")[0]).replace("|", "\\|")


def _refers(value: Mapping[str, Any]) -> bool:
    return bool(_choices(value)) or "patternProperties" in value


def _choices(value: Mapping[str, Any]) -> list[str]:
    """Return the names of the tables that a value accepts."""
    options = [value, *value.get("anyOf", []), *value.get("oneOf", [])]
    return [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]


def _sentence(section: Mapping[str, Any]) -> str:
    text = _one_line(section["description"])
    head, colon, rest = text.partition(": ")
    return rest[0].upper() + rest[1:] if colon and head.startswith("`[") else text


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
