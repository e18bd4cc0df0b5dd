"""A command line with places for arguments: a list of texts, which no shell ever reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.placeholders import Problem, expanded
from toolcrib.sources.declared.fields import Fields
from toolcrib.sources.declared.interpreters import CommandReader, Role
from toolcrib.sources.declared.template import Template, Values, as_text, check_name, refused

COMMAND_KEYS: Mapping[str, str] = {
    "command": "The program and what goes to it, as a list; a list in it goes as one or not at all.",
    "stdin": "What the program reads from its standard input; without it, that is closed.",
    "cwd": "The folder it runs in, as an absolute path or from `~`.",
    "env": "Variables of its environment besides the few that every program inherits.",
    "allow_options": "`true`: an argument may begin with `-` wherever it stands.",
}
"""Every key of a tool that is a command, besides those of all tools."""

_BATCH = (".bat", ".cmd")
"""Files that Windows hands to its shell, with everything that goes to them."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """How a program is run. Everything but its name may hold arguments; nothing of it is read by a shell."""

    program: str
    elements: tuple[tuple[Template, ...], ...] = ()
    """What goes to it. Those in one tuple go together, or not at all where one of their arguments is not there."""
    stdin: Template | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to what every program inherits."""
    allows_options: bool = False
    """Whether an argument may begin with `-` where a program could take it for an option."""

    @classmethod
    def read(cls, given: Fields, input_schema: Mapping[str, Any]) -> Self:
        """The command line under the keys of `COMMAND_KEYS`.

        Raises:
            InvalidTool: something of it is wrong, or would let an argument become part of a program.
        """
        elements = given.values["command"]
        if not isinstance(elements, list) or not elements:
            raise given.wrong("command", 'a list is expected here, as in ["df", "-h", "{path}"]; no shell reads it')
        first, *rest = cast("list[object]", elements)
        where = given.at("command")
        program = Template.read(first, f"{where}.0").literal
        if not program or not program.strip():
            raise InvalidTool(f"{where}.0: the program is named here as it is, without anything to fill in")
        command = cls(
            program,
            tuple(_group(element, f"{where}.{position}") for position, element in enumerate(rest, start=1)),
            Template.read(given.values["stdin"], given.at("stdin")) if "stdin" in given else None,
            given.text("cwd") or None,
            given.texts("env"),
            given.flag("allow_options"),
        )
        command._check(given, cast("Mapping[str, Any]", input_schema.get("properties", {})))
        return command

    @property
    def names(self) -> frozenset[str]:
        """Of the arguments in it."""
        return frozenset(name for template in self._templates for name in template.names)

    def filled(self, environ: Mapping[str, str]) -> Self:
        """The same with the variables in `cwd` and `env` as `environ` has them.

        Raises:
            Problem: one of them is not set, or `cwd` comes to no absolute path.
        """
        cwd = None
        if self.cwd is not None:
            try:
                path = Path(expanded(self.cwd, "cwd", environ)).expanduser()
            except RuntimeError as error:  # `~name` of nobody
                raise Problem(f"cwd: {error}") from error
            if not path.is_absolute():
                raise Problem("cwd: an absolute path is expected here, or one from `~`")
            cwd = str(path)
        env = {name: expanded(value, f"env.{name}", environ) for name, value in self.env.items()}
        return replace(self, cwd=cwd, env=env)

    def argv(self, values: Values) -> list[str]:
        """The program and its arguments, as it will find them.

        Raises:
            InvalidArguments: a value holds a NUL, or could be read as an option.
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
        """What the program reads; None where its input is closed."""
        text = None if self.stdin is None else self.stdin.rendered(values)
        return None if text is None else text.encode("utf-8", "replace")

    @property
    def _templates(self) -> Iterator[Template]:
        yield from (template for group in self.elements for template in group)
        if self.stdin is not None:
            yield self.stdin

    def _check(self, given: Fields, properties: Mapping[str, Any]) -> None:
        if "\0" in self.program:
            raise given.wrong("command", "a NUL cannot stand in a command")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise given.wrong("env", f"`{name}` cannot be a variable of the environment")
        for position, group in enumerate(self.elements, start=1):
            where = given.at(f"command.{position}")
            if len(group) != 1 and not any(template.names for template in group):
                raise InvalidTool(f"{where}: a list in the list goes with an argument, and there is none in it")
            for template in group:
                _check_element(template, properties, where)
        if self.stdin is not None:
            if self.stdin.has_variables:
                raise given.wrong("stdin", "variables of the environment stand in `env` alone")
            for name in sorted(self.stdin.names):
                check_name(name, properties, given.at("stdin"))
        self._check_no_code(given)

    def _check_no_code(self, given: Fields) -> None:
        """Refuse what would put an argument into the text of a program: quoting it is beyond anybody."""
        reader = CommandReader(self.program)
        for position, group in enumerate(self.elements, start=1):
            for template in group:
                name, role = reader.name, reader.take(template)
                if not template.names or role not in (Role.CODE, Role.PROGRAM):
                    continue
                where = f"{given.at('command')}.{position}"
                if role is Role.PROGRAM:
                    raise InvalidTool(f"{where}: `{name}` would run the program that the argument names; name it here")
                raise InvalidTool(
                    f"{where}: `{name}` would run the argument as a part of its program; hand it over after that, as "
                    'in ["sh", "-c", "echo \\"$1\\"", "sh", "{text}"]'
                )
        if self.program.rstrip(". ").lower().endswith(_BATCH) and any(
            template.names for group in self.elements for template in group
        ):
            raise InvalidTool(f"{given.at('command')}.0: Windows would have a shell read the arguments of a batch file")
        if self.stdin is not None and self.stdin.names and (name := reader.input_goes_to) is not None:
            raise given.wrong("stdin", f"`{name}` would run the argument as code, or make arguments of it")


def _group(element: object, where: str) -> tuple[Template, ...]:
    if not isinstance(element, list):
        return (Template.read(element, where),)
    parts = cast("list[object]", element)
    if not parts:
        raise InvalidTool(f"{where}: an empty list stands for nothing")
    return tuple(Template.read(part, f"{where}.{position}") for position, part in enumerate(parts))


def _check_element(template: Template, properties: Mapping[str, Any], where: str) -> None:
    if template.has_variables:
        raise InvalidTool(
            f"{where}: variables of the environment stand in `env` alone; whoever is at this machine can read a command"
        )
    if any(isinstance(part, str) and "\0" in part for part in template.parts):
        raise InvalidTool(f"{where}: a NUL cannot stand in a command")
    for name in sorted(template.names):
        check_name(name, properties, where)


def _rendered(template: Template, values: Values) -> list[str] | None:
    """What one element comes to: a list where it stands for one, and None where there is nothing to be said."""
    value = values.get(template.bare) if template.bare is not None else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_text(each) for each in cast("Sequence[object]", value)] or None
    text = template.rendered(values)
    return None if text is None else [text]


def _checked(template: Template, text: str, *, may_be_option: bool) -> str:
    """`text`, which is what came of `template`, where it can go to a program."""
    name = next(iter(sorted(template.names)), "")
    if "\0" in text:
        raise refused(name, "holds a NUL, which no argument of a program can hold")
    starts_with_argument = bool(template.parts) and not isinstance(template.parts[0], str)
    if starts_with_argument and text.startswith("-") and not may_be_option:
        raise refused(name, "may not begin with `-`, which the program could read as an option")
    return text
