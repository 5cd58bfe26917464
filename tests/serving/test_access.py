"""Who may ask `cfk serve`, and over which connections; what monitors read of it."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from cfk_plugin import Ledger
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError
from cfk_plugin.serving import access
from cfk_plugin.serving.access import Tokens, check_reach
from model_server import Server, by_cfk, serving, store

ONE, TWO = "first-token-of-this-test", "another-token-of-this-test"
QUERIES = [{"age": age, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"} for age in (25, 40)]


class Reply(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


def ask(
    server: Server,
    path: str,
    body: Any = None,
    token: str | None = ONE,
    context: ssl.SSLContext | None = None,
) -> Reply:
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as found:
            return Reply(found.status, found.read().decode(), dict(found.headers.items()))
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read().decode(), dict(error.headers.items()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("access")
    write_for_owner(found / "tokens.txt", f"# who may ask\n{ONE}\n{TWO}\n")
    return found


def write_for_owner(path: Path, text: str) -> None:
    """Write a file that its owner alone can read."""
    path.touch(0o600)
    path.write_text(text)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server with a ledger, which a token of the file lets in."""
    uri = store(folder)
    ledger = str(folder / "ledger.db")
    Ledger(ledger, create=True).close()
    command = by_cfk(folder, "--ledger", ledger, "--tokens", str(folder / "tokens.txt"))
    with serving(folder, uri, command) as found:
        yield found


def explained(server: Server) -> list[dict[str, Any]]:
    reply = ask(server, "/invocations", {"dataframe_records": QUERIES})
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = json.loads(reply.text)["predictions"]
    return found


@pytest.mark.parametrize("path", ["/invocations", "/metrics"])
@pytest.mark.parametrize("token", [None, "not-a-token-of-this-test", ONE[:-1], ONE.upper()])
def test_nobody_is_let_in_without_a_token_of_the_file(
    server: Server, path: str, token: str | None
) -> None:
    body = None if "metrics" in path else {"dataframe_records": QUERIES}
    reply = ask(server, path, body, token)
    assert (reply.status, json.loads(reply.text)["message"]) == (401, access.WHO)
    assert reply.headers["www-authenticate"] == "Bearer"


def on_the_wire(server: Server, request: bytes) -> bytes:
    """Send bytes as they are; return all that comes until the server hangs up, or is silent."""
    host, port = server.url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=3) as client:
        client.sendall(request)
        with suppress(TimeoutError):
            while part := client.recv(65_536):
                answer += part
    return answer


HEAD = f"POST /invocations HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ONE}\r\n"
HEAD += "Content-Type: application/json\r\n"


@pytest.mark.parametrize("path", ["/invocations", "/health"])
def test_a_request_with_two_lengths_is_refused_and_what_follows_is_not_read(
    server: Server, path: str
) -> None:
    """In front of the server, something may have read the other length, and another request."""
    hidden = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ONE}\r\n\r\n"
    for lengths in (
        f"Content-Length: {len(hidden) + 5}\r\nTransfer-Encoding: chunked\r\n",
        f"Transfer-Encoding: chunked\r\nContent-Length: {len(hidden) + 5}\r\n",
    ):
        head = HEAD.replace("/invocations", path)
        answer = on_the_wire(server, f"{head}{lengths}\r\n0\r\n\r\n{hidden}".encode())
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"not both" in answer
        assert b"cfk_requests" not in answer


def test_two_tokens_are_refused(server: Server) -> None:
    for tokens in ((ONE, "wrong"), ("wrong", ONE), (ONE, ONE), (ONE, TWO)):
        lines = "".join(f"Authorization: Bearer {token}\r\n" for token in tokens)
        request = f"GET /metrics HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n"
        answer = on_the_wire(server, request.encode())
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b"Authorization occurs more than once" in answer
        assert ONE.encode() not in answer


def test_a_thousand_silent_connections_do_not_shut_others_out(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    silent = []
    try:
        for number in range(1_500):  # it keeps 512 connections
            silent.append(socket.create_connection((host, int(port)), timeout=30))
            if number % 3 == 0:
                silent[-1].sendall(HEAD[: number % 90].encode())
            if number % 3 == 1:  # a body that never comes
                silent[-1].sendall(f"{HEAD}Content-Length: 100\r\n\r\n".encode())
            if number > 1_000 and number % 100 == 0:
                assert ask(server, "/metrics").status == 200
        for _ in range(20):
            assert explained(server)
    finally:
        for client in silent:
            client.close()


@pytest.mark.parametrize("path", access.OPEN_PATHS)
def test_orchestrators_need_no_token(server: Server, path: str) -> None:
    assert ask(server, path, token=None).status == 200


def test_requests_at_the_same_time_share_the_ledger_and_are_all_counted(
    server: Server, folder: Path
) -> None:
    before = counts(server)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: explained(server), range(24)))
    assert all(one == found[0] for one in found)
    grown = {name: value - before.get(name, 0) for name, value in counts(server).items()}
    assert grown['cfk_explanations_total{outcome="released"}'] == 48
    assert grown['cfk_requests_total{status="200"}'] == 25  # the first look at the counts is one
    with Ledger(folder / "ledger.db") as ledger:
        ledger.verify()  # raises if the chain of what the threads wrote is broken


def counts(server: Server) -> dict[str, float]:
    reply = ask(server, "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    assert not any(
        str(value) in reply.text for query in QUERIES for value in (query["pay"], query["illness"])
    )
    lines = [line.rsplit(" ", 1) for line in reply.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


# --- tokens, by themselves ------------------------------------------------------------------------


def test_tokens_are_read_again_and_nobody_may_ask_while_they_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "_AGAIN", 0.0)
    path = tmp_path / "tokens.txt"
    write_for_owner(path, f"{ONE}\n")
    tokens = Tokens(path)
    assert tokens.lets_in(f"Bearer {ONE}")
    assert tokens.lets_in(f"bearer  {ONE}")
    assert not tokens.lets_in(f"Basic {ONE}")
    path.write_text(f"{TWO}\n\n")
    assert (tokens.lets_in(f"Bearer {ONE}"), tokens.lets_in(f"Bearer {TWO}")) == (False, True)
    for content in ("", "short", f"{ONE} with a space"):
        path.write_text(content)
        assert not tokens.lets_in(f"Bearer {ONE}")
        assert not tokens.are_there
    path.unlink()
    assert not tokens.lets_in(f"Bearer {TWO}")
    write_for_owner(path, f"{TWO}\n")
    assert tokens.are_there
    assert ONE not in caplog.text + repr(vars(tokens))


@pytest.mark.parametrize(
    ("mode", "may_ask"),
    [(0o600, True), (0o400, True), (0o640, True), (0o644, False), (0o602, False), (0o660, False)],
)
def test_a_file_of_tokens_that_others_can_read_or_write_is_refused(
    mode: int, may_ask: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_AGAIN", 0.0)
    path = tmp_path / "tokens.txt"
    write_for_owner(path, f"{ONE}\n")
    tokens = Tokens(path)
    path.chmod(mode)
    assert tokens.are_there == may_ask
    if may_ask:
        assert Tokens(path).are_there
    else:
        with pytest.raises(InputError, match=rf"mode {mode:04o}\); try chmod 600"):
            Tokens(path)
    path.chmod(0o600)
    assert tokens.are_there


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_others_are_not_let_near_without_being_asked_who_they_are(host: str) -> None:
    with pytest.raises(InputError, match="--tokens"):
        check_reach(host, asks_who=False, open_to_all=False)
    check_reach(host, asks_who=True, open_to_all=False)
    check_reach(host, asks_who=False, open_to_all=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_what_only_this_machine_reaches_needs_nothing(host: str) -> None:
    check_reach(host, asks_who=False, open_to_all=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "--tokens"),
        (["--tokens", "nowhere.txt"], "cannot be read"),
        (["--tls-key", "key.pem"], "--tls-cert"),
        (["--tls-cert", "nowhere.pem"], "PEM"),
        (["--name", "a b"], "--name"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["serve", "models:/explained/1", *options])
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1


# --- certificates ---------------------------------------------------------------------------------


class Certificate(NamedTuple):
    certificate: Path
    key: Path


def made(
    folder: Path, name: str, issuer: tuple[x509.Certificate, Any] | None = None
) -> tuple[Certificate, Any]:
    """Write a certificate and its key; return where they are, and what can sign others."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    builder = builder.issuer_name(subject if issuer is None else issuer[0].subject)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
        now - timedelta(days=1)
    )
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
    )
    signed = builder.sign(key if issuer is None else issuer[1], hashes.SHA256())
    paths = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    paths.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return paths, (signed, key)


def test_with_certificates_whoever_has_none_is_not_answered(tmp_path: Path) -> None:
    authority, signer = made(tmp_path, "authority")
    own, _ = made(tmp_path, "server", signer)
    client, _ = made(tmp_path, "client", signer)
    stranger, _ = made(tmp_path, "stranger")
    options = [
        "--tls-cert",
        str(own.certificate),
        "--tls-key",
        str(own.key),
        "--client-ca",
        str(authority.certificate),
    ]
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(client.certificate, client.key)
    with serving(tmp_path, store(tmp_path), by_cfk(tmp_path, *options), context) as server:
        assert [record["status"] for record in explained_with(server, context)] == [
            "released",
            "released",
        ]
        for nobody in (None, stranger):
            bare = ssl.create_default_context(cafile=authority.certificate)
            if nobody is not None:
                bare.load_cert_chain(nobody.certificate, nobody.key)
            with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
                ask(server, "/health", context=bare)


def explained_with(server: Server, context: ssl.SSLContext) -> list[dict[str, Any]]:
    reply = ask(server, "/invocations", {"dataframe_records": QUERIES}, None, context)
    found: list[dict[str, Any]] = json.loads(reply.text)["predictions"]
    return found
