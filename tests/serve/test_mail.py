"""Mails about alarms, against a server on the loopback that speaks SMTP with STARTTLS or TLS, and takes logins."""

from __future__ import annotations

import base64
import email
import email.policy
import json
import logging
import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from momostream.feeds.secrets import tls_context
from momostream.serve.config import ConfigError, MailConfig, read_config_text
from momostream.serve.mail import MOST_LISTED, Mail, mail_of
from momostream.storage.store import Output, Store
from tests.feeds import certificates
from tests.feeds.certificates import needs_openssl

PASSWORD = "rosebud-4711"


class SmtpServer:
    """Keeps the mails of clients that log in as ann; ``answers`` replace its answers to DATA."""

    def __init__(self, context, encryption="starttls"):
        self._context, self._encryption = context, encryption
        self.mails, self.answers = [], []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while self._socket.fileno() >= 0:
            with suppress(OSError, ValueError):
                client, _ = self._socket.accept()
                client.settimeout(5.0)
                with closing(client):
                    self._talk(client)

    def _talk(self, client):
        if self._encryption == "tls":
            client = self._context.wrap_socket(client, server_side=True)
        encrypted, known = self._encryption == "tls", False
        lines = client.makefile("rb")
        client.sendall(b"220 here\r\n")
        while line := lines.readline():
            verb = line.split()[0].upper()
            if verb == b"EHLO":
                client.sendall(b"250-here\r\n250 AUTH PLAIN\r\n" if encrypted else b"250-here\r\n250 STARTTLS\r\n")
            elif verb == b"STARTTLS":
                client.sendall(b"220 go\r\n")
                client = self._context.wrap_socket(client, server_side=True)
                lines, encrypted = client.makefile("rb"), True
            elif verb == b"AUTH":
                known = base64.b64decode(line.split()[2]) == b"\0ann\0" + PASSWORD.encode()
                client.sendall(b"235 in\r\n" if known else b"535 " + line.split()[2] + b"\r\n")
            elif verb == b"DATA" and known:
                client.sendall(b"354 begin\r\n")
                text = b"".join(iter(lines.readline, b".\r\n"))
                answer = self.answers.pop(0) if self.answers else b"250 taken\r\n"
                if answer.startswith(b"2"):
                    self.mails.append(email.message_from_bytes(text, policy=email.policy.default))
                client.sendall(answer)
            elif verb == b"QUIT":
                client.sendall(b"221 bye\r\n")
                break
            else:
                client.sendall(b"250 yes\r\n" if known else b"530 who\r\n")
        client.close()

    def close(self):
        # Closing alone would let the thread accept one more client.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(made, request):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "server.pem", made / "server.key")
    with closing(SmtpServer(context, getattr(request, "param", "starttls"))) as started:
        yield started


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "north.db"
    add(path, 3)
    return path


def add(path, n, first=1, key="T1"):
    fields = {"key": key, "time": None, "target": "power", "value": 9.0, "lower": 1.5, "upper": 2.5, "level": 0.999}
    with Store(path) as opened:
        numbers = range(first, first + n)
        opened.commit(alarms=[Output("T1", number, json.dumps({"row": number} | fields)) for number in numbers])


def mail_to(server, store, made, password=PASSWORD, **options):
    encryption = server._encryption
    config = MailConfig(
        f"localhost:{server.port}", "momostream@farm.example", ("ann@farm.example",), encryption, "ann", **options
    )
    return Mail(
        "north", store, store.with_name("north.db-page"), config, password, tls_context({"ca": made / "ca.pem"})
    )


@needs_openssl
@pytest.mark.parametrize("server", ["starttls", "tls"], indirect=True)
def test_alarms_arrive_once_together_and_after_a_restart_the_new_ones(server, store, made):
    assert mail_to(server, store, made).deliver()
    (mail,) = server.mails
    assert (mail["Subject"], mail["To"]) == ("north: 3 alarms: T1", "ann@farm.example")
    assert "1. T1, row 1: power is 9, expected 1.5 to 2.5" in mail.get_content()
    assert mail_to(server, store, made).deliver() and len(server.mails) == 1
    add(store, 1, 4)
    assert mail_to(server, store, made).deliver()
    with Store(store, read_only=True) as reader:
        identity = reader.identity
    ids = [f"<north.{lines}.{identity}@momostream>" for lines in ("1-3", "4-4")]
    assert len(identity) == 32 and [each["Message-ID"] for each in server.mails] == ids


@needs_openssl
def test_stores_of_one_name_have_mails_of_their_own(server, store, made, tmp_path):
    other = tmp_path / "other" / "north.db"
    other.parent.mkdir()
    add(other, 3, 1)
    assert mail_to(server, store, made).deliver() and mail_to(server, other, made).deliver()
    first, second = (mail["Message-ID"] for mail in server.mails)
    assert first != second and first.partition(".")[0] == second.partition(".")[0]


@needs_openssl
def test_a_server_that_is_away_or_busy_gets_the_mail_later(server, store, made, caplog):
    mail = mail_to(server, store, made)
    server.answers = [b"451 later\r\n", b"451 later\r\n"]
    with caplog.at_level(logging.WARNING):
        assert [mail.deliver() for _ in range(3)] == [False, False, True]
    # One line for all attempts.
    assert [r.getMessage() for r in caplog.records] == [
        f"north: a mail was not taken by localhost:{server.port}: the server answers with code 451; trying again"
    ]
    assert len(server.mails) == 1 and mail._attempts.is_due()
    server.close()
    add(store, 1, 4)
    assert not mail.deliver() and not mail._attempts.is_due()


@needs_openssl
def test_logins_and_certificates_that_are_not_accepted_are_named_without_the_password(server, store, made, caplog):
    wrong = "wrong-" + PASSWORD
    with caplog.at_level(logging.WARNING):
        assert not mail_to(server, store, made, wrong).deliver()
        stranger = mail_to(server, store, made)
        stranger._context = ssl.create_default_context()
        assert not stranger.deliver()
    assert "the login is not accepted (code 535)" in caplog.text and "certificate" in caplog.text.lower()
    # The server repeats the login in its answer.
    sent = base64.b64encode(f"\0ann\0{wrong}".encode()).decode()
    assert wrong not in caplog.text and sent not in caplog.text and not server.mails


@needs_openssl
def test_a_server_without_starttls_gets_nothing(server, store, made, caplog):
    server._encryption = "none"
    server._talk = lambda client: (client.sendall(b"220 a\r\n"), client.recv(99), client.sendall(b"250 plain\r\n"))
    mail = mail_to(server, store, made)
    mail.config = MailConfig(mail.config.server, mail.config.sender, mail.config.to, "starttls", "ann")
    assert not mail.deliver() and "does not offer what is needed" in caplog.text


def test_names_of_a_feed_are_text_on_one_line():
    hostile = {"key": "T1\r\nBcc: all@example", "row": 1, "target": "a\nb", "value": 1.0, "lower": None, "upper": 2.0}
    mail = mail_of("north", [(1, hostile)] * (MOST_LISTED + 2), "a@b", ["c@d"], "x")
    again = email.message_from_bytes(mail.as_bytes(), policy=email.policy.default)
    assert again["Bcc"] is None and "expected any to 2" in again.get_content()
    assert "... and 2 more, up to number 1" in again.get_content()
    other = mail_of("north", [(7, {"begin": 3})], "a@b", ["c@d"], "x").get_content()
    assert other == '1 alarm of north:\n\n7. {"begin": 3}\n'


FARM = '[feeds.north]\ntargets = ["power"]\n[[mails]]\nserver = "mail.example:587"\nsender = "a@b"\nto = ["c@d"]\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('sender = "a@b"\n', "", "line 3: mails: sender is missing"),
        ("mail.example:587", "mail.example", "line 4: mails.server: expected HOST:PORT"),
        ('["c@d"]', '["c"]', "line 6: mails.to: expected a list of mail addresses"),
        (
            '["c@d"]',
            '["c@d"]\nencryption = "none"\nuser = "ann"',
            "mails.user: a password must not be sent without TLS",
        ),
        ('["c@d"]', '["c@d"]\npassword = "x"', "line 7: unknown key mails.password"),
    ],
)
def test_mistakes_in_the_configuration_are_named(old, new, message):
    assert read_config_text(FARM, folder=Path()).mails[0].encryption == "starttls"
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        read_config_text(FARM.replace(old, new))


def test_every_feed_has_a_sender_with_the_password_of_the_file(tmp_path, monkeypatch):
    from momostream.cli.serve import _mails, request_for

    monkeypatch.delenv("MOMOSTREAM_MAIL_PASSWORD", raising=False)
    (tmp_path / "mail.secret").write_text(f"{PASSWORD}\n")
    farm = read_config_text(FARM + 'user = "ann"\npassword_file = "mail.secret"\n', folder=tmp_path)
    (mail,) = _mails(farm, {feed.name: request_for(farm, feed) for feed in farm.feeds})
    assert (mail.feed, mail.store, mail.pause, mail._password) == ("north", tmp_path / "north.db", 60.0, PASSWORD)
    assert PASSWORD not in repr(mail.config)
