"""Measures the structure and the language of the package: `python .ci/measure.py [--names] [FOLDER]`.

Lines of code are neither blank, comment nor docstring. Definition sites are functions, classes, parameters and
assigned names; each counts once if one of its words, split at underscores and capitals, is in `WORDS`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# Group A of the glossary: everyday words in the place of terms of the field.
WORDS = frozenset(
    (  # noqa: SIM905
        "answer answers asked began begin begins begun cut facts fault faults found given goes held here "
        "inside kept known least left listed longest look looked looks made most named nobody noted one "
        "others ours over own piece pieces place places rest said say seen shown somebody taken tell "
        "tells texts there told turn wanted what whoever whole why wished words"
    ).split()
)
BACK_REFERENCE = re.compile(r"(The same|Its\b|Likewise|As (there|above|before)|The other|Theirs)", re.IGNORECASE)
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 300
MAX_DOOR_LINES = 40
# Modules whose comments must explain who wins a race: they import one of these.
CONCURRENT = {
    "threading",
    "multiprocessing",
    "subprocess",
    "socket",
    "selectors",
    "signal",
    "fcntl",
    "portalocker",
}
# Of named tuples and of fsspec.
PUBLIC_OF_LIBRARIES = {"_replace", "_strip_protocol"}

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Site(NamedTuple):
    """A definition of a name."""

    path: Path
    line: int
    kind: str
    name: str


class Lines(NamedTuple):
    """The lines of a module by their purpose."""

    code: int
    docstring: int
    comment: int


def modules(folder: Path) -> list[Path]:
    """Returns the Python files in a folder."""
    return sorted(folder.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Parses a module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def glossary_words(name: str) -> list[str]:
    """Returns the words of an identifier that are not terms of the field."""
    words = (word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))
    return [word for word in words if word in WORDS]


def sites(path: Path) -> Iterator[Site]:
    """Returns all definition sites of a module."""

    def visit(node: ast.AST, scope: str) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield Site(path, child.lineno, "method" if scope == "class" else "function", child.name)
            elif isinstance(child, ast.ClassDef):
                yield Site(path, child.lineno, "class", child.name)
            elif isinstance(child, ast.arg):
                yield Site(path, child.lineno, "parameter", child.arg)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                kinds = {"function": "local", "class": "field", "": "constant"}
                yield Site(path, child.lineno, kinds[scope], child.id)
            elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield Site(path, child.lineno, "attribute", child.attr)
            inner = (
                "function"
                if isinstance(child, Function)
                else "class"
                if isinstance(child, ast.ClassDef)
                else scope
            )
            yield from visit(child, inner)

    return visit(tree(path), "")


def glossary_sites(paths: Iterable[Path]) -> list[Site]:
    """Returns the definition sites whose names hold everyday words."""
    return [site for path in paths for site in sites(path) if glossary_words(site.name)]


def documented(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Returns the nodes of a module that have a docstring, with it."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, (*Function, ast.ClassDef, ast.Module))
            and (text := ast.get_docstring(node)) is not None
        ):
            yield node, text


def back_references(paths: Iterable[Path]) -> list[str]:
    """Returns where docstrings refer back to another one."""
    return [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}"  # type: ignore[attr-defined]
        for path in paths
        for node, text in documented(path)
        if BACK_REFERENCE.match(text)
    ]


def lines(path: Path) -> Lines:
    """Counts the lines of a module."""
    docstrings = set()
    for node, _ in documented(path):
        first = node.body[0]  # type: ignore[attr-defined]
        docstrings.update(range(first.lineno, first.end_lineno + 1))
    source = path.read_text(encoding="utf-8")
    code = comments = in_docstrings = 0
    for number, line in enumerate(source.splitlines(), 1):
        if number in docstrings:
            in_docstrings += bool(line.strip())
        elif line.lstrip().startswith("#"):
            comments += 1
        elif line.strip():
            code += 1
    return Lines(code, in_docstrings, comments)


def comment_lines(path: Path) -> int:
    """Counts the lines of a module that have a comment, after code too."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(source.readline))


def is_concurrent(path: Path) -> bool:
    """Returns whether a module starts or locks threads, processes or connections itself."""
    imported = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").partition(".")[0])
    return bool(imported & CONCURRENT)


def dotted(path: Path) -> str:
    """Returns the name by which a module is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def first_party_imports(paths: list[Path]) -> Iterator[tuple[str, str, bool]]:
    """Returns importing module, imported module, and whether a function imports it."""
    names = {dotted(path) for path in paths}
    for path in paths:
        late = {
            id(inner) for node in ast.walk(tree(path)) if isinstance(node, Function) for inner in ast.walk(node)
        }
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pai_sdk":
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & names
                for name in submodules or {str(node.module)}:
                    yield dotted(path), name, id(node) in late


def package_of(module: str) -> str:
    """Returns the top-level package of a module. Short modules at the top are the doors and count as one."""
    name = module.partition(".")[2].partition(".")[0] or "pai_sdk"
    path = ROOT / "pai_sdk" / f"{name}.py"
    is_door = path.exists() and len(path.read_text(encoding="utf-8").splitlines()) <= MAX_DOOR_LINES
    return "doors" if is_door else name


def graph(paths: list[Path]) -> dict[str, set[str]]:
    """Maps each top-level package to the packages that it imports."""
    edges: dict[str, set[str]] = defaultdict(set)
    for importer, imported, _ in first_party_imports(paths):
        edges[package_of(importer)].add(package_of(imported))
    return {name: targets - {name} for name, targets in edges.items()}


def depth_and_circles(edges: dict[str, set[str]]) -> tuple[int, list[str]]:
    """Returns how many modules or packages the longest chain of imports has, and the names in circles."""
    remaining = {name: set(targets) for name, targets in edges.items()}
    for targets in edges.values():
        for target in targets:
            remaining.setdefault(target, set())
    levels = 0
    while leaves := {name for name, targets in remaining.items() if not targets & remaining.keys()}:
        remaining = {name: targets for name, targets in remaining.items() if name not in leaves}
        levels += 1
    return levels, sorted(remaining)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Counts the lines of a function or class without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_definitions(paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Returns the functions and the classes that are too long, docstrings aside."""
    functions, classes = [], []
    for path in paths:
        for node in ast.walk(tree(path)):
            if not isinstance(node, (*Function, ast.ClassDef)):
                continue
            length = body_lines(node)
            if isinstance(node, ast.ClassDef) and length > MAX_CLASS_LINES:
                classes.append(f"{node.name} ({length})")
            elif isinstance(node, Function) and length > MAX_FUNCTION_LINES:
                functions.append(f"{node.name} ({length})")
    return functions, classes


def private_members(owner: ast.ClassDef) -> set[str]:
    """Returns the private names that a class defines or uses on `self` and `cls`."""
    names = {node.name for node in owner.body if isinstance(node, Function)}
    for node in ast.walk(owner):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in {"self", "cls"}:
            names.add(node.attr)
    return {name for name in names if re.fullmatch(r"_(?!_).*(?<!_)", name)}


def private_reads(paths: list[Path]) -> list[str]:
    """Returns where members that are private to classes of the package are used outside of these classes."""
    members: dict[int, set[str]] = defaultdict(set)  # by the id of each node within a class
    for owner in (node for path in paths for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)):
        own = private_members(owner) - PUBLIC_OF_LIBRARIES
        for inner in ast.walk(owner):
            members[id(inner)] |= own
    private = set().union(*members.values())
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in paths
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in private - members[id(node)]
    ]


def public_modules(page: str) -> list[str]:
    """Returns the modules of the page's first table; the others have paths of other packages."""
    return re.findall(r"^\| `(pai_sdk[\w.]*)` \|", page.partition("\n## ")[0], re.MULTILINE)


def tests_by_folder() -> Counter[str]:
    """Counts the test functions of each folder of tests."""
    count: Counter[str] = Counter()
    for path in modules(ROOT / "tests"):
        folder = path.relative_to(ROOT / "tests").parts[0]
        count[folder] += sum(
            isinstance(node, Function) and node.name.startswith("test_") for node in ast.walk(tree(path))
        )
    return +count


def report(folder: Path) -> Iterator[str]:
    """Returns the lines of the report."""
    paths = modules(folder)
    total = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    edges = graph(paths)
    depth, circles = depth_and_circles(edges)
    late = sum(is_late for *_, is_late in first_party_imports(paths))
    functions, classes = long_definitions(paths)
    public = public_modules((ROOT / "docs" / "reference" / "public.md").read_text(encoding="utf-8"))
    yield f"modules {len(paths)}, lines {total:,}"
    yield (
        f"top-level packages {len({package_of(dotted(path)) for path in paths})}, depth {depth}, "
        f"importing pairs {sum(map(len, edges.values()))}, in circles {circles or 'none'}"
    )
    yield f"public modules {len(public)}, first-party imports in functions {late}"
    yield f"functions over {MAX_FUNCTION_LINES} lines: {', '.join(functions) or 'none'}"
    yield f"classes over {MAX_CLASS_LINES} lines {len(classes)}: {', '.join(classes)}"
    yield f"reads of others' private members {len(private_reads(paths))}"
    hits = glossary_sites(paths)
    code = sum(lines(path).code for path in paths)
    docstrings = sum(1 for path in paths for _ in documented(path))
    yield (
        f"glossary sites {len(hits)} ({1000 * len(hits) / max(code, 1):.1f} in 1,000 lines of code): "
        + ", ".join(f"{kind} {count}" for kind, count in Counter(site.kind for site in hits).most_common())
    )
    yield f"docstrings {docstrings}, of which refer back {len(back_references(paths))}"
    hard = [path for path in paths if is_concurrent(path)]
    hard_lines = sum(sum(lines(path)) for path in hard)
    hard_comments = sum(comment_lines(path) for path in hard)
    share = 100 * hard_comments / max(hard_lines, 1)
    yield f"modules with threads, processes, locks {len(hard)}: comments {share:.1f} % of lines"
    yield f"{'':24}{'code':>8}{'docstring':>11}{'comment':>9}{'glossary':>10}"
    by_package: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        by_package[package_of(dotted(path))].append(path)
    for name, inside in sorted(by_package.items()):
        counts = [sum(column) for column in zip(*(lines(path) for path in inside), strict=True)]
        yield f"{name:24}{counts[0]:>8}{counts[1]:>11}{counts[2]:>9}{len(glossary_sites(inside)):>10}"
    tests = tests_by_folder()
    yield f"test functions {sum(tests.values())}: " + ", ".join(
        f"{name} {count}" for name, count in tests.most_common()
    )


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--names"]
    target = (ROOT / (arguments[0] if arguments else "pai_sdk")).resolve()
    hits = glossary_sites(modules(target))
    names = (f"{site.path.relative_to(ROOT)}:{site.line}: {site.kind} {site.name}" for site in hits)
    sys.stdout.writelines(f"{line}\n" for line in (names if "--names" in sys.argv else report(target)))
