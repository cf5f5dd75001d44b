"""
Sends a report: to webhooks over the HTTP door, to people by mail (SMTP). The only door to a mail server.

Addresses of webhooks and passwords are secrets: they are read when they are used and stand in no message. What goes wrong is
told by what to do about it: SourceUnavailable, try again later; SourceRejected, a person must look.
"""

import hashlib
import json
import smtplib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Protocol

from lora_watch.config import MailSettings, Settings, WebhookSettings
from lora_watch.errors import SourceError, SourceRejected, SourceUnavailable
from lora_watch.explore.markup import shown
from lora_watch.model import SECOND
from lora_watch.report.html import html
from lora_watch.report.markdown import markdown
from lora_watch.report.sections import document
from lora_watch.report.weekly import WeeklyReport
from lora_watch.report.written import FORMS
from lora_watch.sources.base import printable
from lora_watch.sources.configured import credentials_of
from lora_watch.sources.http import Credentials, HttpDoor, secret_of

PORTS = {"starttls": 587, "tls": 465, "none": 25}
SUBJECT = 150
"""Characters of a subject."""
_TRY_AGAIN = range(400, 500)
"""Answers of a mail server that are about now; from 500 on they are about the mail."""
_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "@": "＠", "[": "⟦", "]": "⟧", "`": "'", "&": "＆"})
"""What chat services read as mentions, links or code, by what looks like it."""


class Delivery(Protocol):
    """One recipient. ``key`` is by what it is remembered that a report was sent to them, ``whom`` what messages call them."""

    @property
    def key(self) -> str: ...
    @property
    def whom(self) -> str: ...
    def send(self, report: WeeklyReport) -> None: ...  # SourceError where it did not arrive


@dataclass(frozen=True, slots=True)
class Webhook:
    """Somebody who takes a POST."""

    settings: WebhookSettings
    credentials: Credentials

    @property
    def key(self) -> str:
        """By its name: its address may be replaced."""
        return f"webhook {self.settings.name}"

    @property
    def whom(self) -> str:
        """As its key."""
        return f"webhook {printable(self.settings.name)}"

    def send(self, report: WeeklyReport) -> None:
        """The whole report as JSON, or its lines as text."""
        settings = self.settings
        url = settings.url
        if url is None:
            file = None if settings.url_file is None else str(settings.url_file)
            told = secret_of(f"address of {self.whom}", settings.url_env, file)
            assert told is not None  # one of the three is named
            url = told.reveal()
        try:
            door = HttpDoor(url, self.credentials)
        except SourceRejected:  # its message may hold the address
            raise SourceRejected(f"the address of {self.whom} is none: expected https://host/path") from None
        text = FORMS["json"](report) if settings.body == "json" else json.dumps({"text": chat(report)})
        door.post(text.encode(), "application/json")


@dataclass(frozen=True, slots=True)
class Mail:
    """One person, or one list of people, by mail."""

    settings: MailSettings
    to: str

    @property
    def key(self) -> str:
        """By the address."""
        return f"mail {self.to}"

    @property
    def whom(self) -> str:
        """The address."""
        return printable(self.to)

    def send(self, report: WeeklyReport) -> None:
        """One mail, in a connection of its own."""
        settings = self.settings
        file = None if settings.password_file is None else str(settings.password_file)
        password = secret_of("password of the mail server", settings.password_env, file)
        made = message(report, settings.sender, self.to)
        doing = f"sending mail to {self.whom} through {printable(settings.host)}"
        try:
            with _connected(settings) as server:
                if settings.user is not None and password is not None:
                    server.login(settings.user, password.reveal())
                server.send_message(made, from_addr=settings.sender, to_addrs=[self.to])
        except (smtplib.SMTPException, OSError, UnicodeError, ValueError) as error:
            raise translated(error, doing) from None


def deliveries(settings: Settings) -> Iterator[Delivery]:
    """Everybody whom the configuration names."""
    for webhook in settings.report.webhooks:
        yield Webhook(webhook, credentials_of(settings, webhook.credentials))
    for server in settings.report.mail:
        for to in dict.fromkeys(server.to):
            yield Mail(server, to)


def deliver(one: Delivery, report: WeeklyReport) -> None:
    """Send it. SourceUnavailable or SourceRejected where it did not arrive, or nobody knows."""
    one.send(report)


def chat(report: WeeklyReport) -> str:
    """The five lines for a chat: no mention, no link and no code in them, whatever an adapter is called."""
    told = document(report)
    lines = [
        f"{told.title} ({told.subtitle})",
        *(f"{number}. {ask}: {text}" for number, (ask, text) in enumerate(told.lines, start=1)),
    ]
    return "\n".join(shown(line)[:1000].translate(_LOOKALIKES).replace("://", ":⁄⁄") for line in lines)


def message(report: WeeklyReport, sender: str, to: str) -> EmailMessage:
    """
    The mail: Markdown as its text, HTML without charts beside it, and the page with charts attached. Its id is the same however
    often it is sent, so that a mailbox can tell a repetition.
    """
    told = document(report)
    made = EmailMessage()
    made["Subject"] = shown(f"{told.title}: {told.lines[0][1]}")[:SUBJECT]
    made["From"], made["To"] = sender, to
    made["Date"] = formatdate(report.head.made_at / SECOND, usegmt=True)
    digest = hashlib.sha256(
        (f"{report.head.week.name} {report.head.pool} {sender} {to}").encode("utf-8", "backslashreplace")
    ).hexdigest()
    made["Message-ID"] = f"<{digest[:32]}@lora-watch.invalid>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(_sayable(markdown(report)))
    made.add_alternative(_sayable(html(report, charts=False)), subtype="html")
    made.add_attachment(_sayable(html(report)), subtype="html", filename=f"lora-watch-{report.head.week.name}.html")
    return made


def translated(error: Exception, doing: str) -> SourceError:
    """What a failed exchange with a mail server means. The server's own text is not repeated: it may hold what was sent."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        kind = SourceUnavailable if error.smtp_code in _TRY_AGAIN else SourceRejected
        return kind(f"{doing}: user or password is refused ({error.smtp_code})")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code = next((code for code, _ in error.recipients.values()), 500)
        kind = SourceUnavailable if code in _TRY_AGAIN else SourceRejected
        return kind(f"{doing}: the recipient is refused ({code})")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return SourceUnavailable(f"{doing}: the server hung up, or did not answer in time")
    if isinstance(error, smtplib.SMTPResponseException):
        kind = SourceUnavailable if error.smtp_code in _TRY_AGAIN or error.smtp_code < 0 else SourceRejected
        return kind(f"{doing}: the server answers {error.smtp_code}")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return SourceRejected(
            f"{doing}: the server lacks what is asked for (STARTTLS, sign-in or other scripts); check tls and port"
        )
    if isinstance(error, ssl.SSLError):
        return SourceRejected(f"{doing}: TLS failed ({error.reason or type(error).__name__}); check tls, port and ca_file")
    if isinstance(error, OSError):
        return SourceUnavailable(
            f"{doing}: no connection ({error.strerror or type(error).__name__}); is the host up and the port right?"
        )
    return SourceRejected(f"{doing}: the mail could not be made or sent ({type(error).__name__})")


def _connected(settings: MailSettings) -> smtplib.SMTP:
    """A connection that is encrypted as the settings ask."""
    port = settings.port or PORTS[settings.tls]
    seconds = settings.timeout.total_seconds()
    name = socket.gethostname() or "localhost"
    if settings.tls == "none":
        return smtplib.SMTP(settings.host, port, local_hostname=name, timeout=seconds)
    context = _trusting(settings)
    if settings.tls == "tls":
        return smtplib.SMTP_SSL(settings.host, port, local_hostname=name, timeout=seconds, context=context)
    server = smtplib.SMTP(settings.host, port, local_hostname=name, timeout=seconds)
    try:
        server.starttls(context=context)
    except BaseException:
        server.close()
        raise
    return server


def _trusting(settings: MailSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SourceRejected(f"CA file {printable(str(settings.ca_file))} cannot be used: {type(error).__name__}") from None


def _sayable(text: str) -> str:
    """Text that can be encoded: half characters become their escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
