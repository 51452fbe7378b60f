"""The page and the interface by HTTPS."""

from __future__ import annotations

import socket
import ssl
import subprocess

import httpx
import pytest

from momostream.cli.farm_checks import tls_of
from momostream.serve.config import ConfigError, read_config_text
from momostream.serve.security import Tokens
from tests.feeds import certificates

from .farms import FARM, push, row, running

pytestmark = certificates.needs_openssl


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def farm_text(made, certificate="server.pem", key="server.key"):
    named = f'certificate = "{made / certificate}"\n' + (f'private_key = "{made / key}"\n' if key else "")
    return FARM.replace("[serve]\n", f"[serve]\n{named}")


def test_rows_page_and_events_by_https(made, tmp_path):
    tokens, trust = Tokens(write="a token of the test"), ssl.create_default_context(cafile=made / "ca.pem")
    with running(tmp_path, farm_text(made), tokens, trust) as (client, state):
        assert client.base_url.scheme == "https"
        client.headers["authorization"] = f"Bearer {tokens.write}"
        push(client, [row(n) for n in range(1, 9)], state)
        assert len(client.get("/feeds/north/forecasts").json()[0]["time"]) == 6
        answer = client.post("/login", json={"token": tokens.write})
        assert "Secure" in answer.headers["set-cookie"]
        with client.stream("GET", "/events") as events:
            assert next(events.iter_text()).startswith("retry")
        # Without trust in the authority, and without TLS, there is no answer.
        with pytest.raises(httpx.ConnectError):
            httpx.get(client.base_url)
        plain = str(client.base_url).replace("https", "http")
        with pytest.raises(httpx.TransportError):
            httpx.get(plain, timeout=10.0)
        # Who says nothing hinders nobody.
        with socket.create_connection((client.base_url.host, client.base_url.port)):
            assert client.get("/healthz").status_code == 200


def test_certificate_and_key_in_one_file(made, tmp_path):
    (made / "both.pem").write_bytes((made / "server.pem").read_bytes() + (made / "server.key").read_bytes())
    farm = read_config_text(farm_text(made, "both.pem", None), folder=tmp_path)
    assert isinstance(tls_of(farm), ssl.SSLContext)


@pytest.mark.parametrize(
    ("certificate", "key", "message"),
    [
        ("none.pem", "server.key", "line 3: serve.certificate: .*none.pem does not exist"),
        ("server.pem", "none.key", "line 3: serve.certificate: .*none.key does not exist"),
        ("server.pem", "client.key", "line 3: serve.certificate: .*not a certificate and its key"),
        ("server.key", None, "line 3: serve.certificate: .*not a certificate and its key"),
        ("server.pem", "locked.key", "line 3: serve.certificate: .*not a certificate and its key, unencrypted"),
    ],
)
def test_files_that_do_not_fit_are_named_with_their_line(made, certificate, key, message):
    if key == "locked.key":
        command = [
            "openssl",
            "ec",
            "-aes128",
            "-passout",
            "pass:secret",
            "-in",
            made / "server.key",
            "-out",
            made / key,
        ]
        subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ConfigError, match=message):
        tls_of(read_config_text(farm_text(made, certificate, key)))


def test_a_key_without_a_certificate():
    farm = read_config_text(FARM.replace("[serve]\n", '[serve]\nprivate_key = "farm.key"\n'))
    with pytest.raises(ConfigError, match=r"line 3: serve.private_key: needs certificate"):
        tls_of(farm)
