import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lora_watch.derive.expected import Expected, announced, append, parse
from lora_watch.errors import ConfigError
from lora_watch.model import HOUR, MINUTE, SECOND

FILE = """\
# announced by the search team
- start: 2026-03-05T10:00:00Z   # a Thursday
  end: 2026-03-05T19:00:00+01:00
  adapters: ["*-experiment", legal-v3]
  note: prompt styles
"""
TEN = 1_772_704_800 * SECOND
"""2026-03-05 10:00 UTC."""


def test_an_entry_names_adapters_for_a_half_open_span():
    (one,) = parse(FILE)
    assert one.note == "prompt styles"
    assert [one.matches("a-experiment", at) for at in (TEN - 1, TEN, TEN + 8 * HOUR - 1, TEN + 8 * HOUR)] == [
        False,
        True,
        True,
        False,
    ]
    assert (one.matches("legal-v3", TEN), one.matches("Legal-v3", TEN), one.matches("legal-v30", TEN)) == (True, False, False)


def test_the_first_entry_that_names_it_announces_it():
    entries = parse(FILE + "- {start: 2026-03-05T10:00Z, end: 2026-03-05T11:00Z, adapters: 'leg*'}\n")
    assert announced(entries, "legal-v3", TEN) is entries[0]
    assert announced(entries, "legend", TEN + MINUTE) is entries[1]
    assert announced(entries, "other", TEN) is None


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]"])
def test_an_empty_file_announces_nothing(text: str):
    assert parse(text) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not YAML"),
        ("start: 1", "a list of entries"),
        ("- 3", "entry 1, as a whole"),
        ("- {start: 2026-03-05T10:00, end: 2026-03-05T12:00Z, adapters: [a]}", "entry 1, start: Input should have timezone info"),
        (
            "- {start: 1772704800, end: 2026-03-05T12:00Z, adapters: [a]}",
            "write a time like 2026-03-05T10:00:00Z, not 1772704800",
        ),
        ("- {start: 2026-03-05T10:00Z, end: 2026-03-05T09:00Z, adapters: [a]}", "ends at 2026-03-05T09:00:00"),
        ("- {start: 2026-03-05T10:00Z, end: 2026-03-05T12:00Z, adapters: []}", "entry 1, adapters"),
        ("- {start: 2026-03-05T10:00Z, end: 2026-03-05T12:00Z, adapters: ['']}", "entry 1, adapters.0"),
        ("- {start: 2026-03-05T10:00Z, end: 2026-03-05T12:00Z, adapters: [a], until: x}", "entry 1, until"),
        (FILE + "- {end: 2026-03-05T12:00Z, adapters: [a]}", "entry 2, start"),
    ],
)
def test_what_is_wrong_is_said_with_its_entry_and_key(text: str, said: str):
    with pytest.raises(ConfigError, match=r"plans\.yaml") as raised:
        parse(text, "plans.yaml")
    assert said in str(raised.value)


def test_every_wrong_entry_is_said_at_once():
    with pytest.raises(ConfigError) as raised:
        parse("- 1\n- 2\n")
    assert "entry 1" in str(raised.value)
    assert "entry 2" in str(raised.value)


def test_an_appended_entry_leaves_what_stands_there_as_it_is():
    (one,) = parse(FILE)
    added = append(FILE, one)
    assert added.startswith(FILE)
    assert parse(added) == (one, one)


@pytest.mark.parametrize("text", ["", "[]\n", "# nothing yet", FILE.rstrip("\n")])
def test_it_can_be_appended_to_an_empty_file_and_to_one_without_a_last_newline(text: str):
    (one,) = parse(FILE)
    assert parse(append(text, one)) == (*parse(text), one)


def test_a_list_in_brackets_cannot_be_appended_to():
    (one,) = parse(FILE)
    with pytest.raises(ConfigError, match="one entry after the other"):
        append("[{start: 2026-03-05T10:00Z, end: 2026-03-05T11:00Z, adapters: [a]}]", one)


def test_a_wrong_file_is_not_made_longer():
    with pytest.raises(ConfigError, match="entry 1"):
        append("- 3", parse(FILE)[0])


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3), st.text())
@example(["a\x85b"], "\x85")
def test_any_name_and_note_come_back_as_they_went_in(adapters: list[str], note: str):
    entry = Expected.model_validate(
        {"start": "2026-03-05T10:00:00.000001Z", "end": "2026-03-05T12:00Z", "adapters": adapters, "note": note}
    )
    assert parse(append(FILE, entry))[1] == entry


@pytest.mark.parametrize("value", ['!!int "x"', '!!float "x"', '!!bool "x"', '!!timestamp "x"', "9" * 5000])
def test_a_value_that_its_tag_does_not_fit_is_said(value: str):
    with pytest.raises(ConfigError, match="not YAML"):
        parse(f"- {{start: {value}}}")


def test_a_moment_that_utc_has_no_year_for_is_said():
    with pytest.raises(ConfigError, match="start is not within the years"):
        parse('- {start: "0001-01-01T00:00:00+14:00", end: "2026-03-05T10:00Z", adapters: [a]}')
