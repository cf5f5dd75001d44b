"""Reports that are sent: over real sockets, with names that attack mail and chat, and failures told by what to do about them."""

import json
import socket
from dataclasses import replace
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from report.conftest import Mailbox, Posted, Start
from report.examples import HOSTILE, hostile, report

from lora_watch.config import Settings, parse
from lora_watch.errors import ConfigError, SourceError, SourceRejected, SourceUnavailable
from lora_watch.report.send import Mail, chat, deliver, deliveries, message

SENDER, TO = "watch@example.com", "team@example.com"


def named(**parts: Any) -> Settings:
    """A configuration with this part ``report``."""
    return parse(json.dumps({"report": parts, "credentials": {"token": {"bearer_env": "REPORT_TOKEN"}}}))


def mail(box: Mailbox, **options: Any) -> Mail:
    """One recipient at that server."""
    told = {"host": "127.0.0.1", "port": box.port, "tls": "none", "sender": SENDER, "to": [TO], "timeout": "5s", **options}
    (found,) = deliveries(named(mail=[told]))
    assert isinstance(found, Mail)
    return found


def posted(hook: Posted, **options: Any):
    (found,) = deliveries(named(webhooks=[{"name": "ops", "url": hook.url, **options}]))
    return found


def test_a_webhook_gets_the_whole_report_with_its_credentials(webhook: Posted, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REPORT_TOKEN", "s3cret")
    deliver(posted(webhook, credentials="token"), report())
    assert webhook.paths == ["/services/T0/very-secret"]
    assert json.loads(webhook.bodies[0])["head"]["week"]["name"] == "2026-W10"
    assert webhook.sent_headers[0]["authorization"] == "Bearer s3cret"
    assert webhook.sent_headers[0]["content-type"] == "application/json"


def test_a_chat_gets_five_lines_in_which_no_name_mentions_or_links_anybody(webhook: Posted):
    deliver(posted(webhook, body="text"), hostile())
    told = json.loads(webhook.bodies[0])
    assert list(told) == ["text"]
    assert len(told["text"].split("\n")) == 6
    assert not any(sign in told["text"] for sign in ("<", ">", "@", "](", "://", "\r", "`", "\u202e"))


def test_an_address_in_the_environment_is_read_when_it_is_used(webhook: Posted, monkeypatch: pytest.MonkeyPatch):
    (one,) = deliveries(named(webhooks=[{"name": "ops", "url_env": "OPS_WEBHOOK"}]))
    with pytest.raises(SourceRejected, match="'OPS_WEBHOOK' is not set"):
        deliver(one, report())
    monkeypatch.setenv("OPS_WEBHOOK", webhook.url)
    deliver(one, report())
    assert len(webhook.bodies) == 1


@pytest.mark.parametrize(
    ("status", "error"), [(500, SourceUnavailable), (429, SourceUnavailable), (403, SourceRejected), (404, SourceRejected)]
)
def test_what_a_webhook_answers_says_whether_to_try_again_and_never_shows_its_address(
    status: int, error: type[SourceError], webhook: Posted
):
    webhook.status = status
    with pytest.raises(error) as caught:
        deliver(posted(webhook), report())
    assert "very-secret" not in str(caught.value)


def test_a_redirect_and_a_sign_in_page_mean_that_it_did_not_arrive(webhook: Posted):
    webhook.status, webhook.headers = 302, {"Location": "http://127.0.0.1:1/elsewhere"}
    with pytest.raises(SourceRejected, match="redirected"):
        deliver(posted(webhook), report())
    webhook.status, webhook.headers, webhook.answer = 200, {"Content-Type": "text/html"}, b"<html>sign in</html>"
    with pytest.raises(SourceRejected, match="HTML page"):
        deliver(posted(webhook), report())


def test_nobody_who_listens_is_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(SourceUnavailable, match="no connection"):
        deliver(posted(Posted(f"http://127.0.0.1:{port}/secret")), report())
    with pytest.raises(SourceUnavailable, match="no connection"):
        deliver(mail(Mailbox(port)), report())


def test_a_bad_address_of_a_webhook_is_not_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPS_WEBHOOK", "not-an-address-but-secret")
    (one,) = deliveries(named(webhooks=[{"name": "ops", "url_env": "OPS_WEBHOOK"}]))
    with pytest.raises(SourceRejected) as caught:
        deliver(one, report())
    assert "secret" not in str(caught.value)


def test_a_mail_has_text_a_page_without_charts_and_the_page_attached(mail_server: Start):
    box = mail_server()
    deliver(mail(box), report())
    ((to, raw),) = box.mails
    made = message_from_bytes(raw, policy=policy.default)
    assert (to, made["From"], made["To"]) == (TO, SENDER, TO)
    assert made["Subject"].startswith("LoRA adapters, week 2026-W10: 1 incident, 2 h 00 min of harm")
    kinds = [(part.get_content_type(), part.get_filename()) for part in made.walk() if not part.is_multipart()]
    assert kinds == [("text/plain", None), ("text/html", None), ("text/html", "lora-watch-2026-W10.html")]
    text = made.get_body(("plain",))
    assert text is not None
    assert text.get_content().startswith("# LoRA adapters, week 2026-W10")


def test_no_name_adds_a_header_or_a_recipient(mail_server: Start):
    told = hostile()
    box = mail_server()
    deliver(mail(box), replace(told, summary=(HOSTILE[3], *told.summary[1:])))
    ((to, raw),) = box.mails
    made = message_from_bytes(raw, policy=policy.default)
    assert to == TO
    assert made["Bcc"] is None
    assert "\\r\\nBcc: victim@example.com" in made["Subject"]
    assert len(made["Subject"]) <= 150


def test_the_same_mail_has_the_same_id_and_the_next_weeks_another():
    assert message(report(), SENDER, TO)["Message-ID"] == message(report(), SENDER, TO)["Message-ID"]
    assert message(report(), SENDER, TO)["Message-ID"] != message(report(), SENDER, "other@example.com")["Message-ID"]


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_a_mail_goes_over_tls_and_signs_in(
    tls: str, mail_server: Start, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MAIL_PASSWORD", "password")
    box = mail_server(tls=tls == "tls", password="password")
    secure = {"tls": tls, "ca_file": str(certificate[0]), "user": "watch", "password_env": "MAIL_PASSWORD"}
    deliver(mail(box, **secure), report())
    assert box.encrypted == [True]
    assert box.signed_in == ["watch"]


def test_a_wrong_password_is_rejected_and_never_shown(
    mail_server: Start, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MAIL_PASSWORD", "hunter2")
    box = mail_server(password="another")
    with pytest.raises(SourceRejected, match="user or password is refused") as caught:
        deliver(mail(box, tls="starttls", ca_file=str(certificate[0]), user="watch", password_env="MAIL_PASSWORD"), report())
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_server_that_nobody_vouches_for_and_one_without_starttls_get_no_mail(mail_server: Start):
    box = mail_server()
    with pytest.raises(SourceRejected, match="TLS failed"):
        deliver(mail(box, tls="starttls"), report())
    plain = mail_server(starttls=False)
    with pytest.raises(SourceRejected, match="STARTTLS"):
        deliver(mail(plain, tls="starttls"), report())
    assert box.mails + plain.mails == []


@pytest.mark.parametrize(("code", "error"), [(450, SourceUnavailable), (550, SourceRejected)])
def test_a_refused_recipient_is_tried_again_only_if_the_server_says_later(
    code: int, error: type[SourceError], mail_server: Start
):
    box = mail_server(refused={TO: code})
    with pytest.raises(error, match=str(code)):
        deliver(mail(box), report())


def test_a_server_that_is_busy_is_tried_again(mail_server: Start):
    with pytest.raises(SourceUnavailable, match="421"):
        deliver(mail(mail_server(greeting="421 later")), report())


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"webhooks": [{"name": "a"}]}, "one of url, url_env, url_file"),
        ({"webhooks": [{"name": "a", "url": "http://x/"}, {"name": "a", "url": "http://y/"}]}, "stands there twice"),
        ({"webhooks": [{"name": "a", "url": "http://x/", "credentials": "no"}]}, "which `credentials` lacks"),
        ({"mail": [{"host": "h", "sender": SENDER, "to": ["two@example.com\nBcc: x@example.com"]}]}, "no address of mail"),
        ({"mail": [{"host": "h", "sender": SENDER, "to": [TO], "user": "u"}]}, "give user and one of"),
        (
            {"mail": [{"host": "h", "sender": SENDER, "to": [TO], "tls": "none", "user": "u", "password_env": "P"}]},
            "encrypted connection only",
        ),
        ({"hour": 24}, "less than or equal to 23"),
    ],
)
def test_a_configuration_that_sends_nowhere_or_in_the_clear_is_refused(part: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told):
        named(**part)


def test_a_chat_says_what_the_summary_says():
    told = report()
    lines = chat(told).split("\n")
    assert lines[4] == f"4. What to do: {told.summary[3]}"
