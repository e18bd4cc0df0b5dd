"""Addresses: their spellings, and how they are shown."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit, urlunsplit


def spellings(uri: str) -> tuple[str, ...]:
    """`uri` as it is, normalised, and normalised with every escape undone; a name that is no URI as it is.

    Normalised: scheme and host in lower case, no `localhost` in a `file` URI, escapes of plain characters undone, dot
    segments removed. Source: RFC 3986, section 6.2.2; RFC 8089, section 2.
    """
    try:
        parts = urlsplit(uri)
        host = parts.netloc.casefold()
    except ValueError:
        return (uri,)
    if not parts.scheme:
        return (uri,)
    host = "" if parts.scheme == "file" and host == "localhost" else host
    found = [uri]
    path = parts.path
    for _ in range(_ESCAPED_AT_MOST):
        found.append(urlunsplit((parts.scheme, host, _without_dots(path), parts.query, parts.fragment)))
        if (undone := unquote(path)) == path:
            break
        path = undone
    return tuple(dict.fromkeys(found))


# No quantifier is unbounded where a scheme may begin: texts come from strangers.
_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)(?:[^\s/?#\"'<>`]*@)?([^\s?#\"'<>`]*)(?:[?#][^\s\"'<>`]*)?")


def shown(text: str) -> str:
    """`text` with every address in it cut to scheme, host, port and path: what follows may be a key, as may a user.

    Every address that is shown to a person or written to a log goes through this.
    """
    return _ADDRESS.sub(r"\1\2", text) if "://" in text else text


_ESCAPED_AT_MOST = 4
"""How often an escape can have been escaped again."""


def _without_dots(path: str) -> str:
    if not path.startswith("/"):
        return path
    clean = posixpath.normpath(path)
    clean = f"/{clean.lstrip('/')}"  # POSIX keeps two slashes at the beginning apart
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean
