"""What a user of ossfs does, one step a function; run by test_other_oss_clients.py in the environment of ossfs."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import fsspec

BUCKET = os.environ.get("TEST_BUCKET", "")


def file_system() -> fsspec.AbstractFileSystem:
    """As `fsspec.filesystem("oss")`, which pandas and others call."""
    return fsspec.filesystem("oss", **options())


def options() -> dict[str, str]:
    """What such libraries take as `storage_options`."""
    return {name: os.environ[f"TEST_{name.upper()}"] for name in ("endpoint", "key", "secret")}


def names(found: list[str]) -> list[str]:
    """Paths without the slash before and behind that ossfs adds here and there."""
    return sorted(name.strip("/") for name in found)


def small_files() -> None:
    fs, path = file_system(), f"{BUCKET}/small/a b ü.txt"
    with fs.open(path, "w", encoding="utf-8") as file:
        file.write("one\ntwo\n")
    with fs.open(path, "r", encoding="utf-8") as file:
        assert file.readlines() == ["one\n", "two\n"]
    assert fs.cat_file(path) == b"one\ntwo\n"
    assert fs.cat_file(path, 4, 6) == b"two"  # ossfs counts the last byte in
    info = fs.info(path)
    assert (info["type"], info["size"]) == ("file", 8)
    assert fs.exists(path)
    assert fs.isfile(path)
    assert fs.isdir(f"{BUCKET}/small")
    assert not fs.exists(f"{BUCKET}/small/nothing")
    assert fs.modified(path)
    assert fs.checksum(path)


def large_files() -> None:
    fs, path = file_system(), f"{BUCKET}/large/data.bin"
    content = os.urandom(13 << 20)
    with fs.open(path, "wb") as file:
        file.write(content)  # at once: ossfs loses its place in a file of several blocks, on Alibaba Cloud too
    assert fs.size(path) == len(content)
    with fs.open(path, "rb", block_size=1 << 20) as file:
        file.seek(7 << 20)
        assert file.read(100) == content[7 << 20 : (7 << 20) + 100]
        file.seek(-10, 2)
        assert file.read() == content[-10:]
        file.seek(0)
        assert file.read() == content
    fs.pipe(f"{BUCKET}/large/piped.bin", content)
    assert fs.cat(f"{BUCKET}/large/piped.bin") == content


def appending() -> None:
    fs, path = file_system(), f"{BUCKET}/appended.log"
    position = fs.append_object(path, 0, b"one ")
    assert fs.append_object(path, position, b"two") == 7
    assert fs.cat(path) == b"one two"


def trees() -> None:
    fs = file_system()
    files = [f"{BUCKET}/tree/{name}" for name in ("a.csv", "b.txt", "sub/c.csv", "sub/deep/d.csv")]
    for path in files:
        fs.pipe(path, path.encode())
    assert names(fs.ls(f"{BUCKET}/tree", detail=False)) == names([*files[:2], f"{BUCKET}/tree/sub"])
    assert names(fs.find(f"{BUCKET}/tree")) == names(files)
    assert names(fs.glob(f"{BUCKET}/tree/*.csv")) == names(files[:1])
    assert names(fs.glob(f"{BUCKET}/tree/**/*.csv")) == names([files[0], *files[2:]])
    walked = {
        root.strip("/"): (sorted(folders), sorted(found)) for root, folders, found in fs.walk(f"{BUCKET}/tree")
    }
    assert walked[f"{BUCKET}/tree"] == (["sub"], ["a.csv", "b.txt"])
    assert walked[f"{BUCKET}/tree/sub/deep"] == ([], ["d.csv"])
    assert fs.du(f"{BUCKET}/tree") == sum(map(len, files))
    assert BUCKET in names(fs.ls("", detail=False))

    fs.cp(files[0], f"{BUCKET}/tree/copied.csv")
    assert fs.cat(f"{BUCKET}/tree/copied.csv") == files[0].encode()
    fs.mv(f"{BUCKET}/tree/copied.csv", f"{BUCKET}/tree/moved.csv")
    assert fs.cat(f"{BUCKET}/tree/moved.csv") == files[0].encode()
    assert not fs.exists(f"{BUCKET}/tree/copied.csv")
    fs.cp(f"{BUCKET}/tree/sub", f"{BUCKET}/tree/twin", recursive=True)
    fs.invalidate_cache()
    assert len(fs.find(f"{BUCKET}/tree/twin")) == 2

    fs.rm(f"{BUCKET}/tree", recursive=True)
    fs.invalidate_cache()
    assert not fs.find(f"{BUCKET}/tree")
    assert not fs.exists(f"{BUCKET}/tree")


def folders_there_and_back() -> None:
    fs = file_system()
    Path("local/inner").mkdir(parents=True)
    for name in ("local/1", "local/inner/2"):
        Path(name).write_text(name, encoding="utf-8")
    fs.put("local", f"{BUCKET}/up", recursive=True)
    fs.invalidate_cache()
    assert len(fs.find(f"{BUCKET}/up")) == 2
    fs.get(f"{BUCKET}/up", "back", recursive=True)
    found = sorted(path for path in Path("back").rglob("*") if path.is_file())
    assert [path.read_text(encoding="utf-8") for path in found] == ["local/1", "local/inner/2"]


def through_fsspec() -> None:
    """What pandas, PyArrow and their like do with a URL and storage_options."""
    url = f"oss://{BUCKET}/tables/t.csv"
    with fsspec.open(url, "w", **options()) as file:
        file.write("a,b\n1,2\n")
    with fsspec.open(f"simplecache::{url}", "r", oss=options(), simplecache={"cache_storage": "cache"}) as file:
        assert file.read() == "a,b\n1,2\n"
    found = fsspec.open_files(f"oss://{BUCKET}/tables/*.csv", "rb", **options())
    with found[0] as file:
        assert io.TextIOWrapper(file).read() == "a,b\n1,2\n"
    mapper = fsspec.get_mapper(f"oss://{BUCKET}/zarr", **options())
    mapper["x/0.0"] = b"chunk"
    assert dict(mapper) == {"x/0.0": b"chunk"}


def what_is_missing() -> None:
    fs = file_system()
    for read in (fs.cat_file, fs.info, fs.open):
        try:
            read(f"{BUCKET}/no such file")
        except FileNotFoundError:
            continue
        raise AssertionError(f"{read} found what is not there")


STEPS = [small_files, large_files, appending, trees, folders_there_and_back, through_fsspec, what_is_missing]

if __name__ == "__main__":
    {step.__name__: step for step in STEPS}[sys.argv[1]]()
