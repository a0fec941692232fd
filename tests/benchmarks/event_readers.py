"""Reads all event files below a folder with one reader, as a program of its own; prints its numbers as JSON.

Nothing of this project is imported for the readers of others, which run in the environment of the peers.
"""

import json
import sys
import time
from pathlib import Path


def main(kind: str, folder: str, most_runs: str) -> None:
    """Read the first runs of a folder."""
    names = sorted(path.name for path in Path(folder).iterdir())[: int(most_runs)]
    read = {"files": files, "runs": runs, "plain": plain, "accumulator": accumulator, "tbparse": tbparse}[kind]
    if kind in ("files", "runs"):  # what is imported is not part of what is measured
        import pai_sdk._data.run.events.reader
        import pai_sdk._data.storage.stores.local  # noqa: F401
    elif kind == "accumulator":
        pass
    elif kind == "tbparse":
        import tbparse as _  # noqa: F401
    cpu, begun = time.process_time(), time.perf_counter()
    points = read(Path(folder), names)
    numbers = {
        "s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu,
        "mib": peak_mib(),
        "points": points,
    }
    print(json.dumps(numbers))


def peak_mib() -> float:
    """The most memory this process had; `ru_maxrss` would be that of the process it was forked from, if larger."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def files(folder: Path, names: list) -> int:
    """`EventFileReader`, and all points kept."""
    from pai_sdk._data.run.events.files import EventFileReader
    from pai_sdk._data.storage.stores.local import LocalStore

    store = LocalStore(folder)
    kept = [
        EventFileReader(store, f"{name}/{path.name}").read()
        for name in names
        for path in (folder / name).iterdir()
    ]
    return sum(map(len, kept))


def runs(folder: Path, names: list) -> int:
    """`RunReader`: listed, with the summary of each tag."""
    from pai_sdk._data.run.events.reader import RunReader
    from pai_sdk._data.storage.stores.local import LocalStore

    store = LocalStore(folder)
    kept = [RunReader(store, [file]) for file in store.list() if file.path.partition("/")[0] in names]
    return sum(summary.count for run in kept for summary in run.tags().values())


def plain(folder: Path, names: list) -> int:
    """Nothing but the bytes and one checksum over them."""
    from google_crc32c import value

    for name in names:
        for file in (folder / name).iterdir():
            value(file.read_bytes())
    return 0


def accumulator(folder: Path, names: list) -> int:
    """TensorBoard's reader in Python, which keeps everything here."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kept = []
    for name in names:
        reader = EventAccumulator(str(folder / name), size_guidance={"scalars": 0, "tensors": 0})
        kept.append(reader.Reload())
    return sum(_count(reader) for reader in kept)


def _count(reader: object) -> int:
    tags = reader.Tags()
    scalars = sum(len(reader.Scalars(tag)) for tag in tags["scalars"])
    return scalars + sum(len(reader.Tensors(tag)) for tag in tags["tensors"])


def tbparse(folder: Path, names: list) -> int:
    """Event files as a data frame."""
    from tbparse import SummaryReader

    found = [SummaryReader(str(folder / name)) for name in names]
    return sum(len(reader.scalars) or len(reader.tensors) for reader in found)


if __name__ == "__main__":
    main(*sys.argv[1:])
