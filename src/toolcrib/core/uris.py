"""URIs: their equivalent spellings, and how to show them without secrets."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit, urlunsplit


def spellings(uri: str) -> tuple[str, ...]:
    """Return `uri` itself, its normalized form, and its normalized forms with escapes decoded repeatedly.

    A string without a scheme is returned alone. The normalized form has scheme and host in lower case, no `localhost`
    in a `file` URI, and no dot segments. Source: RFC 3986, section 6.2.2; RFC 8089, section 2.
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


# The scheme has a length limit, because an unlimited quantifier there makes the search slow on hostile text.
_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)(?:[^\s/?#\"'<>`]*@)?([^\s?#\"'<>`]*)(?:[?#][^\s\"'<>`]*)?")


def shown(text: str) -> str:
    """Return `text` with every URI in it cut to scheme, host, port and path.

    The query, the fragment and the user can contain secrets. Every URI that is shown to a person or written to a log
    must go through this function.
    """
    return _ADDRESS.sub(r"\1\2", text) if "://" in text else text


_ESCAPED_AT_MOST = 4
"""How many rounds of escapes `spellings` decodes, because an escape can be escaped again."""


def _without_dots(path: str) -> str:
    if not path.startswith("/"):
        return path
    clean = posixpath.normpath(path)
    clean = f"/{clean.lstrip('/')}"  # `normpath` keeps two leading slashes, as POSIX allows
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean
