"""Links in an input folder: those that a container cannot follow are reported before the job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._client.backend.local.support import links_notice


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "real.csv").write_text("1")
    (tmp_path / "outside.csv").write_text("2")
    return folder


@pytest.mark.parametrize("target", ["real.csv", "deep", "deep/../real.csv", "gone.csv", "/ml/input/data/other/a"])
def test_links_that_a_container_can_follow_as_well_are_no_news(folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target)
    (folder / "deep" / "up").symlink_to("../real.csv")
    assert links_notice("train", folder) is None


@pytest.mark.parametrize("place", ["link", "deep/link"])
@pytest.mark.parametrize("target", ["../outside.csv", "../../outside.csv", "/etc/hostname", "{folder}/real.csv"])
def test_links_that_lead_out_are_named(folder: Path, place: str, target: str) -> None:
    if place == "deep/link" and target == "../outside.csv":
        target = "../../outside.csv"
    target = target.format(folder=folder)
    (folder / place).symlink_to(target)
    notice = links_notice("train", folder) or ""
    assert f"inputs['train']: links that lead out of {folder}" in notice
    assert f"{place} -> {target};" in notice


def test_the_folder_may_be_named_in_a_roundabout_way(folder: Path) -> None:
    (folder / "link").symlink_to("real.csv")
    assert links_notice("train", folder / ".." / "data") is None


def test_of_many_links_the_first_are_named(folder: Path) -> None:
    for number in range(10):
        (folder / f"link{number}").symlink_to("/outside")
    notice = links_notice("train", folder) or ""
    assert notice.count("-> /outside") == 3
    assert "…" in notice


def test_a_huge_folder_is_not_searched_to_its_end(folder: Path) -> None:
    (folder / "deep" / "link").symlink_to("/outside")
    assert links_notice("train", folder, max_files=2) is None


def test_a_single_file_has_no_links(folder: Path) -> None:
    assert links_notice("train", folder / "real.csv") is None


def test_a_missing_folder_has_no_links() -> None:
    assert links_notice("train", Path("/nowhere")) is None
