"""The language of the package: names from the glossary, docstrings that stand alone."""

from __future__ import annotations

from pathlib import Path

from tests.support.measuring import ROOT, measure

PUBLIC = "users' code has this name"
API = "a field or parameter of the HTTP API, or of a file"
TERM = "a term of the field, or of a library"
# Names with an everyday word that stay, each with its reason. An entry that nothing defines is an error too.
ALLOWED = {
    "EngineNotFoundError": TERM,
    "NOT_FOUND": TERM,
    "NotFoundError": TERM,
    "ObjectNotFoundError": TERM,
    "REASON_COMMAND_NOT_FOUND": TERM,
    "RunNotFoundError": TERM,
    "_left_behind": PUBLIC,
    "_not_found": TERM,
    "begin": "detached actors of Ray, which outlive an upgrade, are called by this name",
    "begin_auth": TERM,
    "begin_transaction": TERM,
    "connection_made": TERM,
    "facts": PUBLIC,
    "get_own_quota": API,
    "get_piece": PUBLIC,
    "has_given_study": PUBLIC,
    "held": PUBLIC,
    "job_not_found": TERM,
    "kept_for": API,
    "known": API,
    "left": "the left side of a comparison, the left edge of a plot",
    "left_behind": PUBLIC,
    "left_edge": TERM,
    "left_out": PUBLIC,
    "longest_pause_s": PUBLIC,
    "look": "detached actors of Ray, which outlive an upgrade, are called by this name",
    "made_at": API,
    "made_for": API,
    "most": PUBLIC,
    "not_listed": PUBLIC,
    "own_quota": PUBLIC,
    "passed_over": PUBLIC,
    "place": PUBLIC,
    "queue_place": API,
    "show_own": API,
    "shown": API,
    "tell": "the position of a file",
    "texts": PUBLIC,
    "wanted": PUBLIC,
    "what": PUBLIC,
    "why_not_all": PUBLIC,
}


def test_names_come_from_the_glossary() -> None:
    sites = measure.glossary_sites(measure.modules(ROOT / "pai_sdk"))
    assert [f"{site.path}:{site.line} {site.name}" for site in sites if site.name not in ALLOWED] == []
    assert {site.name for site in sites} == set(ALLOWED)


def test_docstrings_do_not_refer_back() -> None:
    assert measure.back_references(measure.modules(ROOT / "pai_sdk")) == []


def test_the_measure_sees_each_kind_of_name(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""The same."""\n'
        "TAKEN = 1\n"
        "class Held:\n"
        "    kept: int\n"
        "    def told(self, what):\n"
        "        found = self.seen = what\n"
        "    def tell_row(self, rows): ...\n"
    )
    found = [(site.kind, site.name) for site in measure.glossary_sites([module])]
    assert found == [
        ("constant", "TAKEN"),
        ("class", "Held"),
        ("field", "kept"),
        ("method", "told"),
        ("parameter", "what"),
        ("local", "found"),
        ("attribute", "seen"),
        ("method", "tell_row"),
    ]
    assert [text for _, text in measure.documented(module)] == ["The same."]


def test_imports_are_measured_in_places() -> None:
    edges = {"cli": {"api", "errors"}, "api": {"base"}, "base": {"errors"}}
    assert measure.depth_and_circles(edges) == (4, [])
    assert measure.depth_and_circles({**edges, "base": {"api"}}) == (1, ["api", "base", "cli"])


def test_public_modules_are_the_doors() -> None:
    page = "| `pai_sdk` | jobs |\n| `pai_sdk.runs` | runs |\n\n## For alipai\n\n| `pai_sdk.estimator` |\n"
    assert measure.public_modules(page) == ["pai_sdk", "pai_sdk.runs"]
    public = measure.public_modules((ROOT / "docs" / "reference" / "public.md").read_text(encoding="utf-8"))
    assert len(public) <= 18
