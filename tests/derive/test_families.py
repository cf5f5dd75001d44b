import pytest
from builders import requests
from hypothesis import given
from hypothesis import strategies as st
from scenes import QUIET, quiet, scene
from strategies import QUICK

from lora_watch.derive.families import families, relatives
from lora_watch.model import SECOND, Window
from lora_watch.schema import REQUESTS

MINUTES = Window(0, 600 * SECOND)


def parents(*names: str) -> dict[str, str | None]:
    return {one.name: one.parent for one in relatives(names)}


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        ("-experiment", "experiment"),
        ("_EXP3", "experiment"),
        (".canary", "experiment"),
        ("-b", "experiment"),
        ("-v2", "version"),
        ("_V2.1", "version"),
        ("@r12", "version"),
        ("-20260305", "date"),
        ("-2026-03-05", "date"),
        ("-2026", "date"),
        ("-20260305-1015", "date"),
        ("-v2-experiment", "experiment"),
        (":1a2b3c4d", "revision"),
    ],
)
def test_a_name_with_a_known_suffix_is_a_variant_of_the_name_without(suffix: str, kind: str):
    (one,) = relatives(["legal", "legal" + suffix])
    assert (one.parent, one.base, one.suffix, one.kind) == ("legal", "legal", suffix, kind)


@pytest.mark.parametrize(
    "name", ["legal-de", "legal-7", "legal-42-x", "legalexperiment", "other-experiment", "legal-", "LEGAL-v2"]
)
def test_languages_numbers_and_names_of_their_own_are_no_variants(name: str):
    assert parents("legal", name) == {}


def test_the_parent_is_the_longest_name_that_exists():
    assert parents("x", "x-v2", "x-v2-experiment") == {"x-v2": "x", "x-v2-experiment": "x-v2"}
    assert parents("x", "x-v2-experiment") == {"x-v2-experiment": "x"}


def test_siblings_without_a_parent_share_a_base():
    found = relatives(["x-v1", "x-v2", "y-v1"])
    assert [(one.name, one.parent, one.base, one.suffix) for one in found] == [
        ("x-v1", None, "x", "-v1"),
        ("x-v2", None, "x", "-v2"),
    ]


def test_an_unknown_suffix_that_three_parents_share_names_variants():
    assert parents("a", "b", "c", "a-blue", "b-blue", "c-blue") == {"a-blue": "a", "b-blue": "b", "c-blue": "c"}
    assert parents("a", "b", "a-blue", "b-blue") == {}


def test_a_shared_suffix_is_of_the_longest_parent_that_shares_it():
    names = ["a", "b", "c", "a-x", "a-x-blue", "b-x-blue", "c-x-blue", "a-blue", "b-blue", "c-blue"]
    found = {one.name: one for one in relatives([*names, "b-x", "c-x"])}
    assert (found["a-x-blue"].parent, found["a-x-blue"].kind) == ("a-x", "shared")


@pytest.mark.parametrize(
    "name", ["", "-", "--", "-experiment", "\n", "a" * 10_000, "-" * 10_000, "🦙-v2", "x\x00-v2", "' OR 1=1 --"]
)
def test_any_text_is_a_name(name: str):
    assert all(one.parent != "" for one in relatives([name, "", name + "-experiment", "plain"]))


@QUICK
@given(st.lists(st.text("abv2-_. ", max_size=12), max_size=12))
def test_a_parent_exists_begins_its_variant_and_order_does_not_matter(names: list[str]):
    found = relatives(names)
    assert found == relatives(list(reversed(names)))
    for one in found:
        assert one.parent is None or (one.parent in names and one.name == one.parent + one.suffix != one.parent)
        assert one.name.startswith(one.base)


def test_rows_say_since_when_and_how_many():
    told = requests("x:1/1/2/3 x:2/2/3/4 x-exp:5/5/6/7 y:1/1/2/3").lazy()
    (row,) = families(told, MINUTES).collect().to_dicts()
    assert (row["adapters"], row["variant"], row["parent"], row["kind"]) == (["x", "x-exp"], "x-exp", "x", "experiment")
    assert (row["start"], row["end"], row["variant_rows"], row["parent_rows"]) == (7 * SECOND, 7 * SECOND + 1, 1, 2)
    assert not row["flagged"]


def test_a_variant_without_a_row_in_the_window_has_none():
    told = requests("x:1/1/2/3 x-exp:5/5/6/7").lazy()
    assert families(told, Window(100 * SECOND, 200 * SECOND)).collect().height == 0
    assert families(REQUESTS.empty().lazy(), MINUTES).collect().height == 0


def test_pools_have_families_of_their_own():
    told = [requests("x:1/1/2/3", pool="p"), requests("x-exp:1/1/2/3", pool="q")]
    assert families(told[0].vstack(told[1]).lazy(), MINUTES).collect().height == 0


def test_the_variants_of_the_simulated_split_have_their_parents():
    played = scene("thursday", 34.0, 0.5)
    split = played.of("split")
    frame = families(played.requests, played.window).collect()
    assert sorted(frame["variant"].to_list()) == sorted(split["adapters"])
    assert frame["parent"].to_list() == [name.removesuffix("-experiment") for name in frame["variant"]]
    assert frame["start"].min() >= split["start"]


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_variants(name: str):
    played, window = quiet(name)
    assert families(played.requests, window).collect().height == 0
