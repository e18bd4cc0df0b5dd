"""One resource under several spellings of its URI."""

from __future__ import annotations

import posixpath
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


_ESCAPED_AT_MOST = 4
"""How often an escape can have been escaped again."""


def _without_dots(path: str) -> str:
    if not path.startswith("/"):
        return path
    clean = posixpath.normpath(path)
    clean = f"/{clean.lstrip('/')}"  # POSIX keeps two slashes at the beginning apart
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean
