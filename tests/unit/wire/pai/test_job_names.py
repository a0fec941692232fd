"""Random endings of job names can be told from what a user wrote."""

from __future__ import annotations

import secrets

import pytest

from pai_sdk._wire.pai.job_names import folder_pattern, new_suffix, suffix_of_key, without_suffix


@pytest.mark.parametrize("name", ["run-202611", "train-10fold", "fit-2stage", "a-lr0.1", "b-3f2a9cd", "digits"])
def test_what_a_user_wrote_stays(name: str) -> None:
    assert without_suffix(name) == name


@pytest.mark.parametrize("ending", ["-3f2a9c", "-000a00", "_20261123_012742_023740e7"])
def test_an_ending_is_removed(ending: str) -> None:
    assert without_suffix(f"train-lr0.1{ending}") == "train-lr0.1"


def test_each_new_suffix_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {without_suffix(f"train-{new_suffix()}") for _ in range(1000)} == {"train"}
    drawn = iter("202611" + "2stage" + "3f2a9c")
    monkeypatch.setattr(secrets, "choice", lambda _: next(drawn))
    assert new_suffix() == "3f2a9c"


def test_a_key_always_has_the_same_suffix() -> None:
    assert suffix_of_key("nightly-2026-11-22") == suffix_of_key("nightly-2026-11-22")


def test_the_folder_of_a_job_has_its_name_with_or_without_a_suffix() -> None:
    uris = "oss://models/digits-3f2a9c/model/ oss://models/digits/model/"
    assert folder_pattern("digits").sub("…", uris) == "oss://models/…/model/ oss://models/…/model/"


def test_suffixes_of_all_kinds_are_removed() -> None:
    names = ("train-lr0.1-3f2a9c", "fit_20261123_012742_023740e7", "run-202611")
    assert [without_suffix(name) for name in names] == ["train-lr0.1", "fit", "run-202611"]
