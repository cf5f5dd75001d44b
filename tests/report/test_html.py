"""The page: nothing to fetch, no script, every text inert, tables and charts that can be read aloud."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.examples import HOSTILE, START, empty, hostile, report

from lora_watch.model import DAY, HOUR, Window
from lora_watch.report.blocks import Course, Estimates, Line, Mark
from lora_watch.report.html import POLICY, html
from lora_watch.report.svg import course, estimates

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "p", "dl", "div", "dt", "dd", "nav", "a"),
    *("section", "ul", "li", "figure", "figcaption", "svg", "desc", "rect", "line", "text", "polyline", "polygon", "circle"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "span", "i", "footer"),
}
VOID = {"meta"}


class Read(HTMLParser):
    """Elements with their attributes, the text, and whether they nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@pytest.mark.parametrize("made", [report, empty, hostile])
def test_a_page_holds_only_elements_of_ours_no_script_and_no_address_to_fetch(made):
    read = Read(html(made()))
    assert read.open == []
    assert {tag for tag, _ in read.elements} <= ELEMENTS
    for tag, attributes in read.elements:
        assert not any(name.startswith("on") or name in {"src", "xlink:href", "srcset"} for name in attributes), (tag, attributes)
        if "href" in attributes:
            assert (attributes["href"] or "").startswith("#")


def test_style_and_policy_name_no_address():
    page = html(hostile())
    policies = [one for tag, one in Read(page).elements if tag == "meta" and "http-equiv" in one]
    assert [one["content"] for one in policies] == [POLICY]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|https?:", style[1])


def test_every_name_is_on_the_page_as_text():
    said = "".join(Read(html(hostile())).said)
    for name in HOSTILE[:3]:
        assert name in said
    assert "two\\r\\nBcc: victim@example.com" in said
    assert "\\u202egnp.exe" in said
    assert "مرحبا-v2" in said


def test_a_page_of_hostile_names_is_small_enough_for_mail():
    assert len(html(report()).encode()) < 100_000
    assert len(html(hostile()).encode()) < 1_000_000


def test_a_link_to_each_section_leads_somewhere():
    read = Read(html(report()))
    ids = {attributes["id"] for _, attributes in read.elements if "id" in attributes}
    links = {(attributes["href"] or "")[1:] for tag, attributes in read.elements if tag == "a"}
    assert links
    assert links <= ids


def test_tables_have_captions_and_scopes_and_charts_say_what_they_show():
    read = Read(html(report()))
    tags = [tag for tag, _ in read.elements]
    assert tags.count("table") == tags.count("caption") > 5
    assert all("scope" in attributes for tag, attributes in read.elements if tag == "th")
    charts = [attributes for tag, attributes in read.elements if tag == "svg"]
    assert len(charts) == 4
    assert all(one["role"] == "img" and one["aria-label"] for one in charts)


def test_for_mail_the_page_has_no_charts_and_the_same_tables():
    page = html(report(), charts=False)
    assert "<svg" not in page
    assert page.count("<table") == html(report()).count("<table")


WEEK = Window(START, START + 7 * DAY)


@given(st.lists(st.tuples(st.integers(0, 167), st.none() | st.floats(allow_nan=False, min_value=0, max_value=1e12)), max_size=30))
def test_a_course_of_any_values_stays_within_its_frame(points):
    made = tuple((START + hour * HOUR, value) for hour, value in sorted(dict(points).items()))
    drawn = course(Course("t", "a", WEEK, WEEK, (Line("x", made),)))
    height = float(re.search(r'viewBox="0 0 1000 (\d+)"', drawn)[1])  # type: ignore[index]
    for pairs in re.findall(r'points="([^"]*)"', drawn):
        for pair in pairs.split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 1000
            assert 0 <= y <= height


shares = st.none() | st.floats(-5, 1)


@given(st.lists(st.tuples(st.text(max_size=80), shares, shares, shares), min_size=1, max_size=8))
def test_estimates_of_any_values_stay_within_their_frame(marks):
    drawn = estimates(Estimates("t", "a", tuple(Mark(*one) for one in marks)))
    for x in re.findall(r'\b(?:x1|x2|cx|x)="([^"]*)"', drawn):
        assert 0 <= float(x) <= 1000
    Read(f"<main>{drawn}</main>")


def test_hours_that_are_missing_break_the_line():
    made = tuple((START + hour * HOUR, 1.0) for hour in (0, 1, 5, 6))
    drawn = course(Course("t", "a", WEEK, WEEK, (Line("x", made),)))
    assert drawn.count("<polyline") == 2


def test_what_is_not_held_is_said_in_the_chart():
    drawn = course(Course("t", "a", WEEK, Window(START + 3 * DAY, START + 7 * DAY), (Line("x", ()),)))
    assert "nothing is held" in drawn
    assert "unknown" in drawn
