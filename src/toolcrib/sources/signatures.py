"""Reads a Python callable as a tool: its schemas and description, argument conversion, and answers as JSON."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Never, NoReturn, Union, cast

import docstring_parser
from docstring_parser import DocstringStyle
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError, from_json, to_json

from toolcrib.core.errors import InvalidArguments, InvalidTool
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import MAX_VIOLATIONS, Violation, pointer
from toolcrib.sources.base import ProgressListener

_logger = logging.getLogger(__name__)

_UNREADABLE = (PydanticUserError, SchemaError, NameError, TypeError, ValueError, RecursionError)
"""What pydantic raises for a type that has no schema."""

_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One parameter of the callable, and where its value comes from: an argument (`field`), or the call itself."""

    name: str
    positional: bool
    default: Any
    field: str | None = None
    fills_default: bool = False
    """Whether an omitted argument takes the default of pydantic's `Field` instead of the callable's own."""
    injected: object | None = None
    """`CallContext` or `ProgressListener`, if the call provides the value."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Describes a callable for a model, and converts the model's arguments for a call."""

    name: str | None
    """The callable's name in code; None for a lambda."""
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    """The schema of an object, as MCP requires. None if the callable has no return annotation, or returns plain
    text."""
    wraps_answer: bool
    """Whether the output schema describes `{"result": answer}`, because the answer is not always an object."""
    _slots: tuple[_Slot, ...]
    _model: type[BaseModel]
    _reserved: frozenset[str]
    _answer: TypeAdapter[Any] | None

    def bind(
        self, arguments: Mapping[str, Any], context: CallContext, progress: ProgressListener
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments for the callable, converted from JSON to the annotated types.

        An omitted argument is left out, so that the callable's own default applies.

        Raises:
            InvalidArguments: a value cannot be converted. `details["violations"]` names the places.
        """
        try:
            converted = self._model.model_validate_json(to_json(dict(arguments)))
        except ValidationError as error:
            raise _invalid(error, arguments) from error
        except PydanticSerializationError as error:
            raise InvalidArguments(f"the arguments are not a JSON value: {error}") from error
        extra = converted.model_extra or {}
        if taken := sorted(self._reserved & extra.keys()):
            raise InvalidArguments(f"unknown key `{taken[0]}`")
        values: Mapping[str, Any] = converted.__dict__
        positional: list[Any] = []
        keywords = dict(extra)
        for slot in self._slots:
            if slot.injected is not None:
                value = context if slot.injected is CallContext else progress
            elif slot.field in converted.model_fields_set or slot.fills_default:
                value = values[cast("str", slot.field)]
            elif slot.positional:
                value = slot.default
            else:
                continue
            if slot.positional:
                positional.append(value)
            else:
                keywords[slot.name] = value
        return tuple(positional), keywords

    def answer_json(self, value: Any) -> tuple[Any, str]:
        """Return `value` as a JSON value and as compact JSON text, written by its annotated type if there is one.

        NaN and the infinities, which JSON lacks, become null. An object of an unknown type becomes its `str`.

        Raises:
            PydanticSerializationError, ValueError, RecursionError: the value contains itself, or its own serializer
                fails.
        """
        encoded: bytes | None = None
        if self._answer is not None:
            try:
                encoded = self._answer.dump_json(value, by_alias=True, warnings=False)
            except PydanticSerializationError:
                _logger.debug(
                    "an answer does not have the annotated type; it is written by its actual type", exc_info=True
                )
        if encoded is None:
            encoded = to_json(value, by_alias=True, inf_nan_mode="null", fallback=str)
        return from_json(encoded), encoded.decode()


def read_signature(fn: Callable[..., Any]) -> Signature:
    """Read annotations, defaults and docstring (Google, NumPy or reST style) of `fn`.

    Parameters annotated `CallContext` or `ProgressListener` are filled in by the call and hidden from the model.
    Parameters that a `functools.partial` has bound are hidden too. `**extra: T` becomes `additionalProperties`.

    A callable that returns `str`, `None`, `Any` or a `ToolResult`, or has no return annotation, has no output schema.

    Raises:
        InvalidTool: the callable has no readable signature, takes `*args`, is not bound to its instance, yields instead
            of returning, or has an annotation that cannot be resolved or converted to JSON Schema.
    """
    target, bound = _target(fn)
    name = _name(target, fn)
    called = f"`{name or repr(fn)}`"
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidTool(f"{called} is a generator; a tool must return one answer")
    try:
        parameters = inspect.signature(fn).parameters
    except (ValueError, TypeError) as error:
        raise InvalidTool(f"{called} has no readable signature: {error}") from error
    hints = _hints(target, called)
    prose = _Prose.of(_docstring(target, fn), parameters)

    slots: list[_Slot] = []
    fields: dict[str, Any] = {}
    wire_names: dict[str, str] = {}
    extra: Any = None
    reserved = set(bound)
    for position, parameter in enumerate(parameters.values()):
        if parameter.name in bound:
            continue
        annotation = hints.get(parameter.name, _given(parameter.annotation))
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise InvalidTool(f"{called} takes `*{parameter.name}`; every argument of a tool needs a name")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = annotation
            continue
        if position == 0 and parameter.name == "self" and parameter.annotation is parameter.empty:
            raise InvalidTool(f"{called} is not bound to an instance: add `object.method`, not `Class.method`")
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        if not positional:
            reserved.add(parameter.name)
        if (injected := _injected(annotation)) is not None:
            slots.append(_Slot(parameter.name, positional, parameter.default, injected=injected))
            continue
        field = f"a{position}"  # not the parameter's own name, which pydantic may refuse (`_x`, `model_config`)
        wire_name, definition, fills_default = _field(annotation, parameter, prose.parameters.get(parameter.name))
        if wire_name in wire_names:
            raise InvalidTool(f"{called} takes both `{parameter.name}` and `{wire_names[wire_name]}` as `{wire_name}`")
        wire_names[wire_name] = parameter.name
        fields[field] = definition
        slots.append(_Slot(parameter.name, positional, parameter.default, field, fills_default))

    try:
        model = _model(fields, extra, module=getattr(target, "__module__", None) or __name__)
        input_schema = _without_titles(model.model_json_schema(schema_generator=_JsonSchema))
    except _UNREADABLE as error:
        raise InvalidTool(f"{called} has a parameter whose type has no JSON Schema: {_line(error)}") from error
    answer, output_schema, wraps_answer = _answer(hints.get("return", Any), called)
    return Signature(
        name=name,
        description=prose.description,
        input_schema=input_schema,
        output_schema=output_schema,
        wraps_answer=wraps_answer,
        _slots=tuple(slots),
        _model=model,
        _reserved=frozenset(reserved),
        _answer=answer,
    )


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether calling `fn` returns a coroutine, also through `functools.partial` or a `__call__`."""
    target, _ = _target(fn)
    return inspect.iscoroutinefunction(fn) or (not inspect.isroutine(fn) and inspect.iscoroutinefunction(target))


def _target(fn: Any) -> tuple[Any, frozenset[str]]:
    """Return the object with the annotations and docstring of `fn`, and the keywords that partials have bound."""
    if not callable(fn):
        raise InvalidTool(f"`{fn!r}` is not callable")
    if isinstance(fn, type):
        raise InvalidTool(f"`{fn.__name__}` is a class; add a function that returns an instance")
    bound: set[str] = set()
    target: Any = fn
    while isinstance(target, partial):
        bound.update(cast("partial[Any]", target).keywords)
        target = cast("partial[Any]", target).func
    if not inspect.isroutine(target) and not hasattr(target, "__wrapped__"):
        target = target.__call__
    return target, frozenset(bound)


def _name(target: Any, fn: Any) -> str | None:
    name = getattr(target, "__name__", None)
    if name == "__call__" and not inspect.isroutine(fn):
        return type(target.__self__).__name__
    return name if isinstance(name, str) and name != "<lambda>" else None


def _docstring(target: Any, fn: Any) -> str:
    doc = getattr(target, "__doc__", None)
    if not doc and getattr(target, "__name__", None) == "__call__" and not inspect.isroutine(fn):
        doc = type(target.__self__).__doc__
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def _hints(target: Any, called: str) -> dict[str, Any]:
    # Linters ask to import both names for type checkers only; they must be found nevertheless.
    names = {"CallContext": CallContext, "ProgressListener": ProgressListener}
    names.update(getattr(inspect.unwrap(target), "__globals__", {}))
    try:
        return typing.get_type_hints(target, globalns=names, include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"{called} has an annotation that cannot be resolved: {error}; define the names that annotations use at "
            "the top level of the function's module, and not only for type checkers"
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise InvalidTool(f"{called} has an annotation that cannot be resolved: {_line(error)}") from error


def _given(annotation: Any) -> Any:
    return Any if annotation is inspect.Parameter.empty or isinstance(annotation, str) else annotation


def _bare(annotation: Any) -> Any:
    """Return the type inside `Annotated[...]`."""
    return annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union without `Annotated`; for any other type, the type itself."""
    bare = _bare(annotation)
    is_union = typing.get_origin(bare) in (Union, UnionType)
    return tuple(_bare(member) for member in typing.get_args(bare)) if is_union else (bare,)


def _injected(annotation: Any) -> object | None:
    """Return `CallContext` or `ProgressListener` if the annotation is one of them, optional or not."""
    wanted = [member for member in _members(annotation) if member is not NoneType]
    return wanted[0] if len(wanted) == 1 and wanted[0] in (CallContext, ProgressListener) else None


def _field(annotation: Any, parameter: inspect.Parameter, description: str | None) -> tuple[str, Any, bool]:
    """Return the key of a parameter's argument, its definition for `create_model`, and whether pydantic holds its
    default."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    bare = _bare(annotation)
    settings: dict[str, Any] = {}
    if isinstance(parameter.default, FieldInfo):
        metadata = (*metadata, parameter.default)
    elif parameter.default is not parameter.empty:
        settings["default"] = parameter.default
        if parameter.default is None and bare is not Any and NoneType not in _members(bare):
            bare = bare | None if isinstance(bare, type) else Union[bare, None]  # noqa: UP007  # its own default must pass
    infos = [item for item in metadata if isinstance(item, FieldInfo)]
    alias = next((info.alias for info in reversed(infos) if info.alias), None)
    settings["alias"] = alias or parameter.name
    if not any(info.description for info in infos):
        said = next((item for item in metadata if isinstance(item, str)), None) or description
        if said:
            settings["description"] = said
    kind = Annotated[(bare, *metadata)] if metadata else bare  # pyright: ignore[reportInvalidTypeForm]
    fills_default = "default" not in settings and any(not info.is_required() for info in infos)
    return settings["alias"], (kind, Field(**settings)), fills_default


def _model(fields: dict[str, Any], extra: Any, *, module: str) -> type[BaseModel]:
    if extra is None:
        return create_model("arguments", __config__=ConfigDict(extra="forbid"), __module__=module, **fields)
    namespace = {
        "__annotations__": {"__pydantic_extra__": dict[str, extra]},
        "__module__": module,
        "model_config": ConfigDict(extra="allow"),
    }
    return create_model("arguments", __base__=type("_Open", (BaseModel,), namespace), __module__=module, **fields)


class _JsonSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema without the titles that it derives from names. They cost tokens and add no information."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as pydantic declares it

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    schema.pop("title", None)
    for name, definition in schema.get("$defs", {}).items():
        if definition.get("title") == name:
            del definition["title"]
    return schema


def _answer(annotation: Any, called: str) -> tuple[TypeAdapter[Any] | None, dict[str, Any] | None, bool]:
    """Return how the annotated answer is written, its schema as one of an object, and whether that wraps it in
    `result`."""
    promised = _bare(annotation)
    if typing.get_origin(promised) in (Awaitable, Coroutine):
        promised = typing.get_args(promised)[-1]
    members = set(_members(promised))
    if members <= {str, NoneType} or members & {Any, object, ToolResult, NoReturn, Never, inspect.Signature.empty}:
        return None, None, False
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(promised)
        schema = adapter.json_schema(mode="serialization", schema_generator=_JsonSchema)
    except _UNREADABLE as error:
        # Not refused: a model needs the input schema, and an answer without a schema still arrives.
        _logger.debug("%s has no output schema, because its return type has no JSON Schema (%s)", called, _line(error))
        return None, None, False
    schema = _without_titles(schema)
    described = schema
    if ref := str(schema.get("$ref", "")).removeprefix("#/$defs/"):  # the root of a recursive type
        described = schema.get("$defs", {}).get(ref, schema)
    if described.get("type") == "object":
        return adapter, {"type": "object", **schema}, False
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"], **definitions}
    return adapter, wrapped, True


@dataclass(frozen=True, slots=True)
class _Prose:
    """What a docstring says about the tool and about each parameter."""

    description: str
    parameters: Mapping[str, str]

    @classmethod
    def of(cls, doc: str, parameters: Mapping[str, inspect.Parameter]) -> _Prose:
        """Read `doc` in the style that recognizes most of it. If no style recognizes any, all of `doc` is the
        description.

        `docstring_parser` could choose the style itself, but it counts every line that begins with a colon as a reST
        field, and drops the text of such a line.
        """
        best, best_score = cls(doc.strip(), {}), 0
        for style in _STYLES:
            try:
                parsed = docstring_parser.parse(doc, style=style)
            except docstring_parser.ParseError:
                continue
            texts = {
                name.strip().lstrip("\\*"): " ".join((param.description or "").split())
                for param in parsed.params
                for name in param.arg_name.split(",")
            }
            known = {name: text for name, text in texts.items() if name in parameters and text}
            score = len(known) + len(parsed.many_returns) + len(parsed.raises)
            if score > best_score:
                best, best_score = cls((parsed.description or "").strip(), known), score
        return best


def _invalid(error: ValidationError, arguments: Mapping[str, Any]) -> InvalidArguments:
    violations: list[Violation] = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_VIOLATIONS]:
        place = _place(detail["loc"], arguments, ends_missing=detail["type"] == "missing")
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
        violations.append(Violation(place, f"`{place}`: {message}" if place else message, detail["type"]))
    return InvalidArguments(
        "; ".join(violation.message for violation in violations),
        details={"violations": [violation.to_wire() for violation in violations]},
    )


def _place(loc: Sequence[str | int], arguments: Any, *, ends_missing: bool) -> str:
    """Return the JSON Pointer of pydantic's `loc`, without the union members and validators that `loc` also names."""
    steps: list[str | int] = []
    value = arguments
    for step in loc:
        if isinstance(value, Mapping) and step in value:
            value = cast("Mapping[Any, Any]", value)[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[step]
        else:
            continue
        steps.append(step)
    if ends_missing:
        steps.append(loc[-1])
    return pointer(steps)


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
