"""Rows about the same thing become one."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.heads import QUIET, flagged, head, known, names, together


def test_rows_that_did_not_pass_their_test_are_left_out_and_the_rest_is_in_order():
    rows = found("scans", {"start": 5}, {"start": 3}, {"start": 4, "flagged": False})
    assert flagged(rows)["start"].to_list() == [3, 5]


def test_rows_are_put_together_by_pool_and_by_what_is_asked_for():
    rows = found(
        "phantoms", {"kind": "x", "start": 2}, {"kind": "x", "start": 1}, {"kind": "y"}, {"kind": "x", "role": "prefill"}
    )
    assert sorted([row["start"] for row in group] for group in together(rows.filter(rows["kind"] == "x"), ["kind"])) == [
        [1, 2],
        [WINDOW.end - 300_000_000],
    ]


def test_pools_without_a_name_are_pools_too():
    (group,) = together(found("scans", {"pool": None, "role": None}, {"pool": None, "role": None}), [])
    told = head(group, WINDOW)
    assert (told["pool"], told["role"]) == ("", "")


def test_a_head_spans_its_rows():
    (group,) = together(found("scans", {"start": 1, "end": 9}, {"start": 4, "end": WINDOW.end}), [])
    told = head(group, WINDOW)
    assert (told["since"], told["until"]) == (1, None)


def test_what_has_been_quiet_for_long_enough_is_over():
    for end, until in ((WINDOW.end - QUIET, None), (WINDOW.end - QUIET - 1, WINDOW.end - QUIET - 1)):
        assert head(found("scans", {"end": end}).to_dicts(), WINDOW)["until"] == until


def test_names_are_told_once_in_the_order_they_came():
    rows = found("scans", {"adapters": ["b", "a"]}, {"adapters": ["a", "c"]}).to_dicts()
    assert names(rows, "adapters") == ("b", "a", "c")


def test_rows_are_known_as_well_as_the_worst_of_them():
    assert known(found("scans", {}, {"provenance": "activity"}).to_dicts()) == "activity"
    assert known(found("scans", {"provenance": None}).to_dicts()) == "inferred"
