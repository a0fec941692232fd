"""Writes the names and types of the fields of PAI's public clients, which our models are compared with.

Run once for each new release, with the folders of installed packages; nothing of them is imported or copied but
the names of fields:

    python tests/support/client_fields.py "dlc 1.11.6=FOLDER" "dlc 1.4.4=FOLDER" > tests/golden/dlc_fields.json

A folder has `models/` or `models.py`, and `client.py`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

# Of a workspace, only what a DLC job refers to.
OF_A_WORKSPACE = re.compile(
    r"(Create|Update|Get|List|Delete)?(Dataset|DatasetVersion|Datasets|DatasetVersions|CodeSource|CodeSources|Quotas)"
    r"(Labels)?(Request|ResponseBody)\w*"
    r"|Dataset|DatasetVersion|DatasetSharingConfig|DatasetShareRelationship|CodeSourceItem|Label|UserMetricsEndpoint"
)

_GOLDEN = Path(__file__).parents[1] / "golden" / "dlc_fields.json"
_PLAIN = {"str": "text", "int": 7, "float": 0.5, "bool": True, "Any": "text"}
_MAX_DEPTH = 6  # pods have pods


def golden_fields() -> dict[str, Any]:
    """Client and release to its models and actions, as this script has written them."""
    golden: dict[str, Any] = json.loads(_GOLDEN.read_text(encoding="utf-8"))
    return golden


def full_body(client: dict[str, dict[str, str]], name: str, depth: int = 0) -> dict[str, Any]:
    """A body of a client with every field of a model."""
    values = {field: _value(client, kind, depth + 1) for field, kind in client[name].items()}
    return {field: each for field, each in values.items() if each not in ([], {})}


def _value(client: dict[str, dict[str, str]], kind: str, depth: int) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind.startswith("["):
        item = _value(client, kind[1:-1], depth)
        return [item] if item else []
    if kind.startswith("{"):
        return {"key": {} if kind == "{dict]" else "text"}
    return full_body(client, kind, depth) if depth < _MAX_DEPTH else {}


def main(arguments: list[str]) -> None:
    golden: dict[str, Any] = {}
    for argument in arguments:
        name, _, folder = argument.partition("=")
        golden[name] = {"models": models(Path(folder)), "actions": actions(Path(folder) / "client.py")}
        if name.startswith("aiworkspace"):
            kept = {
                each: fields for each, fields in golden[name]["models"].items() if OF_A_WORKSPACE.fullmatch(each)
            }
            golden[name] = {"models": kept}
    for name, part in golden.items():
        assert part["models"], name
    sys.stdout.write(as_lines(golden))


def as_lines(golden: dict[str, Any]) -> str:
    """JSON with a line for each model."""
    text = []
    for name, parts in golden.items():
        inner = []
        for part, entries in parts.items():
            lines = ",\n".join(f"   {json.dumps(each)}: {json.dumps(value)}" for each, value in entries.items())
            inner.append(f"  {json.dumps(part)}: {{\n{lines}\n  }}")
        text.append(f" {json.dumps(name)}: {{\n" + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(text) + "\n}\n"


def models(folder: Path) -> dict[str, dict[str, str]]:
    """Model to field on the wire to type; models of whole HTTP responses are left out."""
    files = sorted((folder / "models").glob("_*.py")) or [folder / "models.py"]
    classes = [
        node for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    return {node.name: fields(node) for node in classes if not node.name.endswith("Response") and fields(node)}


def fields(node: ast.ClassDef) -> dict[str, str]:
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    types = {each.arg: type_of(each.annotation) for each in methods["__init__"].args.args if each.annotation}
    wire: dict[str, str] = {}
    if "from_map" not in methods:
        return wire
    # if m.get('Name') is not None: self.name = m.get('Name')
    for each in ast.walk(methods["from_map"]):
        if isinstance(each, ast.If) and (key := key_of(each.test)):
            names = [
                n.attr for n in ast.walk(each) if isinstance(n, ast.Attribute) and is_self(n) and n.attr in types
            ]
            wire[key] = types[names[0]]
    return dict(sorted(wire.items()))


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def key_of(test: ast.expr) -> str | None:
    for each in ast.walk(test):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "get":
            return str(ast.literal_eval(each.args[0]))
    return None


def type_of(annotation: ast.expr) -> str:
    text = ast.unparse(annotation).replace("'", "").replace('"', "")
    return re.sub(r"\b\w+_models\.|\bmain_models\.", "", text).replace("List[", "[").replace("Dict[str, ", "{")


def actions(client: Path) -> dict[str, list[str]]:
    """Action to method and path."""
    tree = ast.parse(client.read_text())
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and called(each) == "Params"]
    found = {}
    for call in calls:
        values = {each.arg: ast.unparse(each.value) for each in call.keywords}
        path = re.sub(r"\{[^{}]*?(\w+)\)*\}", r"{\1}", values["pathname"].removeprefix("f").strip("'"))
        found[values["action"].strip("'")] = [values["method"].strip("'"), path]
    return dict(sorted(found.items()))


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


if __name__ == "__main__":
    main(sys.argv[1:])
