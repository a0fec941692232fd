"""Every public name of alipai is here, or has a word that says what replaces it: docs/alipai-names.md."""

from __future__ import annotations

import re

import pytest
from pai_sdk.huggingface import HuggingFaceEstimator
from pai_sdk.modelscope import ModelScopeEstimator

from pai_sdk import Estimator, ModelRecipe
from pai_sdk.alipai.migration import migrate_source
from pai_sdk.alipai.replacements import ABSENT, CALLED_OTHERWISE, INSTEAD, instead_of, key_of
from pai_sdk.errors import InvalidInputError, WrongCallError
from tests.support.messages import refused
from tests.unit.alipai.alipai_table import NAMES, PAGE, PRESENT, compare, differing_positions, new_page


def test_no_name_is_absent_without_a_word() -> None:
    compared = list(compare())
    assert len(compared) > 500
    assert [f"{one.module}.{one.name}" for one in compared if not one.word] == []


def test_the_page_lists_all_names() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == new_page(page), "docs/alipai-names.md is stale: run  python -m tests.unit.alipai.alipai_table"


def test_each_replacement_is_of_a_name_that_alipai_has_and_pai_sdk_has_not() -> None:
    used = {key_of(f"{one.module}.{one.name}".rstrip(".")) for one in compare() if one.word != PRESENT}
    # Stand-in classes have texts of their own.
    own = ("pai.huggingface", "pai.modelscope", "pai.model.")
    assert {key for key in {*INSTEAD, *ABSENT} - used if not key.startswith(own)} == set()
    assert not INSTEAD.keys() & ABSENT.keys()


def test_the_migration_lists_exactly_the_names_that_are_not_present() -> None:
    words = {f"{one.module}.{one.name}": one.word for one in compare() if one.name and "(" not in one.name}
    for module, names in NAMES.items():
        for name in names:
            found = migrate_source(f"from {module} import {name}\n").findings
            word = words[f"{module}.{name}"]
            instead = [] if word == PRESENT else [word.partition(": ")[2]]
            if f"{module}.{name}" in CALLED_OTHERWISE:
                instead = [instead_of(f"{module}.{name}")]
            assert [one.instead for one in found] == instead, module


def test_only_what_is_not_here_has_a_replacement() -> None:
    assert instead_of("pai.common.utils.parse_oss_uri") == "OssUriObj(uri) of pai_sdk.common.oss_utils"
    assert instead_of("pai.estimator.Estimator") == ""


DIFFERENCES = PAGE.with_name("alipai-differences.md")
# The folder and the name may be in either order; `fit` of the base class is abstract in alipai.
WORK_BY_POSITION = {"Experiment.create", "EstimatorBase.fit"}


def documented_by_position() -> set[str]:
    """The calls of the page of differences; of constructors that users do not call, those of the page of names."""
    rows = [row.partition(" | ")[0] for row in DIFFERENCES.read_text(encoding="utf-8").splitlines()]
    words = {word for row in rows if "position" in row or ".wait(5)" in row for word in re.findall(r"[\w.]+", row)}
    objects = {
        "model": ("RegisteredModel",),
        "job": ("TrainingJob",),
        "estimator": ("EstimatorBase", "ModelRecipe"),
    }
    methods = [(owner, word.partition(".")[2]) for word in words for owner in objects.get(word.split(".")[0], ())]
    keys = [*CALLED_OTHERWISE, *(key.rstrip("(") for key in (*INSTEAD, *ABSENT) if key.endswith("("))]
    return words | {f"{owner}.{method}" for owner, method in methods} | {key.rpartition(".")[2] for key in keys}


def test_values_by_position_mean_the_same_or_are_a_documented_difference() -> None:
    differing = {call for call, _, _ in differing_positions()}
    assert len(differing) > 15
    assert differing - documented_by_position() - WORK_BY_POSITION == set()


def test_a_value_at_the_position_of_another_parameter_is_refused() -> None:
    with refused(InvalidInputError, "method"):
        ModelRecipe(None, None, None, "oss://b/m/", "evaluation")
    for kind in (HuggingFaceEstimator, ModelScopeEstimator):
        with pytest.raises(WrongCallError) as caught:
            kind("python train.py", "src", None, "img")
        assert [each.where for each in caught.value.problems] == [f"{kind.__name__}()"]
    with pytest.raises(WrongCallError):
        Estimator("img", "true", None, None, "PyTorchJob", {}, {"A": "b"})  # type: ignore[misc]
