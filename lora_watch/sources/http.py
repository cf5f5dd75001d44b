"""
The only door for HTTP, GET and POST: credentials that never show, limits on time and size, failures told apart by what to do
about them.

What it refuses, besides bad statuses: answers that trickle past a total deadline, bodies above a size, bodies cut short, HTML
where data was expected (a sign-in page), and redirects to another host (credentials never travel there). Proxies and ``.netrc``
of the environment are not used: what is read is next door, and a token must not go where a variable points.
"""

import os
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from lora_watch.errors import SourceError, SourceRejected, SourceUnavailable
from lora_watch.sources.base import printable

MEBIBYTE = 1 << 20
_CHUNK = 1 << 16
_REDIRECTS = 3  # on one host: http → https, a missing slash; more is a loop
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HTML = re.compile(rb"\s*(?:<!doctype\s+html|<html|<head|<body)", re.IGNORECASE)


class Secret:
    """A text that is never shown: ``repr``, ``str`` and formatting give ``***``; ``reveal`` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself: for a header about to be sent, and nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not serialised")


@dataclass(frozen=True, slots=True)
class Credentials:
    """
    Where to find what a server asks for; never the secrets themselves, which are read at each use so that rotation just works.

    ``bearer_env``/``bearer_file``: an environment variable or a file with a token. ``basic_user`` with
    ``basic_password_env``/``basic_password_file``: basic authentication. ``ca_file``: trust these authorities instead of the
    public ones. ``cert_file``/``key_file``: a client certificate. ``verify=False`` accepts any certificate: only ever by choice.
    ``headers``: more headers, in which ``${NAME}`` is the environment variable NAME.
    """

    bearer_env: str | None = None
    bearer_file: str | None = None
    basic_user: str | None = None
    basic_password_env: str | None = None
    basic_password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def secret_headers(self) -> dict[str, Secret]:
        """
        The headers to send, read now.

        A variable that is not set, a file that can't be read or a value with control characters raises SourceRejected, naming the
        place and never the value.
        """
        headers = {name: Secret(_expand(text)) for name, text in self.headers.items()}
        token = secret_of("bearer token", self.bearer_env, self.bearer_file)
        password = secret_of("basic password", self.basic_password_env, self.basic_password_file)
        if token is not None:
            headers["Authorization"] = Secret(f"Bearer {token.reveal()}")
        elif self.basic_user is not None:
            pair = f"{self.basic_user}:{password.reveal() if password else ''}"
            headers["Authorization"] = Secret(f"Basic {b64encode(pair.encode()).decode()}")
        for name, secret in headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise SourceRejected(f"{printable(name)} is not the name of a header")
            if re.search(r"[\x00-\x1f\x7f]", secret.reveal()):
                raise SourceRejected(f"the secret for header {name} has a line break or control character: check what was stored")
        return headers

    def apply(self, session: requests.Session) -> None:
        """Set verification and the client certificate on ``session``; a file that is missing raises SourceRejected."""
        for what, path in (("CA file", self.ca_file), ("client certificate", self.cert_file), ("client key", self.key_file)):
            if path is not None and not Path(path).is_file():
                raise SourceRejected(f"{what} {printable(path)} does not exist")
        session.verify = (self.ca_file or True) if self.verify else False
        if self.cert_file is not None:
            session.cert = (self.cert_file, self.key_file) if self.key_file is not None else self.cert_file


NO_CREDENTIALS = Credentials()


def secret_of(what: str, variable: str | None, path: str | None) -> Secret | None:
    """The secret named by a variable or a file, read now; None where neither is named."""
    if variable is not None:
        if variable not in os.environ:
            raise SourceRejected(f"{what}: environment variable {printable(variable)} is not set")
        return Secret(os.environ[variable].strip())
    if path is not None:
        try:
            return Secret(Path(path).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise SourceRejected(f"{what}: file {printable(path)} cannot be read: {type(error).__name__}") from None
    return None


def _expand(text: str) -> str:
    """``text`` with each ``${NAME}`` replaced by that environment variable."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SourceRejected(f"a header needs environment variable {match[1]}, which is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def clean_url(url: str) -> str:
    """
    The URL if it can be read from; SourceRejected if not: another scheme, no host, a bad port, or a user name and password in it.

    The message never repeats what stands before an ``@``.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SourceRejected("a URL is malformed: expected http://host:port/path") from None
    if "@" in parts.netloc:
        raise SourceRejected(
            f"the URL of host {printable(parts.hostname or '')} holds a user or password: put them in credentials"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise SourceRejected(f"{printable(url)} is not a URL to read from: expected http://host:port/path")
    return url


def shown(url: str) -> str:
    """The URL as it may stand in a message: without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class DeadlineAdapter(HTTPAdapter):
    """A transport that keeps hold of its sockets, so that ``cut`` can end every read that is still waiting on them."""

    def __init__(self, **options: Any) -> None:
        self._sockets: list[socket.socket] = []
        self._over = threading.Event()
        super().__init__(**options)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """As the parent does, with connections that report their sockets."""
        super().init_poolmanager(*args, **kwargs)
        hold = self._hold

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class SecureConnection(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                plain = super()._new_conn()
                hold(plain)  # until TLS is up
                return plain

            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = SecureConnection

        self.poolmanager.pool_classes_by_scheme = {"http": Pool, "https": SecurePool}

    def _hold(self, opened: socket.socket) -> None:
        self._sockets.append(opened)
        if self._over.is_set():  # a retry after the end
            self.cut()

    def cut(self) -> None:
        """Shut every open socket: a read that waits returns at once, as if the server had hung up."""
        for open_socket in self._sockets:
            with suppress(OSError):
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)  # the plain one: TLS state belongs to the reading thread

    @contextmanager
    def within(self, seconds: float) -> Iterator[Callable[[], bool]]:
        """A span of at most ``seconds``; yields a function that says whether it ran out."""
        del self._sockets[:-8]  # a kept connection is among the last few
        self._over.clear()

        def end() -> None:
            self._over.set()
            self.cut()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield self._over.is_set
        finally:
            timer.cancel()


def translate(error: Exception, doing: str) -> SourceError:
    """
    What a failed exchange means: SourceUnavailable (refused, time-out, name not found, cut off) or SourceRejected (TLS, bad URL).

    Only the kind and the operating system's reason are repeated: the text of the library's exception may hold headers or queries.
    """
    if isinstance(error, requests.exceptions.SSLError):
        return SourceRejected(f"{doing}: TLS failed ({_reason(error)}); check ca_file, the certificate's names, cert_file")
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return SourceUnavailable(f"{doing}: no connection in time; is the host up, is a firewall between?")
    if isinstance(error, requests.exceptions.Timeout):
        return SourceUnavailable(f"{doing}: no answer in time")
    if isinstance(error, requests.exceptions.ConnectionError):
        reason = _reason(error)
        if "Timeout" in reason or "timed out" in reason:
            return SourceUnavailable(f"{doing}: no answer in time")
        hint = "does the name resolve from here?" if "resol" in reason.lower() else "is it running and listening on this port?"
        return SourceUnavailable(f"{doing}: no connection ({reason}); {hint}")
    if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError, HTTPError)):
        return SourceUnavailable(f"{doing}: the answer was cut off or garbled ({type(error).__name__})")
    return SourceRejected(f"{doing}: the request could not be sent ({type(error).__name__}); check the URL and credentials")


def _reason(error: BaseException) -> str:
    """The innermost cause, in a few words that hold no header and no URL."""
    seen: BaseException = error
    for _ in range(10):
        inner = getattr(seen, "reason", None) or seen.__cause__ or seen.__context__
        inner = inner if isinstance(inner, BaseException) else next((a for a in seen.args if isinstance(a, BaseException)), None)
        if inner is None:
            break
        seen = inner
    if isinstance(seen, socket.gaierror):
        return f"the name does not resolve: {seen.strerror}"
    if isinstance(seen, OSError) and seen.strerror:
        return str(seen.strerror)
    return type(seen).__name__


def check_status(status: int, doing: str) -> None:
    """
    Nothing for a 2xx; else the error that says what to do.

    401, 403 → SourceRejected (credentials) · 404 → SourceRejected (path) · 408, 429, 5xx → SourceUnavailable · others →
    SourceRejected.
    """
    if 200 <= status < 300:
        return
    if status in {401, 403}:
        raise SourceRejected(f"{doing}: HTTP {status}; the credentials are missing, wrong or not allowed to read this")
    if status == 404:
        raise SourceRejected(f"{doing}: HTTP 404; is the path right?")
    if status in {408, 429} or status >= 500:
        raise SourceUnavailable(f"{doing}: HTTP {status}; the server cannot answer now, the next tick tries again")
    raise SourceRejected(f"{doing}: HTTP {status}")


def check_not_html(content_type: str, start: bytes, doing: str) -> None:
    """SourceRejected if an answer is a web page: a sign-in proxy or a wrong address."""
    if content_type.lower().lstrip().startswith("text/html") or _HTML.match(start):
        raise SourceRejected(f"{doing}: an HTML page came instead of data; a sign-in page or the wrong port or path?")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the body whole, and headers by lower-case name."""

    headers: Mapping[str, str]
    body: bytes


class HttpDoor:
    """
    Reads from one address by GET, or sends to it by POST.

    ``timeout``: seconds to connect, and seconds without a byte. ``deadline_seconds``: for the whole exchange, however the bytes
    arrive; name resolution alone is not under it. ``max_bytes``: of a decoded body. Each request is its own connection: between
    two scrapes a server has closed the old one.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials = NO_CREDENTIALS,
        timeout: tuple[float, float] = (3.0, 10.0),
        deadline_seconds: float = 15.0,
        max_bytes: int = 64 * MEBIBYTE,
    ) -> None:
        self.url = clean_url(url)
        self._credentials = credentials
        self._timeout = timeout
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"HttpDoor({shown(self.url)!r})"

    def get(self, path: str = "", params: Mapping[str, str] | None = None, accept: str = "*/*") -> Answer:
        """The whole answer of ``path`` below the door's address; SourceError says what failed, where, and what to do."""
        with self.open(path, params, accept) as (headers, chunks):
            return Answer(headers, b"".join(chunks))

    @contextmanager
    def open(
        self, path: str = "", params: Mapping[str, str] | None = None, accept: str = "*/*"
    ) -> Iterator[tuple[Mapping[str, str], Iterator[bytes]]]:
        """
        Headers, and the body in pieces as they arrive: for answers too large to hold. Leaving early closes the connection.

        A failure in the middle of the body is raised by the iterator, as the same SourceErrors.
        """
        url = self.url.rstrip("/") + path if path else self.url
        doing = f"reading {shown(url)}"
        adapter = DeadlineAdapter()
        with requests.Session() as session, adapter.within(self._deadline_seconds) as passed:
            session.trust_env = False
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            self._credentials.apply(session)
            try:
                response = self._follow(session, url, params, accept, doing)
            except (requests.RequestException, HTTPError, OSError, UnicodeError) as error:
                raise self._late(doing) if passed() else translate(error, doing) from None
            with response:
                check_status(response.status_code, doing)
                headers = {name.lower(): text for name, text in response.headers.items()}
                yield headers, self._chunks(response, headers, passed, doing)

    def post(self, body: bytes, content_type: str) -> Answer:
        """
        Send ``body`` to the door's address. Messages name the host only: the path of a webhook is its key.

        A redirect is not followed (what is sent would go where nobody named), and a web page for an answer means that it did not
        arrive: both are SourceRejected. A SourceUnavailable may have arrived all the same: whoever sends again sends twice.
        """
        doing = f"sending to {printable(urlsplit(self.url).hostname or '')}"
        adapter = DeadlineAdapter()
        with requests.Session() as session, adapter.within(self._deadline_seconds) as passed:
            session.trust_env = False
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            self._credentials.apply(session)
            headers: dict[str, str | bytes] = {"Content-Type": content_type, "Accept-Encoding": "identity", "Connection": "close"}
            headers |= {name: secret.reveal().encode() for name, secret in self._credentials.secret_headers().items()}
            try:
                response = session.post(
                    self.url, data=body, headers=headers, timeout=self._timeout, stream=True, allow_redirects=False
                )
            except (requests.RequestException, HTTPError, OSError, UnicodeError) as error:
                raise self._late(doing) if passed() else translate(error, doing) from None
            with response:
                if response.status_code in {301, 302, 303, 307, 308}:
                    raise SourceRejected(
                        f"{doing}: redirected elsewhere, which is not followed; configure the address that is meant"
                    )
                check_status(response.status_code, doing)
                told = {name.lower(): text for name, text in response.headers.items()}
                return Answer(told, b"".join(self._chunks(response, told, passed, doing)))

    def _follow(
        self, session: requests.Session, url: str, params: Mapping[str, str] | None, accept: str, doing: str
    ) -> requests.Response:
        """The first answer that is no redirect; only within the host, where credentials may go."""
        for _ in range(_REDIRECTS + 1):
            headers: dict[str, str | bytes] = {"Accept": accept, "Accept-Encoding": "identity", "Connection": "close"}
            headers |= {name: secret.reveal().encode() for name, secret in self._credentials.secret_headers().items()}
            response = session.get(url, params=params, headers=headers, timeout=self._timeout, stream=True, allow_redirects=False)
            target = response.headers.get("location")
            if response.status_code not in {301, 302, 303, 307, 308} or target is None:
                return response
            response.close()
            target = urljoin(url, target)
            old, new = urlsplit(url), urlsplit(target)
            same = new.hostname == old.hostname and (new.port == old.port or (old.scheme, new.scheme) == ("http", "https"))
            if "@" in new.netloc or not same or (old.scheme, new.scheme) == ("https", "http"):
                raise SourceRejected(
                    f"{doing}: redirected to {printable(f'{new.scheme}://{new.hostname}')}, which is not followed: "
                    "a sign-in page? If that address is meant, configure it"
                )
            url, params = target, None
        raise SourceRejected(f"{doing}: more than {_REDIRECTS} redirects")

    def _late(self, doing: str) -> SourceUnavailable:
        return SourceUnavailable(f"{doing}: not finished after {self._deadline_seconds:g} s; given up")

    def _chunks(
        self, response: requests.Response, headers: Mapping[str, str], passed: Callable[[], bool], doing: str
    ) -> Iterator[bytes]:
        """The body, checked as it comes."""
        size = 0
        try:
            for chunk in response.iter_content(_CHUNK):
                if not size:
                    check_not_html(headers.get("content-type", ""), chunk[:256], doing)
                size += len(chunk)
                if size > self._max_bytes:
                    raise SourceRejected(f"{doing}: more than {self._max_bytes} bytes; raise the limit if that is right")
                if passed():
                    raise self._late(doing)
                yield chunk
        except (requests.RequestException, HTTPError, OSError) as error:
            raise self._late(doing) if passed() else translate(error, doing) from None
        if passed():
            raise self._late(doing)
