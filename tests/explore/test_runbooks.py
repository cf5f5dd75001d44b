"""Runbooks come along."""

import pytest

from lora_watch.explore.runbooks import runbook


def test_the_runbook_of_a_kind_is_read():
    assert (runbook("thrash") or "").startswith("# thrash")


@pytest.mark.parametrize("kind", ["no-such-kind", "../../pyproject", "", "a/b", "<b>"])
def test_there_is_none_of_any_other_name(kind: str):
    assert runbook(kind) is None
