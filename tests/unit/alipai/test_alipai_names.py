"""Every public name of alipai is here, or has a word that says what replaces it: docs/alipai-names.md."""

from __future__ import annotations

from pai_sdk.alipai.migration import migrate_source
from pai_sdk.alipai.replacements import ABSENT, CALLED_OTHERWISE, INSTEAD, instead_of, key_of
from tests.unit.alipai.alipai_table import NAMES, PAGE, PRESENT, compare, new_page


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
