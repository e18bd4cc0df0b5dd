"""Words that many tools share, independent of their purpose. A small catalog cannot learn them itself."""

from __future__ import annotations

from collections.abc import Mapping

SHARES: Mapping[str, float] = {
    "get": 0.36, "id": 0.33, "name": 0.26, "use": 0.25, "return": 0.23, "list": 0.22, "api": 0.17, "data": 0.16,
    "tool": 0.16, "default": 0.14, "specif": 0.14, "type": 0.13, "page": 0.13, "text": 0.12, "number": 0.12,
    "valu": 0.12, "path": 0.12, "option": 0.1, "set": 0.1, "provid": 0.1, "search": 0.1, "user": 0.1, "format": 0.1,
    "endpoint": 0.09, "result": 0.09, "queri": 0.08, "one": 0.08, "start": 0.08, "content": 0.08, "file": 0.08,
    "paramet": 0.08, "url": 0.08, "respons": 0.08, "includ": 0.08, "request": 0.08, "exampl": 0.08, "inform": 0.07,
    "detail": 0.07, "specifi": 0.07, "retriev": 0.07, "code": 0.07, "time": 0.07, "current": 0.07, "new": 0.07,
    "add": 0.06, "creat": 0.06, "find": 0.05, "run": 0.05, "call": 0.05, "by": 0.05, "delet": 0.05, "date": 0.05,
}  # fmt: skip
"""The share of tools that contain each term, in the form of `tokens.terms`. It is the mean of ToolBench's tools and the
tools of 557 published servers. Only terms with 0.05 or more that do not belong to a single field of work.
"""
