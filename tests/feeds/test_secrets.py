"""Logins and TLS of brokers: against a real mosquitto, and a server that speaks as much SASL as a login needs."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest

from benchmarks.tools.brokers import MOSQUITTO, Mosquitto
from momostream.feeds.brokers import KafkaFeed, KafkaOutlet, MqttFeed, MqttOutlet
from momostream.feeds.secrets import Login, check_no_password, read_login, read_secret, tls_context
from momostream.feeds.source import FeedError
from tests.feeds import certificates
from tests.feeds.certificates import needs_openssl
from tests.feeds.messaging import needs_kafka, needs_mqtt, take

PASSWORD = "rosebud-4711"
needs_passwd = pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="needs mosquitto_passwd")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def locked(made, tmp_path_factory):
    """A mosquitto that wants TLS, a certificate of the client, a user and a password."""
    folder = tmp_path_factory.mktemp("locked")
    passwords = folder / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "ann", PASSWORD], check=True, timeout=600)
    settings = [
        *(f"cafile {made / 'ca.pem'}", f"certfile {made / 'server.pem'}", f"keyfile {made / 'server.key'}"),
        *("require_certificate true", "allow_anonymous false", f"password_file {passwords}"),
    ]
    (folder / "mqtt.secret").write_text(f"{PASSWORD}\n")
    assert MOSQUITTO is not None
    with Mosquitto(folder, settings) as broker:
        yield broker


def url_of(broker, made, topic="farm/rows", **more):
    files = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    settings = {name: made / file for name, file in files.items()}
    settings |= {"password_file": broker.folder / "mqtt.secret"} | more
    return f"mqtts://ann@localhost:{broker.port}/{topic}?" + "&".join(f"{k}={v}" for k, v in settings.items() if v)


@needs_mqtt
@needs_openssl
@needs_passwd
def test_mqtt_with_tls_a_certificate_and_a_password_from_a_file(locked, made, opened):
    feed = opened(MqttFeed(url_of(locked, made), ["power"], client_id="reader"))
    outlet = opened(MqttOutlet(url_of(locked, made)))
    assert outlet.send([(1, None, '{"power": 2.5}'), (2, None, '{"power": 3.5}')]) == 2
    assert [row.values["power"] for row in take(feed, 2)] == [2.5, 3.5]
    assert feed.name == f"mqtts://localhost:{locked.port}/farm/rows"
    assert PASSWORD not in f"{feed.name}{outlet.name}{json.dumps(feed.position)}"


@needs_mqtt
@needs_openssl
@needs_passwd
def test_mqtt_password_from_the_environment(locked, made, opened, monkeypatch):
    monkeypatch.setenv("PLANT_PASSWORD", PASSWORD)
    opened(MqttFeed(url_of(locked, made, password_file=None, password_env="PLANT_PASSWORD"), ["power"], client_id="e1"))
    monkeypatch.setenv("MOMOSTREAM_MQTT_PASSWORD", PASSWORD)
    opened(MqttFeed(url_of(locked, made, password_file=None), ["power"], client_id="e2"))


# paho leaves the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@needs_mqtt
@needs_openssl
@needs_passwd
def test_mqtt_wrong_logins_and_certificates_are_named_at_once(locked, made, tmp_path):
    (tmp_path / "wrong").write_text("rosebud")
    cases = {
        r"rejects client 'reader': Not authorized": {"password_file": tmp_path / "wrong"},
        r"certificate of the broker is not accepted: .*: name its authority with \?ca=FILE": {"ca": None},
        r"not certificates and a key that fit": {"key": made / "server.key"},
        r"the file that cert names does not exist": {"cert": made / "nowhere.pem"},
        r"the environment variable NOT_SET, which password_env names, is not set": {"password_env": "NOT_SET"},
    }
    for message, change in cases.items():
        began = time.monotonic()
        with pytest.raises(ValueError, match=message) as raised:
            MqttFeed(url_of(locked, made, **change), ["power"], client_id="reader")
        assert PASSWORD not in str(raised.value) and time.monotonic() - began < 10.0
    # Without its certificate, the client is not let in.
    with pytest.raises(FeedError):
        MqttFeed(url_of(locked, made, cert=None, key=None), ["power"], client_id="reader", patience=1.0)


@needs_mqtt
def test_mqtt_settings_that_do_not_exist_or_need_tls():
    with pytest.raises(ValueError, match="unknown setting cafile; there is client_id, user, password_file"):
        MqttFeed("mqtts://host/rows?cafile=x", ["power"])
    with pytest.raises(ValueError, match="ca needs TLS: write mqtts://"):
        MqttOutlet("mqtt://host/rows?ca=x")


class SaslServer:
    """Takes one login by SASL PLAIN over TLS, as Kafka does, and keeps it."""

    def __init__(self, made):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made / "server.pem", made / "server.key")
        context.load_verify_locations(made / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        self._context, self.tokens = context, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                raw, _ = self._socket.accept()
                with self._context.wrap_socket(raw, server_side=True) as client:
                    client.settimeout(5.0)
                    while (request := self._frame(client))[:2] == b"\0\x12":  # ApiVersions: ours are the oldest
                        versions = [(0, 0, 2), (1, 0, 2), (3, 0, 1), (17, 0, 0), (18, 0, 0)]
                        error = 0 if request[2:4] == b"\0\0" else 35
                        body = b"".join(struct.pack(">hhh", *each) for each in versions)
                        self._answer(client, request, struct.pack(">hi", error, len(versions)) + body)
                    assert request[:2] == b"\0\x11"  # SaslHandshake
                    self._answer(client, request, struct.pack(">hih", 0, 1, 5) + b"PLAIN")
                    self.tokens.append(self._frame(client))
            except (OSError, AssertionError, struct.error):
                if self._socket.fileno() < 0:
                    return

    def _answer(self, client, request, body):
        client.sendall(struct.pack(">i", 4 + len(body)) + request[4:8] + body)

    def _frame(self, client):
        size = struct.unpack(">i", client.recv(4))[0]
        return client.recv(size)

    def close(self):
        self._socket.close()


@needs_kafka
@needs_openssl
@pytest.mark.parametrize("kind", ["feed", "outlet"])
def test_kafka_with_tls_a_certificate_and_a_password_from_a_file(made, tmp_path, opened, kind):
    server = opened(SaslServer(made))
    (tmp_path / "kafka.secret").write_text(PASSWORD)
    url = (
        f"kafka://localhost:{server.port}/rows?user=ann&password_file={tmp_path / 'kafka.secret'}&ca={made}/ca.pem"
        f"&cert={made}/client.pem&key={made}/client.key"
    )
    if kind == "feed":
        # The server knows nothing but logins.
        with pytest.raises(FeedError, match="cannot be reached") as raised:
            KafkaFeed(url, ["power"], patience=2.0)
        assert PASSWORD not in str(raised.value)
    else:
        reports = []
        outlet = opened(KafkaOutlet(url, patience=2.0, on_trouble=reports.append))
        assert outlet.send([(1, None, "{}")]) == 0 and PASSWORD not in str(reports)
    assert server.tokens and set(server.tokens) == {b"\0ann\0" + PASSWORD.encode()}


@needs_kafka
def test_kafka_settings_that_cannot_be_used(tmp_path):
    with pytest.raises(ValueError, match="kafka://host:9092/rows: .*NOT_SET, which password_env names, is not set"):
        KafkaFeed("kafka://host/rows?user=ann&password_env=NOT_SET", ["power"])
    with pytest.raises(ValueError, match="kafka://host:9092/rows"):
        KafkaOutlet(f"kafka://host/rows?ca={tmp_path}/nowhere.pem")


def test_secrets_come_from_the_environment_or_the_first_line_of_a_file(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(f"{PASSWORD}  \nsecond line\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert read_secret("NOT_SET", "secret", tmp_path) == PASSWORD
    monkeypatch.setenv("IS_SET", "other")
    assert read_secret("IS_SET", "secret", tmp_path) == "other"
    for name, what in (("empty", "is empty"), ("bytes", "is not text")):
        with pytest.raises(ValueError, match=f"{name}: the file of a secret {what}"):
            read_secret("NOT_SET", name, tmp_path)
    login = read_login({"password_file": str(tmp_path / "secret")}, "ann", None, "NOT_SET")
    assert login == Login("ann", PASSWORD) and PASSWORD not in repr(login)
    with pytest.raises(ValueError, match="needs cert"):
        tls_context({"key": "a"})


@pytest.mark.parametrize(
    "address",
    [
        "mqtt://a:b@host/t",
        "kafka://host/t?sasl.password=b",
        "kafka://h/t?x=1&ssl.key.password=b",
        "postgresql://a:b@h/d",
    ],
)
def test_passwords_on_the_command_line_are_rejected_and_not_repeated(address):
    with pytest.raises(ValueError, match="--output contains a password") as raised:
        check_no_password("--output", address)
    assert "b@" not in str(raised.value) and "=b" not in str(raised.value)


@pytest.mark.system
def test_the_command_rejects_a_password_among_its_arguments(tmp_path):
    command = [
        sys.executable,
        "-m",
        "momostream",
        "run",
        f"mqtt://ann:{PASSWORD}@localhost/rows",
        "-t",
        "power",
        "-n",
        "3",
    ]
    done = subprocess.run([*command, "--store", tmp_path / "a.db"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "FEED contains a password" in done.stderr and PASSWORD not in done.stderr
