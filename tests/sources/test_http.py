"""The door: what it sends, what it refuses, and that no secret ever shows."""

import ssl
import subprocess
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sources.conftest import Reply
from urllib3.exceptions import InsecureRequestWarning

from lora_watch.errors import SourceError, SourceRejected, SourceUnavailable
from lora_watch.sources.http import Credentials, HttpDoor, Secret, clean_url

TOKEN = "tok-3n-s3cret"


def test_a_body_comes_back_whole_with_lower_case_headers(serve):
    server = serve(Reply(b"a 1\n", headers={"X-Thing": "1"}))
    answer = HttpDoor(server.url + "/metrics").get()
    assert (answer.body, answer.headers["x-thing"], server.requests[0].path) == (b"a 1\n", "1", "/metrics")


def test_parameters_are_encoded_into_the_query(serve):
    server = serve(Reply(b"x\n"))
    HttpDoor(server.url).get("/events", {"boot": "a&b=c/../é"})
    assert server.requests[0].query == {"boot": "a&b=c/../é"}


def test_a_bearer_token_from_a_file_is_read_at_each_use(serve, tmp_path):
    file = tmp_path / "token"
    server = serve(Reply(b"x\n"))
    door = HttpDoor(server.url, Credentials(bearer_file=str(file)))
    for token in ("one", "two"):
        file.write_text(token + "\n")
        door.get()
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer one", "Bearer two"]


def test_basic_authentication_and_headers_come_from_the_environment(serve, monkeypatch):
    monkeypatch.setenv("PW", "påss:word")
    monkeypatch.setenv("TENANT", "t1")
    server = serve(Reply(b"x\n"))
    credentials = Credentials(basic_user="u", basic_password_env="PW", headers={"X-Scope-OrgID": "org-${TENANT}"})
    HttpDoor(server.url, credentials).get()
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["x-scope-orgid"]) == ("Basic dTpww6Vzczp3b3Jk", "org-t1")


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(bearer_env="LORA_WATCH_NOT_SET"),
        Credentials(bearer_file="/does/not/exist"),
        Credentials(headers={"X-A": "${LORA_WATCH_NOT_SET}"}),
        Credentials(headers={"X A\r\n": "1"}),
        Credentials(ca_file="/does/not/exist"),
        Credentials(cert_file="/does/not/exist"),
    ],
    ids=str,
)
def test_a_secret_that_cannot_be_had_is_a_rejection_before_anything_is_sent(serve, credentials):
    server = serve(Reply(b"x\n"))
    with pytest.raises(SourceRejected):
        HttpDoor(server.url, credentials).get()
    assert server.requests == []


def test_a_secret_with_a_line_break_is_refused_and_not_shown(serve, monkeypatch):
    monkeypatch.setenv("TOKEN", f"{TOKEN}\r\nX-Evil: 1")
    with pytest.raises(SourceRejected) as caught:
        HttpDoor(serve(Reply()).url, Credentials(bearer_env="TOKEN")).get()
    assert TOKEN not in str(caught.value)


def test_a_secret_never_shows_in_text():
    secret = Secret(TOKEN)
    assert {str(secret), repr(secret), f"{secret}", f"{secret:>10}", "%s" % secret} == {"***"}  # noqa: UP031


@pytest.mark.parametrize("status", [401, 404, 429, 500, 302])
def test_no_failure_shows_a_secret_anywhere_in_its_traceback(serve, monkeypatch, status):
    monkeypatch.setenv("TOKEN", TOKEN)
    server = serve(Reply(b"", status, {"Location": "http://elsewhere.invalid/"}))
    with pytest.raises(SourceError) as caught:
        HttpDoor(server.url, Credentials(bearer_env="TOKEN", headers={"X-K": "${TOKEN}"})).get(params={"key": TOKEN})
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url", ["http://user:pw-secret@host/", "ftp://host/", "file:///etc/passwd", "http://", "http://[::1", "x"]
)
def test_an_address_that_is_no_plain_http_url_is_refused_without_its_password(url):
    with pytest.raises(SourceRejected) as caught:
        clean_url(url)
    assert "pw-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        (401, SourceRejected, "credentials"),
        (403, SourceRejected, "credentials"),
        (404, SourceRejected, "path"),
        (400, SourceRejected, "400"),
        (408, SourceUnavailable, "next tick"),
        (429, SourceUnavailable, "next tick"),
        (500, SourceUnavailable, "next tick"),
        (503, SourceUnavailable, "next tick"),
    ],
)
def test_a_status_says_whether_a_person_must_look(serve, status, kind, word):
    with pytest.raises(kind, match=word):
        HttpDoor(serve(Reply(b"", status)).url).get()


def test_a_refused_connection_is_unavailable_and_says_so(closed_port):
    with pytest.raises(SourceUnavailable, match="refused"):
        HttpDoor(closed_port).get()


def test_a_name_that_does_not_resolve_is_unavailable_and_says_so():
    with pytest.raises(SourceUnavailable, match="resolve"):
        HttpDoor("http://nowhere.invalid/").get()


def test_silence_ends_with_the_read_timeout(play):
    url = play(lambda connection, over: over.wait())
    with pytest.raises(SourceUnavailable, match="no answer in time"):
        HttpDoor(url, timeout=(1.0, 0.05)).get()


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
)
def test_an_answer_that_trickles_for_ever_ends_with_the_deadline(play, start):
    def trickle(connection, over):
        connection.sendall(start)
        while not over.wait(0.01):
            connection.sendall(b"a")

    with pytest.raises(SourceUnavailable, match="not finished after"):
        HttpDoor(play(trickle), timeout=(1.0, 1.0), deadline_seconds=0.2).get()


def test_a_body_shorter_than_announced_is_unavailable(play):
    url = play(lambda connection, over: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1\n"))
    with pytest.raises(SourceUnavailable, match="cut off"):
        HttpDoor(url).get()


def test_what_is_no_http_at_all_is_unavailable(play):
    with pytest.raises(SourceUnavailable):
        HttpDoor(play(lambda connection, over: connection.sendall(b"SSH-2.0-OpenSSH\r\n"))).get()


def test_a_body_above_the_limit_is_rejected_before_it_is_read_to_its_end(play):
    def endless(connection, over):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.is_set():
            connection.sendall(b"a 1\n" * 10_000)

    with pytest.raises(SourceRejected, match="more than 100000 bytes"):
        HttpDoor(play(endless), max_bytes=100_000).get()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>Sign in</html>", headers={"Content-Type": "text/plain"}),
        Reply(b"\n <!DOCTYPE html><title>Sign in", headers={"Content-Type": "application/json"}),
        Reply(b"Sign in", headers={"Content-Type": "text/html; charset=utf-8"}),
    ],
)
def test_a_sign_in_page_is_rejected_as_one(serve, reply):
    with pytest.raises(SourceRejected, match="sign-in page"):
        HttpDoor(serve(reply).url).get()


def test_a_redirect_within_the_host_is_followed_with_credentials(serve, monkeypatch):
    monkeypatch.setenv("TOKEN", TOKEN)
    server = serve(lambda r: Reply(b"x\n") if r.path == "/metrics/" else Reply(b"", 307, {"Location": "/metrics/"}))
    assert HttpDoor(server.url + "/metrics", Credentials(bearer_env="TOKEN")).get().body == b"x\n"
    assert server.requests[1].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_redirect_to_another_host_is_refused_and_nothing_is_sent_there(serve, monkeypatch):
    monkeypatch.setenv("TOKEN", TOKEN)
    other = serve(Reply(b"x\n"))
    server = serve(Reply(b"", 302, {"Location": other.url.replace("127.0.0.1", "localhost")}))
    with pytest.raises(SourceRejected, match="not followed"):
        HttpDoor(server.url, Credentials(bearer_env="TOKEN")).get()
    assert other.requests == []


def test_a_redirect_to_another_port_is_another_host(serve):
    other = serve(Reply(b"x\n"))
    with pytest.raises(SourceRejected, match="not followed"):
        HttpDoor(serve(Reply(b"", 302, {"Location": other.url})).url).get()
    assert other.requests == []


def test_a_redirect_loop_ends(serve):
    with pytest.raises(SourceRejected, match="redirects"):
        HttpDoor(serve(Reply(b"", 302, {"Location": "/"})).url).get()


def test_the_environment_neither_adds_a_proxy_nor_a_netrc_password(serve, monkeypatch, tmp_path, closed_port):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", closed_port)
    server = serve(Reply(b"x\n"))
    HttpDoor(server.url).get()
    assert "authorization" not in server.requests[0].headers


@pytest.fixture
def tls(tmp_path):
    """A server with a certificate of its own making, and that certificate."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=pod"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)

    over = threading.Event()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x\n")
            while self.path == "/trickle" and not over.wait(0.01):
                self.wfile.write(b"x\n")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.handle_error = lambda *_: None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", str(cert)
    over.set()
    server.shutdown()
    server.server_close()


def test_a_certificate_nobody_vouches_for_is_rejected(tls):
    with pytest.raises(SourceRejected, match="TLS"):
        HttpDoor(tls[0]).get()


def test_an_encrypted_answer_that_trickles_ends_with_the_deadline_too(tls):
    with pytest.raises(SourceUnavailable, match="not finished after"):
        HttpDoor(tls[0], Credentials(ca_file=tls[1]), deadline_seconds=0.3).get("/trickle")


def test_a_certificate_is_not_looked_at_only_by_choice_and_that_warns(tls):
    with pytest.warns(InsecureRequestWarning):
        assert HttpDoor(tls[0], Credentials(verify=False)).get().body == b"x\n"


def test_a_certificate_of_the_authority_named_is_accepted(tls):
    assert HttpDoor(tls[0], Credentials(ca_file=tls[1])).get().body == b"x\n"
