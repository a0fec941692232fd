"""Code: packing a folder; submitting it to the embedded service, near and 20 ms away, beside alipai's upload."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from pai_sdk import Processor, Session
from pai_sdk._client.code.package import package_code
from tests.benchmarks import peers
from tests.benchmarks.harness import Row
from tests.benchmarks.relay import Relay

REPETITIONS = 3
FILES = 1000
FAR_S = 0.02

PACK = Row("packing 1,000 files of 53 MB beside .venv and .git", at_most=0.1)
COLD_AIMS_S, CHANGED_AIMS_S = {"near": 0.8, "far": 0.8}, {"near": 0.8, "far": 1.1}
COLD = {near: Row(f"submit 1,000 files, cold, {near}", at_most=aim) for near, aim in COLD_AIMS_S.items()}
UNCHANGED = {near: Row(f"submit 1,000 files, unchanged, {near}") for near in ("near", "far")}
CHANGED = {near: Row(f"submit 1,000 files, one changed, {near}", at_most=a) for near, a in CHANGED_AIMS_S.items()}
SENT = Row("requests of an unchanged submit", unit="", at_most=3)
THEIRS = {near: Row(f"upload 1,000 files (alipai), {near}") for near in ("near", "far")}
RATIO = Row("alipai / pai_sdk, cold, far", unit="times", at_least=35)
ROWS = (
    PACK,
    *(row for near in ("near", "far") for row in (COLD[near], UNCHANGED[near], CHANGED[near], THEIRS[near])),
    SENT,
    RATIO,
)

# alipai's own function, on the bucket object that its session would make.
THEIR_UPLOAD = """
import json, sys, time
import oss2
from pai.common import oss_utils
folder, endpoint, bucket, key_id, secret = sys.argv[1:]
place = oss2.Bucket(oss2.Auth(key_id, secret), endpoint, bucket)
started = time.perf_counter()
oss_utils.upload(folder, "theirs/", place)
print(json.dumps(time.perf_counter() - started))
"""


def prepare(cache: Path) -> None:
    peers.ALIPAI.install(cache)


def measure(cache: Path) -> dict[str, float | str]:
    values: dict[str, float | str] = {PACK.name: _pack()}
    service = Session.embedded()
    port = urlsplit(service.settings.oss_url).port or 0
    _submit(service, _folder("warm", "warm"))  # the first job of a service pays for what later ones find ready
    for near, round_trip_s in (("near", 0.0), ("far", FAR_S)):
        with Relay(port, round_trip_s) as relay:
            values |= _ours(service, relay, near)
            values[THEIRS[near].name] = _theirs(service, relay, near, cache)
    theirs, ours = values[THEIRS["far"].name], values[COLD["far"].name]
    values[RATIO.name] = theirs if isinstance(theirs, str) else theirs / float(ours)
    return values


def _pack() -> float:
    root = Path("packed")
    noise = random.Random(1)
    _write(root, {f"p{number % 40}/m{number}.py": noise.randbytes(53_000) for number in range(FILES)})
    _write(root, {f".venv/lib/p{number % 200}/m{number}.py": b"" for number in range(8000)})
    _write(root, {f".git/objects/{number % 256:02x}/{number}": b"" for number in range(2000)})
    _write(root, {".gitignore": "".join(f"*.x{n}\n/build{n}/\n" for n in range(40)).encode()})
    package_code(root)  # the first time reads the disk
    return min(_seconds(lambda: package_code(root)) for _ in range(3))


def _ours(service: Session, relay: Relay, near: str) -> dict[str, float | str]:
    far = Session(
        service.settings.region_id,
        service.settings.workspace_id,
        oss_bucket_name=service.settings.oss_bucket_name,
        oss_endpoint=relay.endpoint,
        endpoint=relay.endpoint,
        credentials=service.credentials(),
    )
    source = _folder(f"ours-{near}", near)
    values: dict[str, float | str] = {COLD[near].name: _submit(far, source, service)}
    relay.requests()
    values[UNCHANGED[near].name] = _submit(far, source, service)
    values[SENT.name] = relay.requests()
    (source / "p0" / "m0.py").write_text(f"changed = {near!r}\n")
    values[CHANGED[near].name] = _submit(far, source, service)
    return values


def _submit(session: Session, source: Path, direct: Session | None = None) -> float:
    """Seconds until the job is created; returns when it has ended, so that it disturbs nobody."""
    processor = Processor("python:3.11", "true", source_dir=str(source), instance_type="x", session=session)
    started = time.perf_counter()
    job = processor.run(wait=False, show_logs=False)
    took = time.perf_counter() - started
    (direct or session).get_job(job.id).wait(show_logs=False)
    return took


def _theirs(service: Session, relay: Relay, near: str, cache: Path) -> float | str:
    python = peers.ALIPAI.python(cache)
    if isinstance(python, str):
        return python
    key = service.credentials()
    place = (relay.endpoint, service.settings.oss_bucket_name or "", key.access_key_id, key.access_key_secret)
    command = [str(python), "-c", THEIR_UPLOAD, str(_folder(f"theirs-{near}", near).resolve()), *place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["alipai failed"])[-1]
    return float(json.loads(done.stdout.splitlines()[-1]))


def _folder(name: str, seed: str) -> Path:
    """1,000 files of about 4 KB, like no other folder's."""
    text = "".join(f"def function_{line}(value):\n    return value * {line}\n" for line in range(70))
    head = f"# {name} {seed} "
    root = Path(name)
    _write(root, {f"p{number % 40}/m{number}.py": f"{head}{number}\n{text}".encode() for number in range(FILES)})
    return root


def _write(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
