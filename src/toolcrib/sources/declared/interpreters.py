"""Knows which programs run a part of their command line, or their standard input, as code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from toolcrib.sources.declared.template import Template


class Role(Enum):
    """What one element of a command line means to its program."""

    CODE = auto()
    """Text that the program runs as code."""
    PROGRAM = auto()
    """The name of a program or package that this program runs."""
    SCRIPT = auto()
    """The path of a file with code, or the name of a module."""
    OTHER = auto()


_NEVER = r"(?!)"

_STDIN = r"-|/dev/stdin|/dev/fd/0|/proc/self/fd/0"
"""Matches script names that mean standard input."""

_VERSION = re.compile(r"(?<=[A-Za-z])-?\d[\d.]*[a-z]?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Programs that read their command lines in the same way. Each pattern must match a whole element."""

    names: str
    """The names of the programs: in lower case, without `.exe` and without a version."""
    flags: str = ""
    """Letters of options with code in the next element (`-e CODE`) or in the rest of the same one (`-eCODE`)."""
    code: str = _NEVER
    """Other options and subcommands with code in the next element or after `=`."""
    script: str = _NEVER
    """The beginning of an option with a script in the next element or in the rest of the same one."""
    program: str = _NEVER
    """Options and subcommands with the name of a program in the next element."""
    valued: str = _NEVER
    """Options with any other value in the next element. This is needed only if `first` is set."""
    first: Role = Role.OTHER
    """The role of the first operand."""
    skipped: int = 0
    """How many operands come before that one."""
    joins: bool = False
    """Whether all elements from the code on are joined into one code text."""
    reads_code: bool = True
    """Whether the program reads code from standard input if the command line names no code."""
    reads_code_for: str = _NEVER
    """Options with which the program always reads code from standard input."""
    spreads_input: bool = False
    """Whether the program turns its standard input into arguments of a program."""

    is_word: bool = True
    """Whether the name also counts after an unknown program, as in `docker exec box python -c CODE`. A name that could
    be an argument does not: `grep awk {file}`."""

    def is_followed_by_code(self, text: str) -> bool:
        return _fits(self.code, text) or (bool(self.flags) and _fits(f"-[A-Za-z0-9]*[{self.flags}]", text))

    def holds_code(self, start: str) -> bool:
        """Return whether an element that begins with `start` contains code."""
        grouped = f"|-[A-Za-z0-9]*[{self.flags}]" if self.flags else ""
        return self.is_followed_by_code(start) or re.match(f"(?:{self.code})[=:]{grouped}", start, re.ASCII) is not None


def _launcher(names: str, *, valued: str, code: str = _NEVER, skipped: int = 0, spreads: bool = False) -> _Family:
    """Return the family of programs that run the program in their first operand, with the rest of the command line."""
    return _Family(
        names=names,
        valued=valued,
        code=code,
        first=Role.PROGRAM,
        skipped=skipped,
        reads_code=False,
        spreads_input=spreads,
        is_word=False,
    )


_FAMILIES = (
    # In a shell, `c` may be any letter of a group: `-cx CODE`.
    _Family(
        names="(?:ba|da|z|k|mk|pdk|ok|ya|po|fi|a|c|tc|r|rba|xon)?sh|nu|elvish",
        flags="ceE",
        code="[-+][A-Za-z]*c[A-Za-z]*|-C|--(?:commands?|init-command|execute)",
        reads_code_for="-[a-z]*s",
    ),
    _Family(names="(?:c|i|j|micro|graal)?pythonw?|pypy", flags="c", script="-[A-Za-z]*m", reads_code_for="-i"),
    _Family(
        names="node|nodejs|qjs|d8|gjs",
        flags="cepr",
        code="--(?:eval|print|require|import|loader|experimental-loader)",
        reads_code_for="-i|--interactive",
    ),
    _Family(names="perl|raku", flags="eEmM"),
    _Family(names="php|hhvm", flags="rBERd", code="--(?:run|process-begin|process-code|process-end|define)"),
    _Family(
        names="ruby|jruby|irb|lua|luajit|R|rscript|julia|tclsh|wish|expect|elixir|iex|erl|groovy|scala|clojure|clj|bb"
        "|ghc|ghci|swift|guile|racket|scheme|csi|gosh|janet|hy|sbcl|clisp|ecl|emacs|gdb|lldb|octave|matlab|osascript"
        "|crystal|ocaml|gnuplot|maxima|dc|ed|ex|vi|vim|nvim|su|runuser|script",
        flags="ceErx",
        code="--(?:eval|print|command|cmd|session-command|execute|eval-command|rpc-eval)|-(?:eval|command|batch|iex)",
    ),
    _Family(
        names="pwsh|powershell",
        code="(?i:[-/]{1,2}(?:c|co|com[a-z]*|cwa|e|ec|ea|en[a-z]*))",
        script="(?i:[-/]{1,2}f(?:i|il|ile)?)",
        valued="(?i:[-/]{1,2}(?:ex[a-z]*|ep|con[a-z]*|cus[a-z]*|i[a-z]+|o[a-z]*|ps[a-z]*|set[a-z]*|v[a-z]*|w[a-z]*))",
        first=Role.CODE,
        joins=True,
    ),
    _Family(names="cmd", code="(?i:(?:/[a-z](?::[a-z]+)?)*/[ckr].*)", joins=True),
    _Family(names="deno", flags="ep", code="eval|--eval", program="run|serve|install"),
    _Family(names="bun", flags="ep", code="--(?:eval|print)", program="run|x|exec"),
    _Family(
        names="[gmn]?awk|goawk",
        flags="e",
        code="--source",
        script="-[fE]|--file=?|--exec=?",
        valued="-[FvilD]|--(?:assign|field-separator|include|load)",
        first=Role.CODE,
        reads_code=False,
        is_word=False,
    ),
    _Family(
        names="g?sed",
        flags="e",
        code="--expression",
        script="-[A-Za-z]*f|--file=?",
        valued="-l|--line-length",
        first=Role.CODE,
        reads_code=False,
        is_word=False,
    ),
    _Family(
        names="ssh|autossh|rsh",
        valued="-[BbcDEeFIiJLlmOopQRSWw]",
        first=Role.CODE,
        skipped=1,
        joins=True,
        is_word=False,
    ),
    _Family(
        names="watch|parallel",
        valued="-[aIjNnq]|--(?:interval|jobs)",
        first=Role.CODE,
        joins=True,
        reads_code=False,
        spreads_input=True,
        is_word=False,
    ),
    _Family(
        names="g?find|fd|fdfind|bfs",
        program="-(?:exec|ok)(?:dir)?|-[xX]|--exec(?:-batch)?",
        reads_code=False,
        is_word=False,
    ),
    _Family(names="pipx|uv|npm|pnpm|yarn|go", program="run|exec|x|dlx", reads_code=False, is_word=False),
    _launcher("npx|bunx|uvx|pnpx", code="-c|--call", valued="-p|--package|--from|--with|--python"),
    _launcher("env", code="-[A-Za-z0-9]*S|--split-string", valued="-[uC]|--(?:unset|chdir)"),
    _launcher("sudo|doas", valued="-[ugCDhprtTUR]|--(?:user|group|chdir|host|prompt|role|type)"),
    _launcher("xargs|gxargs", valued="-[adEILnPs]|--(?:arg-file|delimiter|max-args|max-procs)", spreads=True),
    _launcher(
        "nohup|setsid|nice|ionice|time|stdbuf|busybox|toybox|strace|exec|command|unbuffer", valued="-[ncpfoieus]"
    ),
    _launcher(
        "timeout|gtimeout|chroot|flock|taskset|chrt|gosu|su-exec", code="-c|--command", valued="-[ks]", skipped=1
    ),
)


class CommandReader:
    """Reads a command line from left to right and returns the role of each element."""

    def __init__(self, program: str) -> None:
        """`program` is the first element."""
        self.name = ""
        """The program that receives the next element; empty if it is unknown."""
        self._family: _Family | None = None
        self._input_goes_to: str | None = None
        """The program that reads standard input as code or as arguments in any case."""
        self._has_code = False
        """Whether the command line has named the code of an interpreter, so that standard input is not code."""
        self._is_all_code = False
        self._expected: Role | None = None
        """The role of the next element, if an option has determined it."""
        self._operands = 0
        self._start(program)

    @property
    def input_goes_to(self) -> str | None:
        """The program that runs its standard input, or turns it into arguments. Read this after the last element."""
        if self._input_goes_to is None and self._family is not None and self._family.reads_code and not self._has_code:
            return self.name
        return self._input_goes_to

    def take(self, template: Template) -> Role:
        """Read the next element and return its role."""
        text = template.literal
        start = template.parts[0] if template.parts and isinstance(template.parts[0], str) else ""
        if self._is_all_code:
            return Role.CODE
        is_option = start.startswith("-") and text != "-"
        if (expected := self._expected) is not None and (expected is Role.OTHER or template.names or not is_option):
            self._expected = None
            return self._found(expected, text)
        if (family := self._family) is not None:
            role = self._option(family, template, start)
            if role is not None:
                return role
        return Role.OTHER if is_option else self._operand(text, start)

    def _option(self, family: _Family, template: Template, start: str) -> Role | None:
        """Return the role of an option or a subcommand; None if the element is neither."""
        if (text := template.literal) is not None:
            if _fits(family.reads_code_for, text):
                self._input_goes_to = self.name
            is_subcommand = not text.startswith("-") and self._operands == 0
            for role, pattern in ((Role.PROGRAM, family.program), (Role.OTHER, family.valued)):
                if _fits(pattern, text) and (is_subcommand or text[0] in "-/"):
                    self._expected = role
                    return Role.OTHER
            if family.is_followed_by_code(text):
                self._expected = Role.CODE
                return Role.OTHER
            if (option := re.match(family.script, text)) is not None:
                if option.end() < len(text):
                    return self._found(Role.SCRIPT, text[option.end() :])
                self._expected = Role.SCRIPT
                return Role.OTHER
        # An argument that chooses the option may choose one that is followed by code.
        is_any_option = start in ("-", "--") and bool(template.names) and not self._has_code
        return self._found(Role.CODE, text) if is_any_option or family.holds_code(start) else None

    def _operand(self, text: str | None, start: str) -> Role:
        position, family = self._operands, self._family
        self._operands += 1
        if family is not None and family.first is not Role.OTHER and position == family.skipped and not self._has_code:
            if family.first is Role.PROGRAM and "=" in start:  # `env NAME=value`
                self._operands -= 1
                return Role.OTHER
            return self._found(family.first, text)
        if text is None:  # an element with an argument may be left out
            return Role.OTHER
        other = _family_of(text)
        if other is not None and other.is_word:
            self._start(text)
        elif family is not None and family.first is Role.OTHER and not self._has_code:
            return self._found(Role.SCRIPT, text)
        return Role.OTHER

    def _found(self, role: Role, text: str | None) -> Role:
        family = self._family
        if role is Role.CODE:
            self._has_code = True
            self._is_all_code = family is not None and family.joins
        elif text is not None and role in (Role.PROGRAM, Role.SCRIPT):
            if _fits(_STDIN, text):
                self._input_goes_to = self.name
            if role is Role.PROGRAM:
                self._start(text)
            else:
                self._has_code = True
        return role

    def _start(self, program: str) -> None:
        self._family, self._operands, self._expected = _family_of(program), 0, None
        self.name = _name_of(program).lower() if self._family is not None else ""
        if self._family is not None and self._family.spreads_input:
            self._input_goes_to = self.name


def _name_of(program: str) -> str:
    return re.sub(r"(?i)\.exe$", "", re.split(r"[/\\]", program)[-1])


def _family_of(program: str) -> _Family | None:
    name = _VERSION.sub("", _name_of(program))
    # Only `R` is written in upper case; `r` is a common argument.
    fitting = (family for family in _FAMILIES if _fits(family.names, name) or _fits(family.names, name.lower()))
    return next(fitting, None)


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None
