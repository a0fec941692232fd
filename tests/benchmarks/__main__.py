"""The command: `python -m tests.benchmarks [NAME …] [--quick] [--all] [--json FILE]`.

It prints one page: what has an aim, and whether it was met. `--all` and the JSON file have the rest, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.harness import QUICK, QUICK_VARIABLE, BenchmarkError, Result, find, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which benchmarks; all by default")
    parser.add_argument("--json", type=Path, help="write all values to this file, too")
    parser.add_argument(
        "--quick", action="store_true", help=f"one repetition of {', '.join(QUICK)}, with less data"
    )
    parser.add_argument(
        "--all", action="store_true", help="print the rows without an aim, and the range of each, too"
    )
    parser.add_argument("--repetitions", type=int, help="instead of each benchmark's own number")
    parser.add_argument("--cache", type=Path, default=_default_cache(), help="what is kept between runs")
    parser.add_argument("--measure", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    if arguments.measure:
        (benchmark,) = find([arguments.measure]).values()
        print(json.dumps(benchmark.measure(arguments.cache)))
        return
    if arguments.quick:
        os.environ[QUICK_VARIABLE] = "1"
    names = arguments.names or (QUICK if arguments.quick else ())
    repetitions = arguments.repetitions or (1 if arguments.quick else None)
    results: dict[str, list[Result]] = {}
    begun = time.monotonic()
    page: list[str] = []
    failures = 0
    for name, benchmark in find(names).items():
        print(f"{name} …", file=sys.stderr, flush=True)
        started = time.monotonic()
        results[name], failure = [], ""
        try:
            results[name] += run(name, benchmark, arguments.cache, repetitions, warm_up=not arguments.quick)
        except BenchmarkError as error:  # the others are measured all the same
            failures += 1
            failure = f"  FAILED: it {error}"
        times = max((len(result.values) for result in results[name]), default=0)
        took = f"{time.monotonic() - started:.0f} s" + (f", {times} times" if times > 1 else "")
        title = f"{(benchmark.__doc__ or name).splitlines()[0]} ({took})"
        page += [*_lines(title, results[name], arguments.all), *filter(None, [failure])]
    print("\n".join(page))
    print(f"{_machine()}; {time.monotonic() - begun:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(_report(results), indent=2) + "\n", encoding="utf-8")
    if failures:
        raise SystemExit(f"{failures} could not be measured")


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pai_sdk-bench"


def _lines(title: str, results: Sequence[Result], everything: bool) -> Iterator[str]:
    """A benchmark on the page."""
    yield title
    for result in results:
        row = result.row
        if not (row.aim or everything):
            continue
        if result.missing:
            yield f"  {row.name}: {result.missing}"
            continue
        verdict = row.aim and ("met" if row.is_met_by(result.median) else "MISSED")
        line = f"  {row.name:<76} {_rounded(result.median):>9} {row.unit:<11} {row.aim:>11} {verdict:<7}"
        if everything and len(result.values) > 1:
            line += f" from {_rounded(min(result.values))} to {_rounded(max(result.values))}"
        yield line.rstrip()


def _rounded(number: float) -> str:
    """Three digits, and no more of what is measured."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.release()}"


def _report(results: dict[str, list[Result]]) -> dict[str, object]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    return {"machine": machine, "results": {name: [r.to_json() for r in rows] for name, rows in results.items()}}


if __name__ == "__main__":
    main()
