"""HTML that nothing can escape from."""

from html.parser import HTMLParser

from diagnose.told import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.explore.markup import LONGEST, badge, name, shown, tag, together


class Read(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_any_text_is_text_in_an_element(text: str):
    read = Read(tag("p", text, title=text))
    assert read.tags == [("p", [("title", shown(text))])]
    assert read.text == shown(text)


def test_hostile_names_stay_names():
    for text in HOSTILE:
        assert [element for element, _ in Read(tag("div", name(text))).tags] == ["div", "span"]


def test_elements_nest_and_lists_are_put_behind_one_another():
    assert tag("ul", (tag("li", word) for word in ("a", "<"))) == "<ul><li>a</li><li>&lt;</li></ul>"
    assert together("a", tag("br"), "b") == "a<br>b"


def test_an_attribute_that_is_none_is_left_out():
    assert tag("a", "x", href=None, data_at=3) == '<a data-at="3">x</a>'


def test_a_long_name_is_cut_and_whole_in_its_title():
    told = Read(name("n" * 300))
    assert len(told.text) == LONGEST
    assert told.tags[0][1][1] == ("title", "n" * 300)


def test_nothing_known_has_no_badge():
    assert badge(None) == ""
    assert "observed" in badge("observed")
