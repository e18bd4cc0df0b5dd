"""The texts that the table of word vectors is trained on. All have open licences and come from package registries."""

from __future__ import annotations

import gzip
import html
import importlib.util
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from toolcrib.search.index.tokens import words

Json = dict[str, Any]

SHARED = Path(__file__).resolve().parents[2] / "shared"
SETS = {"toolbench": "Apache-2.0", "bfcl": "Apache-2.0", "sealtools": "Apache-2.0", "metatool": "MIT"}

MAX_DESCRIPTION_CHARS = 400
MAX_PARAMETERS = 12

WORDNET = ("wordnet-base", "1:3.0-37", "61060d960f9a")


@dataclass(frozen=True, slots=True)
class Text:
    """A text in the fields of a tool, in the order of `Document.texts`. Only the first counts if it is a sentence."""

    fields: tuple[str, ...]

    @property
    def told(self) -> str:
        """What the teacher reads."""
        name, description, parameters, texts, category, source = (*self.fields, *[""] * (6 - len(self.fields)))
        named = " ".join(words(name)) if description else name
        return ". ".join(filter(None, (named, description, category or source, parameters, texts)))


@dataclass(frozen=True, slots=True)
class Source:
    """Where texts come from."""

    name: str
    licence: str
    texts: tuple[Text, ...]

    @property
    def digest(self) -> str:
        return sha256(json.dumps([text.fields for text in self.texts]).encode()).hexdigest()[:16]


def read_all(cache: Path) -> list[Source]:
    """Read all sources. `cache` keeps what was fetched."""
    tools = [
        Source("botocore", "Apache-2.0", tuple(_different(_botocore()))),
        Source("google-api-python-client", "Apache-2.0", tuple(_different(_google()))),
        Source("Debian package descriptions", "DFSG-free", tuple(_different(_debian()))),
    ]
    for name, licence in SETS.items():
        if (SHARED / "bench" / name).exists():
            tools.append(Source(name, licence, tuple(_different(_bench(SHARED / "bench" / name)))))
    known = {word for source in tools for text in source.texts for value in text.fields for word in words(value)}
    return [*tools, Source("WordNet 3.0", "WordNet", tuple(_different(_wordnet(cache, known))))]


def _botocore() -> Iterator[Text]:
    for service in sorted((_folder("botocore") / "data").iterdir()):
        versions = sorted(service.glob("*/service-2.json.gz"))
        if not versions:
            continue
        told = json.loads(gzip.decompress(versions[-1].read_bytes()))
        title = told["metadata"].get("serviceId") or told["metadata"]["serviceFullName"]
        for name, operation in sorted(told["operations"].items()):
            shape = told["shapes"].get(operation.get("input", {}).get("shape"), {})
            parameters = " ".join([*shape.get("members", {})][:MAX_PARAMETERS])
            yield from _with_sentence(name, _plain(operation.get("documentation", "")), parameters, title)


def _google() -> Iterator[Text]:
    documents = _folder("googleapiclient") / "discovery_cache" / "documents"
    newest = {path.name.partition(".")[0]: path for path in sorted(documents.glob("*.json"))}
    for path in newest.values():
        told = json.loads(path.read_text())
        for method in _methods(told):
            name = method["id"].partition(".")[2]
            parameters = " ".join([*method.get("parameters", {})][:MAX_PARAMETERS])
            yield from _with_sentence(name, _plain(method.get("description", "")), parameters, told["title"])


def _methods(told: Json) -> Iterator[Json]:
    yield from told.get("methods", {}).values()
    for resource in told.get("resources", {}).values():
        yield from _methods(resource)


def _debian() -> Iterator[Text]:
    told = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True).stdout
    for block in told.split("\n\n"):
        found = dict(re.findall(r"^(Package|Description|Section): (.*)$", block, re.MULTILINE))
        name, description, section = (found.get(key, "") for key in ("Package", "Description", "Section"))
        if not description or section.rpartition("/")[2] in _NOT_PROGRAMS or re.search(r"-(dev|dbg|doc|data)$", name):
            continue
        yield Text((name, description, "", "", section))


_NOT_PROGRAMS = {
    *("libs", "libdevel", "oldlibs", "debug", "localization"),
    *("translations", "fonts", "kernel", "introspection"),
}


def _wordnet(cache: Path, known: Set[str]) -> Iterator[Text]:
    """Yield the meanings of known words, and examples of their use. A rare word has no place in the table."""
    folder = _debian_package(cache, *WORDNET) / "usr/share/wordnet"
    for kind in ("verb", "noun", "adj", "adv"):
        for line in (folder / f"data.{kind}").read_text().splitlines():
            if line.startswith("  "):
                continue  # the licence
            head, _, gloss = line.partition(" | ")
            told = head.split()
            lemmas = [told[4 + 2 * at].partition("(")[0].replace("_", " ") for at in range(int(told[3], 16))]
            if known.isdisjoint(lemmas):
                continue
            meaning = gloss.partition('; "')[0].strip()
            yield Text((", ".join(lemmas), meaning))
            for example in re.findall(r'"([^"]+)"', gloss):
                if len(example.split()) > 3:
                    yield Text((example,))


def _debian_package(cache: Path, name: str, version: str, digest: str) -> Path:
    folder = cache / f"{name}-{digest}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", f"{name}={version}"], check=True, cwd=cache, capture_output=True)
        (file,) = cache.glob(f"{name}_*.deb")
        if not (found := sha256(file.read_bytes()).hexdigest()).startswith(digest):
            raise SystemExit(f"{file} has the digest {found}, not {digest}")
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder)], check=True)
    return folder


def _bench(folder: Path) -> Iterator[Text]:
    for line in (folder / "tools.jsonl").read_text().splitlines():
        tool: dict[str, Any] = json.loads(line)
        schema: dict[str, Any] = tool["input_schema"] or {}
        properties: dict[str, object] = schema.get("properties") or {}
        parameters = [cast("Mapping[str, str]", each) for each in properties.values() if isinstance(each, Mapping)]
        said = [each.get("description") for each in parameters]
        yield Text(
            (
                tool["name"],
                (tool["description"] or "")[:MAX_DESCRIPTION_CHARS],
                " ".join(list(properties)[:MAX_PARAMETERS]),
                " ".join(filter(None, said))[:MAX_DESCRIPTION_CHARS],
                ", ".join(tool["category"] or ()),
                tool["server"] or "",
            )
        )
    for query in map(json.loads, (folder / "queries.jsonl").read_text().splitlines()):
        yield Text((query["query"],))


def _with_sentence(name: str, description: str, parameters: str, source: str) -> Iterator[Text]:
    """Yield a tool, and the first sentence of its description, which is how a person would request it."""
    yield Text((name, description[:MAX_DESCRIPTION_CHARS], parameters, "", "", source))
    sentence = re.split(r"(?<=[.!?])\s", description, maxsplit=1)[0][:200]
    if len(sentence.split()) > 3:
        yield Text((sentence,))


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def _different(texts: Iterable[Text]) -> Iterator[Text]:
    return iter({text.fields: text for text in texts}.values())


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed: `make table`")
    return Path(spec.origin).parent
