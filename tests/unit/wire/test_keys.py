"""The names of fields of the HTTP API are written in `pai_sdk._wire` and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pai_sdk._wire.base import wire_names

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "pai_sdk"

PASCAL = re.compile(r"(?:[A-Z]+[a-z0-9]+)+[A-Z]*")
HEADERS = {"Accept", "Authorization", "Date", "ETag", "Host", "Location", "Prefer", "Vary"}
# Keys that are no fields of a body of the API; each entry is a file or folder, and says what they are.
OTHERS = {
    "_wire": "here they are",
    "_wire/pai": "models that move into _wire",
    "_client/api/responses.py": "codes of errors",
    "_core/kernel.py": "the module IPython",
    "_core/names/peer_attributes.py": "classes, as their own hints name them",
    "_core/names/peer_imports.py": "classes of other libraries",
    "_core/names/peer_names.py": "classes of other libraries",
    "alipai/member_aliases.py": "classes of alipai",
    "_client/ssh/client_config.py": "options of OpenSSH",
    "_client/tunnel/programs.py": "codes of refusals",
    "_client/display/choice.py": "the module IPython",
    "errors.py": "former names of classes",
    "_host/execution/docker": "the API of Docker",
    "_host/execution/ray": "the API of Ray",
    "_data/logs/missing_modules.py": "modules of other libraries",
    "_data/run/store/oss_folder.py": "details of errors of OSS",
    "_data/run/watch/table.py": "words for statuses",
    "_service/http/authentication.py": "parts of a signature",
    "_service/services/experiments.py": "values of OrderBy",
    "_service/services/dlc/listing.py": "values of SortBy and PaymentType",
    "_service/services/dlc/records.py": "values of SortBy",
    "_service/services/jobs/listing.py": "values of SortBy",
    "_service/oss": "the XML, the errors and the signatures of OSS",
    "_service/state/migrations.py": "requests as an earlier release has stored them",
    "_service/odps": "the API of MaxCompute",
    "_data/storage": "the XML and the errors of object stores",
    "_client/submit/job_file.py": "classes",
    "_client/submit/job_file_schema.py": "a class",
    "_data/trace/odps.py": "the API of MaxCompute",
}


def test_no_field_of_the_api_is_named_elsewhere() -> None:
    found = [
        f"{name}:{line} {key}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not _is_excepted(name := path.relative_to(PACKAGE).as_posix())
        for key, line in _keys(ast.parse(path.read_text(encoding="utf-8")))
        if key not in HEADERS
    ]
    assert found == []


def test_each_exception_is_needed() -> None:
    for name in OTHERS:
        paths = [PACKAGE / name] if name.endswith(".py") else sorted((PACKAGE / name).rglob("*.py"))
        assert any(key for path in paths for key, _ in _keys(ast.parse(path.read_text(encoding="utf-8")))), name


def test_keys_are_seen_in_every_form() -> None:
    source = """
{"InDict": 1, "kept-small": 2, "CAPITALS": 3}
body["BySubscript"]
body.get("ByGet"), body.pop("ByPop"), body.setdefault("BySetdefault", 1)
dict(ByKeyword=1)
"ByIn" in body, "ByNotIn" not in body
Field(alias="ByAlias")
print("A text"), SomeClass(), Query(alias="OfAQuery")
"""
    expected = "InDict BySubscript ByGet ByPop BySetdefault ByKeyword ByIn ByNotIn ByAlias"
    assert sorted(key for key, _ in _keys(ast.parse(source))) == sorted(expected.split())


def _is_excepted(name: str) -> bool:
    return any(name == other or name.startswith(f"{other}/") for other in OTHERS)


def _keys(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        for key in _key_nodes(node):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and PASCAL.fullmatch(key.value):
                yield key.value, key.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            yield from (
                (word.arg, node.lineno) for word in node.keywords if word.arg and PASCAL.fullmatch(word.arg)
            )


def _key_nodes(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return [node.left]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args[:1] if node.func.attr in ("get", "pop", "setdefault") else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Field":
        return [word.value for word in node.keywords if word.arg and word.arg.endswith("alias")]
    return []


def test_parameters_of_a_query_have_the_names_of_the_api() -> None:
    assert wire_names(page_number=1, sort_by="GmtCreateTime") == {"PageNumber": 1, "SortBy": "GmtCreateTime"}
