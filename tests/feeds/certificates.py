"""Certificates for servers on the loopback, made by OpenSSL."""

from __future__ import annotations

import shutil
import subprocess

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes certificates")


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=600)


def make(folder):
    """An authority ``ca.pem``, and certificates and keys that it signed: ``server.*`` and ``client.*``."""
    folder.mkdir(exist_ok=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl(
        *("req", "-x509", *curve, *usage, "-subj", "/CN=authority", "-days", 2),
        *("-keyout", folder / "ca.key", "-out", folder / "ca.pem"),
    )
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=reader")):
        files = {end: folder / f"{name}.{end}" for end in ("key", "csr", "pem", "ext")}
        _openssl("req", *curve, "-subj", subject, "-keyout", files["key"], "-out", files["csr"])
        files["ext"].write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl(
            *("x509", "-req", "-in", files["csr"], "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-days", 2),
            *("-CAcreateserial", "-extfile", files["ext"], "-out", files["pem"]),
        )
    return folder
