"""Finds text in a definition that looks like an attack on the model, or on the person who pins. Nothing is altered."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from toolcrib.core.schema import pointer
from toolcrib.core.tools import Tool
from toolcrib.core.untrusted_text import BIDI, TAGS, UNSEEN, is_tag, unspelled, visible, without_flags
from toolcrib.definitions.drift.definition_json import definition_of, texts_in

_LIKE: dict[str, str] = {
    "a": "ɑαа", "b": "ƄЬᏏ", "c": "ᴄⲥсꮯ", "d": "ԁᏧ", "e": "ꬲеҽ", "f": "ꬵꞙẝք", "g": "ɡᶃƍց", "h": "һհᏂ",
    "i": "ıɪɩιіꙇӏꭵᎥ", "j": "ϳј", "k": "кκ", "l": "Ɩǀ", "n": "ոռ", "o": "ᴏᴑꬽοσⲟоօ", "p": "ρⲣр", "q": "ԛգզ",
    "r": "ꭇꭈᴦⲅгꮁ", "s": "ꜱƽѕꮪ", "t": "т", "u": "ꞟᴜꭎꭒʋυս", "v": "ᴠνѵꮩ", "w": "ɯᴡѡԝաꮃ", "x": "х", "y": "ɣᶌʏỿꭚγуү",
    "z": "ᴢꮓ", "A": "ΑАᎪ", "B": "ꞴΒВᏴ", "C": "ⲤСᏟ", "D": "Ꭰ", "E": "ΕЕᎬ", "F": "ꞘϜ", "G": "ԌᏀᏳ", "H": "ΗⲎНᎻ",
    "I": "ΙⲒІӀ", "J": "ꞲͿЈᎫ", "K": "ΚⲔКᏦ", "L": "ⳐᏞ", "M": "ΜϺⲘМᎷ", "N": "ΝⲚ", "O": "ΟⲞОՕ", "P": "ΡⲢРᏢ", "R": "ƦᎡᏒ",
    "S": "ЅՏᏕᏚ", "T": "ΤⲦТᎢ", "U": "Ս", "V": "ѴᏙ", "W": "ԜᎳᏔ", "X": "ꞳΧⲬХ", "Y": "ΥⲨУҮᎩᎽ", "Z": "ΖᏃ",
    "2": "ꝚƧϨꙄ", "3": "ꞫȜƷꝪⳌЗӠ", "4": "Ꮞ", "5": "Ƽ", "6": "ⳒбᏮ", "8": "ȣȢ", "9": "ꝮⳊ",
}  # fmt: skip
"""Characters of Latin, Greek, Cyrillic, Armenian, Coptic and Cherokee that look like an ASCII letter or digit.

Source: Unicode Technical Standard #39, `confusables.txt`, as in the package confusable-homoglyphs 3.3.1. We added
the small Cyrillic and Greek letters of `k` and `t`, which that table treats as different. Characters that
normalization replaces are left out.
"""

_LETTERS = {twin: letter for letter, twins in _LIKE.items() for twin in twins}
_STYLED = {
    chr(code): letter
    for code in (*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800))
    if len(letter := unicodedata.normalize("NFKC", chr(code))) == 1
}
"""Full-width letters and mathematical letters (bold, italic, double-struck) with their ASCII letters."""
_TO_ASCII = str.maketrans(_LETTERS | {styled: _LETTERS.get(letter, letter) for styled, letter in _STYLED.items()})
_ONE_LOOK = {"1": "l", "I": "l", "|": "l", "0": "O"}
_TO_LOOK = str.maketrans({twin: _ONE_LOOK.get(letter, letter) for twin, letter in _LETTERS.items()} | _ONE_LOOK)
# Letters of the Latin script are part of normal spelling everywhere: `yakıt`.
_FOREIGN = re.compile(f"[{''.join(twin for twin in _LETTERS if not unicodedata.name(twin).startswith('LATIN'))}]")
_WORD = re.compile(r"[^\W_]+")


def skeleton(name: str) -> str:
    """Return a string that is equal for two names if people cannot tell them apart by eye.

    Case matters. The spacing of letters does not.
    """
    return unicodedata.normalize("NFKC", name).translate(_TO_LOOK).replace("rn", "m")


def plain(text: str) -> str:
    """Return `text` with look-alike letters replaced by ASCII letters. The length does not change."""
    return text if text.isascii() else text.translate(_TO_ASCII)


def borrowed(name: str) -> str:
    """Return the letters of other scripts that look like ASCII letters, in words that contain ASCII letters. Each
    once."""
    if name.isascii():
        return ""
    words = (word for word in _WORD.findall(name) if re.search("[A-Za-z]", word))
    return "".join(dict.fromkeys(letter for word in words for letter in _FOREIGN.findall(word)))


MAX_OF_RULE = 5
"""The number of findings of one rule in one definition."""

MIN_CHARS = 10
"""The length below which strings are not checked. Most short strings are keys and types."""

AROUND_CHARS = 40
"""The number of characters that are shown on each side of a finding."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One thing in a definition that a person should check."""

    rule: str
    """One of `RULES`."""
    place: str
    """A JSON Pointer into the definition in MCP's format."""
    excerpt: str
    """The text on one line, with invisible characters as `⟨U+200B⟩`."""
    why: str
    """The reason, as a sentence without a capital letter and a full stop."""

    def to_wire(self) -> dict[str, str]:
        return {"rule": self.rule, "place": self.place, "excerpt": self.excerpt, "why": self.why}


@dataclass(frozen=True)
class Neighbours:
    """The names of all tools in the same catalog. A definition may try to look like one of them."""

    sources: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """The sources that have a tool of this name, by the name of the tool."""
    looks: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Source and name of each tool that looks like this, in order, by the `skeleton` of the name."""

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Neighbours:
        sources: defaultdict[str, set[str]] = defaultdict(set)
        looks: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for tool in tools:
            sources[tool.name].add(tool.source)
            looks[skeleton(tool.name)].add((tool.source, tool.name))
        return cls(
            {name: frozenset(each) for name, each in sources.items()},
            {look: tuple(sorted(each)) for look, each in looks.items()},
        )


NO_NEIGHBOURS = Neighbours()

RULES: Mapping[str, str] = MappingProxyType(
    {
        "hidden-characters": "Invisible characters that a model can read.",
        "tag-characters": "Unicode tag characters: invisible text that a model can read.",
        "bidi-controls": "Control characters that show a text in a different order than a model reads it.",
        "instructions-to-model": "Instructions to the model that go beyond how to use the tool.",
        "secrets-named": "Files and variables that hold secrets.",
        "other-tool-named": "The name of a tool of a different source.",
        "url-credentials": "A URL with a password or key in it.",
        "lookalike-name": "A name that looks like a different name, or letters of a different script.",
    }
)
"""The rules, each with a description of what it finds."""

CATALOG_RULES = frozenset({"other-tool-named", "lookalike-name"})
"""Rules that depend on other tools. Their findings must not reach callers that may not see those tools."""


def suspicions_in(
    tool: Tool,
    neighbours: Neighbours = NO_NEIGHBOURS,
    *,
    rules: Collection[str] = RULES.keys(),
    earlier: Tool | None = None,
) -> tuple[Suspicion, ...]:
    """Return what `rules` find in all strings of a definition, including keys of schemas, in the order of `RULES`.

    At most `MAX_OF_RULE` findings of each rule. Findings with the same text as in the `earlier` definition are left
    out. The time is proportional to the length of the strings.
    """
    known = set[tuple[str, str]]()
    if earlier is not None:
        known = {(each.rule, each.excerpt) for each in _all(earlier, neighbours, set(rules))}
    left = set(rules)
    found: defaultdict[str, list[Suspicion]] = defaultdict(list)
    for each in _all(tool, neighbours, left):
        if each.rule in left and (each.rule, each.excerpt) not in known:
            found[each.rule].append(each)
            if len(found[each.rule]) == MAX_OF_RULE:
                left.discard(each.rule)
    return tuple(each for rule in RULES for each in found[rule])


def suspicions_in_texts(value: Any) -> tuple[Suspicion, ...]:
    """Return what the rules for single strings find in a JSON value that is not a tool definition.

    Places are JSON Pointers into `value`. At most `MAX_OF_RULE` findings of each rule, in the order of `RULES`.
    """
    found: defaultdict[str, list[Suspicion]] = defaultdict(list)
    for place, text in sorted(texts_in(value)):
        for rule, (start, end), why in _in_text(text, RULES.keys()):
            if len(found[rule]) < MAX_OF_RULE:
                found[rule].append(Suspicion(rule, place, _around(text, start, end), why))
    return tuple(each for rule in RULES for each in found[rule])


def _all(tool: Tool, neighbours: Neighbours, rules: Set[str]) -> Iterator[Suspicion]:
    """Yield all findings. The caller may remove elements from `rules` while it iterates."""
    texts = sorted(texts_in(definition_of(tool)))
    own = frozenset(text for place, text in texts if place != "/description")
    for place, text in texts:
        others = _other_tools(tool, place, text, own, neighbours) if "other-tool-named" in rules else ()
        for rule, (start, end), why in chain(_in_text(text, rules), others):
            if rule in rules:
                yield Suspicion(rule, place, _around(text, start, end), why)
    if "lookalike-name" in rules:
        yield from _lookalikes(tool, texts, neighbours)


_Found = tuple[str, tuple[int, int], str]
"""A rule, the position in the string, and the reason."""


def _in_text(text: str, rules: Collection[str]) -> Iterator[_Found]:
    if UNSEEN.search(text):
        yield from _unseen(text)
    if len(text) < MIN_CHARS:
        return
    read = plain(text)
    lowered = read.lower()
    for rule, needles, pattern, why in _PATTERNS:
        # A few substring searches are much faster than a pattern that may match anywhere.
        if rule in rules and any(needle in lowered for needle in needles):
            yield from ((rule, match.span(), why) for match in _compiled(pattern).finditer(read))


def _unseen(text: str) -> Iterator[_Found]:
    seen = without_flags(text)
    for match in TAGS.finditer(seen):
        said = "".join(chr(ord(each) - 0xE0000) for each in match[0] if "\U000e0020" <= each <= "\U000e007e")
        yield "tag-characters", match.span(), f"it contains invisible characters that a model can read: {said[:80]!r}"
    hidden: list[int] = []
    for at in unspelled(seen):
        # One character at a time: `TAGS` matches runs, and to match the rest of a run at each place is quadratic.
        if BIDI.match(seen, at):
            yield "bidi-controls", (at, at + 1), "it is shown in a different order than a model reads it"
        elif not is_tag(seen[at]):
            hidden.append(at)
    if hidden:
        count = f"{len(hidden)} invisible characters" if len(hidden) > 1 else "an invisible character"
        yield "hidden-characters", (hidden[0], hidden[0] + 1), f"it contains {count}"


def _pattern(rule: str, needles: str, pattern: str, why: str) -> tuple[str, tuple[str, ...], str, str]:
    """`needles` are lower-case strings. Every match of the pattern contains at least one of them."""
    return rule, tuple(needles.split("|")), pattern, why


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use, because compiling all patterns would dominate the import time of this module."""
    return re.compile(pattern, re.IGNORECASE)


_PATTERNS = (
    _pattern(
        "instructions-to-model",
        "ignore|disregard|forget|override|bypass",
        r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}?\b(?:previous|prior|above|earlier|preceding|all|"
        r"any|other|system|safety|your)\b[^.\n]{0,20}?\b(?:instructions?|prompts?|guidelines?|directives?|guardrails?)\b",
        "it asks the model to ignore earlier instructions",
    ),
    _pattern(
        "instructions-to-model",
        "do not|don't|never|without",
        r"\b(?:do not|don't|never|without)\s+(?:\w+\s+)?(?:tell|inform|mention|reveal|notify|alert|disclose|telling|"
        r"informing|mentioning|revealing|notifying|alerting|disclosing)\b[^.\n]{0,40}?\b(?:users?|humans?|operator|"
        r"anyone|anybody|developers?)\b",
        "it asks the model to hide something from the user",
    ),
    _pattern(
        "instructions-to-model",
        "user",
        r"\b(?:hide|conceal|keep (?:this|it|that))\b[^.\n]{0,40}?\bfrom the user\b|"
        r"\bthe user (?:must|should|need)(?: not|n't) (?:know|notice|be (?:told|informed|notified|aware))\b",
        "it asks the model to hide something from the user",
    ),
    _pattern(
        "instructions-to-model",
        "important|system|instruction|secret|hidden|inst]|im_start|<<sys",
        r"<\s*(?:/\s*)?(?:important|system|system[-_ ]?prompt|instructions?|secret|hidden)\s*>|\[/?INST\]|"
        r"<\|im_start\||<<SYS>>",
        "it is marked like a message to the model, not like a description",
    ),
    _pattern(
        "instructions-to-model",
        "tool|function",
        r"\b(?:before|after|when|whenever|instead of)\s+(?:(?:using|calling|invoking|running|you (?:use|call|run))\s+)?"
        r"(?:any|every|all)\s+(?:of\s+the\s+)?(?:other\s+)?(?:available\s+)?(?:tools?|functions?)\b",
        "it tells the model how to use other tools",
    ),
    _pattern(
        "instructions-to-model",
        "prompt|conversation|history|messages|instructions",
        r"\b(?:reveal|print|output|include|send|repeat|append|pass|provide|share|return|copy|put)\b[^.\n]{0,40}?\b"
        r"(?:(?:your |the )system prompts?|all (?:previous|prior|earlier) messages|"
        r"(?:entire|full|whole|complete|previous) (?:conversation|chat)|"
        r"(?:conversation|chat) history|your instructions)\b",
        "it asks for the model's instructions or conversation",
    ),
    _pattern(
        "instructions-to-model",
        "you are|new instruction|developer mode|jailbreak|system override",
        r"\byou are (?:now|no longer)\b|\bnew instructions?\s*:|\bdeveloper mode\b|\bjailbreak|\bsystem override\b",
        "it gives the model a different role",
    ),
    _pattern(
        "secrets-named",
        ".ssh|id_|/etc/|.aws|.gnupg|.kube|.netrc|.npmrc|.pypirc|.git-cred|_history|mcp.json|claude_desktop|"
        "authorized_keys|private key-|environ|_key|_token|.cursor|.claude",
        r"(?:~|\$HOME|/root|/home/\w+|%USERPROFILE%)[/\\]\.(?:ssh|aws|gnupg|kube|netrc|npmrc|pypirc|git-credentials|docker|"
        r"cursor|claude)\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|/etc/(?:passwd|shadow|sudoers)\b|\.aws/credentials\b|"
        r"\.(?:bash|zsh)_history\b|\bmcp\.json\b|\bclaude_desktop_config\b|\bauthorized_keys\b|"
        r"-----BEGIN [A-Z ]*PRIVATE KEY|/proc/(?:self|\d+)/environ\b|"
        r"\b(?:AWS_SECRET_ACCESS_KEY|OPENAI_API_KEY|ANTHROPIC_API_KEY|GITHUB_TOKEN)\b",
        "secrets are stored there",
    ),
    _pattern(
        "secrets-named",
        "secret|credential|password|key|token|environment",
        r"\b(?:send|collect|upload|forward|exfiltrate|leak|harvest|steal)\b[^.\n]{0,40}?\b(?:passwords|private keys?|"
        r"ssh keys?|api keys|credentials|access tokens|secrets|environment variables)\b",
        "it asks the model to pass on secrets",
    ),
    _pattern(
        "url-credentials",
        "://",
        r"\b[a-z][a-z0-9+.-]{0,20}://(?P<user>[^\s/@:\"'<>`{}\[\]$]{1,100}):"
        r"(?!(?:pass\w*|pwd|pw|secret|token|x+|\*+|\.+|(?P=user)|your\w*|my\w*)@)(?P<password>[^\s/@\"'<>`{}\[\]$*]{3,200})@",
        "the URL contains a password, which is sent to the model",
    ),
    _pattern(
        "url-credentials",
        "://",
        r"\bhttps?://[^\s\"'<>`{}]{1,300}[?&](?:access_token|api[_-]?key|auth|token|key|secret|password)="
        r"(?=[^\s&\"'<>`]{0,200}\d)(?=[^\s&\"'<>`]{0,200}[a-z])(?!your|my|xxx|example|demo|test)[^\s&\"'<>`{}$]{16,200}",
        "the URL contains a key, which is sent to the model",
    ),
)

_NAME = re.compile(r"(?<![\w./])(?:[A-Za-z][A-Za-z0-9]*(?:[_.-]+[A-Za-z0-9]+)+|[a-z]+[A-Z][A-Za-z0-9]+)")
"""Matches words that can only be names: with several parts, or with a capital letter inside. Not the ends of paths."""


def _other_tools(tool: Tool, place: str, text: str, own: frozenset[str], neighbours: Neighbours) -> Iterator[_Found]:
    """`own` are the strings that the definition may mention, because they are parts of it."""
    if not neighbours.sources or place == "/name" or len(text) < MIN_CHARS:
        return
    for match in _NAME.finditer(text):
        name = match[0]
        sources = neighbours.sources.get(name)
        if sources and tool.source not in sources and name not in own:
            whose = ", ".join(sorted(sources)[:3])
            yield "other-tool-named", match.span(), f"`{name}` is a tool of a different source ({whose})"


def _lookalikes(tool: Tool, texts: Iterable[tuple[str, str]], neighbours: Neighbours) -> Iterator[Suspicion]:
    for source, name in neighbours.looks.get(skeleton(tool.name), ()):
        if name != tool.name:
            why = f"it looks like `{visible(name)}` of {source}, but it is a different name"
            yield Suspicion("lookalike-name", "/name", visible(tool.name), why)
    for place, key in texts:
        if (place == "/name" or place.endswith(pointer((key,)))) and (letters := borrowed(key)):
            points = ", ".join(f"U+{ord(letter):04X}" for letter in letters)
            yield Suspicion(
                "lookalike-name",
                place,
                visible(key),
                f"{points} looks like a Latin letter, but belongs to a different script",
            )


def _around(text: str, start: int, end: int) -> str:
    first, last = max(0, start - AROUND_CHARS), min(len(text), end + AROUND_CHARS)
    shown = visible(text[first : min(last, first + 4 * AROUND_CHARS)])
    return ("…" if first else "") + shown + ("…" if last < len(text) else "")
