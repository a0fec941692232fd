"""The index that older builds kept in PostgreSQL is taken over: once, wholly, by the folder that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, insert, inspect, text

from pai_sdk._service.oss import index_database
from pai_sdk._service.oss.multipart import MIN_PART_BYTES
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.state.schema import Schema
from pai_sdk._service.state.sql_engine import postgres_engine, postgres_url
from pai_sdk.errors import ServiceStartError
from tests.service.objects.contents import LARGE, blob_files
from tests.service.objects.serving import BUCKET
from tests.service.postgres import url_for

TABLES = {"oss_buckets", "oss_objects", "oss_contents", "oss_uploads", "oss_parts"}


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Engine]:
    """PostgreSQL where the tests run on it; else another SQLite in its place."""
    url = url_for(tmp_path)
    engine = postgres_engine(postgres_url(url)) if url else create_engine(f"sqlite:///{tmp_path / 'earlier.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def root(tmp_path: Path, earlier: Engine) -> Path:
    """A folder as an older build left it: contents are files, the index is elsewhere."""
    root = tmp_path / "store"
    with ObjectStore(root) as store:
        store.create_bucket(BUCKET)
        for number in range(3):
            with store.writer() as writer:
                writer.write(b"%d" % number * LARGE)
                store.finish(writer, BUCKET, f"ü/{number}", headers={"x-oss-meta-a": "ü"})
        upload = store.uploads.start(BUCKET, "parts", content_type="text/plain", headers={"expires": "1"})
        with store.writer() as writer:
            writer.write(b"x" * MIN_PART_BYTES)
            store.uploads.add_part(writer, BUCKET, "parts", upload, 1)
        database = store._database
        with earlier.begin() as connection:
            index_database._SCHEMA.prepare(connection)
        here = create_engine(f"sqlite:///{root / 'objects.db'}")
        with here.connect() as source, earlier.begin() as target:
            for table in index_database._metadata.sorted_tables:
                for row in source.execute(table.select()):
                    target.execute(insert(table), dict(row._mapping))
        here.dispose()
        assert database.query("SELECT count(*) FROM oss_contents", ()) == [(0,)]
    for name in ("objects.db", "objects.db-wal", "objects.db-shm"):
        (root / name).unlink(missing_ok=True)
    return root


def tables(engine: Engine) -> set[str]:
    return {*inspect(engine).get_table_names()} & TABLES


def check(store: ObjectStore) -> None:
    assert [info.key for info in store.list(BUCKET)] == ["ü/0", "ü/1", "ü/2"]
    for number, info in enumerate(store.list(BUCKET)):
        assert info.headers == {"x-oss-meta-a": "ü"}
        with store.open(BUCKET, info.key) as stream:
            assert stream.read() == b"%d" % number * LARGE
    (upload,) = store.uploads.list(BUCKET)
    assert (upload.key, upload.content_type, upload.headers) == ("parts", "text/plain", {"expires": "1"})
    assert [part.size_bytes for part in store.uploads.parts(BUCKET, "parts", upload.id)] == [MIN_PART_BYTES]


def test_the_index_is_taken_over_once(root: Path, earlier: Engine) -> None:
    with ObjectStore(root, earlier=earlier) as store:
        check(store)
        assert len(blob_files(store)) == 4
        store.put_bytes(BUCKET, "new", b"x")
    assert tables(earlier) == set()
    with ObjectStore(root, earlier=earlier) as store:
        assert store.head(BUCKET, "new").size_bytes == 1
        assert len(blob_files(store)) == 4


def test_an_older_build_refuses_what_was_taken_over(root: Path, earlier: Engine) -> None:
    with ObjectStore(root, earlier=earlier) as store:
        check(store)
    old = Schema("objects", index_database._metadata, [lambda connection: None] * 2)
    with pytest.raises(ServiceStartError, match="newer pai-sdk"), earlier.begin() as connection:
        old.prepare(connection)


@pytest.mark.parametrize("step", ["copied", "committed"])
def test_a_kill_on_the_way_costs_nothing(
    root: Path, earlier: Engine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class KilledError(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    take_over = index_database._migrate

    def killed_late(*given: object) -> None:
        take_over(*given)  # type: ignore[arg-type]
        kill()

    with monkeypatch.context() as patch:
        if step == "copied":
            patch.setattr(index_database, "_migrate", killed_late)
        else:
            patch.setattr(index_database._metadata, "drop_all", kill)
        with pytest.raises(KilledError):
            ObjectStore(root, earlier=earlier)
    assert tables(earlier) == TABLES
    with ObjectStore(root, earlier=earlier) as store:
        check(store)
    assert tables(earlier) == set()


def test_an_index_of_another_folder_is_left_as_it_is(root: Path, earlier: Engine, tmp_path: Path) -> None:
    with pytest.raises(ServiceStartError, match=r"index of 3 objects.*with the data folder that it was used with"):
        ObjectStore(tmp_path / "other", earlier=earlier)
    with ObjectStore(root, earlier=earlier) as store:
        check(store)


def test_an_index_of_the_first_version_is_brought_up_to_date(root: Path, earlier: Engine) -> None:
    with earlier.begin() as connection:
        connection.execute(text("ALTER TABLE oss_objects DROP COLUMN part_sizes"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN start"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN crc64"))
        connection.execute(text("DROP TABLE oss_contents"))
        connection.execute(text("DELETE FROM schema_versions"))
    with ObjectStore(root, earlier=earlier) as store:
        check(store)


def test_a_database_without_an_index_is_not_touched(tmp_path: Path, earlier: Engine) -> None:
    with ObjectStore(tmp_path / "store", earlier=earlier) as store:
        assert store.create_bucket(BUCKET)
    assert inspect(earlier).get_table_names() == []
