"""A command line with placeholders for arguments: a list of strings that no shell reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.placeholders import Problem, expanded
from toolcrib.sources.declared.interpreters import CommandReader, Role
from toolcrib.sources.declared.template import Template, Values, as_text, check_name, refused

_BATCH = (".bat", ".cmd")
"""Endings of files that Windows passes to its shell, with all their arguments."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """How to run a program. Everything but its name may contain arguments, and no shell reads any of it."""

    program: str
    elements: tuple[tuple[Template, ...], ...] = ()
    """The program's arguments. Templates in one tuple are passed together, or not at all if one of their values is
    missing."""
    stdin: Template | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that are added to the inherited ones."""
    allows_options: bool = False
    """Whether an argument may begin with `-` where a program could read it as an option."""

    @classmethod
    def read(cls, elements: object, where: str) -> Self:
        """Read the program and its arguments from a list. Errors name its place as `where`.

        Raises:
            InvalidTool: the list is invalid.
        """
        if not isinstance(elements, list) or not elements:
            raise InvalidTool(f'{where}: must be a list, for example ["df", "-h", "{{path}}"]; no shell reads it')
        first, *rest = cast("list[object]", elements)
        program = Template.read(first, f"{where}.0").literal
        if not program or not program.strip():
            raise InvalidTool(f"{where}.0: must be the name of a program, without placeholders")
        return cls(program, tuple(_group(each, f"{where}.{position}") for position, each in enumerate(rest, start=1)))

    @property
    def names(self) -> frozenset[str]:
        """The names of the arguments in the templates."""
        return frozenset(name for template in self._templates for name in template.names)

    def filled(self, environ: Mapping[str, str]) -> Self:
        """Return a copy with the environment variables in `cwd` and `env` filled in from `environ`.

        Raises:
            Problem: a variable is not set, or `cwd` is not an absolute path.
        """
        cwd = None
        if self.cwd is not None:
            try:
                path = Path(expanded(self.cwd, "cwd", environ)).expanduser()
            except RuntimeError as error:  # `~name` of an unknown user
                raise Problem(f"cwd: {error}") from error
            if not path.is_absolute():
                raise Problem("cwd: must be an absolute path, or begin with `~`")
            cwd = str(path)
        env = {name: expanded(value, f"env.{name}", environ) for name, value in self.env.items()}
        return replace(self, cwd=cwd, env=env)

    def argv(self, values: Values) -> list[str]:
        """Return the program and its arguments, as the program receives them.

        Raises:
            InvalidArguments: a value contains a NUL, or could be read as an option.
        """
        argv = [self.program]
        are_options_over = self.allows_options
        for group in self.elements:
            rendered = [_rendered(template, values) for template in group]
            if any(part is None for part in rendered):
                continue
            for template, texts in zip(group, rendered, strict=True):
                argv += (_checked(template, text, may_be_option=are_options_over) for text in texts or ())
                are_options_over = are_options_over or template.literal == "--"
        return argv

    def input(self, values: Values) -> bytes | None:
        """Return what the program reads from standard input; None if the input is closed."""
        text = None if self.stdin is None else self.stdin.rendered(values)
        return None if text is None else text.encode("utf-8", "replace")

    @property
    def _templates(self) -> Iterator[Template]:
        yield from (template for group in self.elements for template in group)
        if self.stdin is not None:
            yield self.stdin

    def check(self, input_schema: Mapping[str, Any]) -> None:
        """Check the command line of a tool with this input schema.

        Raises:
            InvalidTool: it is invalid, or would let an argument become part of a program. The message begins with the
                place below the tool.
        """
        properties = cast("Mapping[str, Any]", input_schema.get("properties", {}))
        if "\0" in self.program:
            raise InvalidTool(".command: must not contain a NUL")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise InvalidTool(f".env: `{name}` is not a valid environment variable")
        for position, group in enumerate(self.elements, start=1):
            where = f".command.{position}"
            if len(group) != 1 and not any(template.names for template in group):
                raise InvalidTool(f"{where}: a nested list must contain an argument such as `{{name}}`")
            for template in group:
                _check_element(template, properties, where)
        if self.stdin is not None:
            if self.stdin.has_variables:
                raise InvalidTool(".stdin: environment variables are only allowed in `env`")
            for name in sorted(self.stdin.names):
                check_name(name, properties, ".stdin")
        self._check_no_code()

    def _check_no_code(self) -> None:
        """Refuse a command that would put an argument into program text, because no quoting is safe for every
        program."""
        reader = CommandReader(self.program)
        for position, group in enumerate(self.elements, start=1):
            for template in group:
                name, role = reader.name, reader.take(template)
                if not template.names or role not in (Role.CODE, Role.PROGRAM):
                    continue
                where = f".command.{position}"
                if role is Role.PROGRAM:
                    raise InvalidTool(
                        f"{where}: `{name}` would run the program that the argument names; write its name here instead"
                    )
                raise InvalidTool(
                    f"{where}: `{name}` would run the argument as a part of its code; pass it after the code, "
                    'as in ["sh", "-c", "echo \\"$1\\"", "sh", "{text}"]'
                )
        if self.program.rstrip(". ").lower().endswith(_BATCH) and any(
            template.names for group in self.elements for template in group
        ):
            raise InvalidTool(".command.0: on Windows a shell reads the arguments of a batch file, which is not safe")
        if self.stdin is not None and self.stdin.names and (name := reader.input_goes_to) is not None:
            raise InvalidTool(f".stdin: `{name}` would run the argument as code, or split it into arguments")


def _group(element: object, where: str) -> tuple[Template, ...]:
    if not isinstance(element, list):
        return (Template.read(element, where),)
    parts = cast("list[object]", element)
    if not parts:
        raise InvalidTool(f"{where}: must not be an empty list")
    return tuple(Template.read(part, f"{where}.{position}") for position, part in enumerate(parts))


def _check_element(template: Template, properties: Mapping[str, Any], where: str) -> None:
    if template.has_variables:
        raise InvalidTool(
            f"{where}: environment variables are only allowed in `env`: other users of this machine can read a command"
        )
    if any(isinstance(part, str) and "\0" in part for part in template.parts):
        raise InvalidTool(f"{where}: must not contain a NUL")
    for name in sorted(template.names):
        check_name(name, properties, where)


def _rendered(template: Template, values: Values) -> list[str] | None:
    """Return the arguments that one element becomes; several if it is a list, None if a value is missing."""
    value = values.get(template.bare) if template.bare is not None else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_text(each) for each in cast("Sequence[object]", value)] or None
    text = template.rendered(values)
    return None if text is None else [text]


def _checked(template: Template, text: str, *, may_be_option: bool) -> str:
    """Return `text`, the rendered `template`, if a program may receive it."""
    name = next(iter(sorted(template.names)), "")
    if "\0" in text:
        raise refused(name, "contains a NUL, which an argument of a program cannot contain")
    starts_with_argument = bool(template.parts) and not isinstance(template.parts[0], str)
    if starts_with_argument and text.startswith("-") and not may_be_option:
        raise refused(name, "must not begin with `-`, because the program could read it as an option")
    return text
