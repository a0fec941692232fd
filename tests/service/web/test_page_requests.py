"""The requests that the page knows, compared with what the service says about itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pai_sdk
from pai_sdk._service.http.description import describe
from pai_sdk._service.routes.api_app import create_api

_SOURCE = Path(pai_sdk.__file__).parent / "_service/web/src/api.ts"
_ENTRY = re.compile(r'^  (\w+): \{ method: "(\w+)", path: (.+?), query: (\[.*?\]|\w+) \},$', re.MULTILINE)
_DESCRIPTION = describe(create_api(None))  # type: ignore[arg-type] # no request is answered by this one


class Entry(NamedTuple):
    """One line of the page's table of requests."""

    name: str
    method: str
    path: str
    query: list[str]


def entries() -> list[Entry]:
    """The table `ROUTES` of the page's sources, with its constants in their places."""
    text = _SOURCE.read_text()
    table = text[text.index("export const ROUTES = {") : text.index("} as const;")]
    texts: dict[str, str] = {}
    for name, quoted in re.findall(r'^const (\w+) = ("[^"]+"|`[^`]+`);', text, re.MULTILINE):
        texts[name] = _put_in(quoted[1:-1], texts)
    lists = {
        name: json.loads(written)
        for name, written in re.findall(r"^const (\w+) = (\[.+\]) as const;", text, re.MULTILINE)
    }
    found = [
        Entry(
            name,
            method,
            texts[path] if path in texts else _put_in(path[1:-1], texts),
            lists[query] if query in lists else json.loads(query),
        )
        for name, method, path, query in _ENTRY.findall(table)
    ]
    assert len(found) == table.count("method:"), "a line of ROUTES is written in another way"
    return found


def _put_in(text: str, constants: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: constants[found[1]], text)


@pytest.mark.parametrize(
    "entry", [one for one in entries() if not one.path.startswith("/ui/")], ids=lambda one: one.name
)
def test_the_service_has_each_request_of_the_page(entry: Entry) -> None:
    methods: dict[str, Any] = _DESCRIPTION["paths"].get(entry.path, {})
    if entry.method.lower() not in methods:
        pytest.fail(f"the service has no {entry.method} {entry.path}")
    described = methods[entry.method.lower()].get("parameters", [])
    known = {one["name"] for one in described if one["in"] == "query"}
    assert set(entry.query) <= known, f"{entry.method} {entry.path} takes {sorted(known)} in its query"
