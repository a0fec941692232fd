"""The command: `python -m tests.benchmarks [NAME …] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.harness import Result, find, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which benchmarks; all by default")
    parser.add_argument("--json", type=Path, help="write all values to this file, too")
    parser.add_argument("--repetitions", type=int, help="instead of each benchmark's own number")
    parser.add_argument("--cache", type=Path, default=_default_cache(), help="what is kept between runs")
    parser.add_argument("--measure", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    if arguments.measure:
        (benchmark,) = find([arguments.measure]).values()
        print(json.dumps(benchmark.measure(arguments.cache)))
        return
    results: dict[str, list[Result]] = {}
    for name, benchmark in find(arguments.names).items():
        results[name] = list(run(name, benchmark, arguments.cache, arguments.repetitions))
        Console().print(_table((benchmark.__doc__ or name).splitlines()[0], results[name]))
    if arguments.json:
        arguments.json.write_text(json.dumps(_report(results), indent=2) + "\n", encoding="utf-8")


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pai_sdk-bench"


def _table(title: str, results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for heading in ("median", "least", "most", "aim"):
        table.add_column(heading, justify="right")
    for result in results:
        row = result.row
        if result.missing:
            table.add_row(row.name, f"not measured: {result.missing}")
            continue
        numbers = (result.median, min(result.values), max(result.values))
        aim = row.aim and f"{row.aim} {'met' if row.is_met_by(result.median) else 'MISSED'}"
        table.add_row(row.name, *(f"{number:,.3f} {row.unit}" for number in numbers), aim)
    return table


def _report(results: dict[str, list[Result]]) -> dict[str, object]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    return {"machine": machine, "results": {name: [r.to_json() for r in rows] for name, rows in results.items()}}


if __name__ == "__main__":
    main()
