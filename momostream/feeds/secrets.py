"""Secrets of addresses: users, passwords, certificates and keys, from the environment or from files.

An address names where a secret is, never the secret itself: command lines are seen by everyone on a machine, and
addresses stand in logs, reports and stores.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

__all__ = ["Login", "check_no_password", "check_tls_files", "read_login", "read_secret", "relative_to", "tls_context"]

#: Settings of addresses that say who logs in, and which certificates are used.
LOGIN = ("user", "password_file", "password_env")
TLS = ("ca", "cert", "key")
# Settings that name a file.
_FILES = re.compile(r"(?<=[?&])(ca|cert|key|server_cert|password_file|token_file|ssl\.[a-z.]*location)=([^&]*)")
# Parts of an address that are secrets themselves.
_PASSWORD = re.compile(
    r"^[a-z.]+://[^/@]*:[^/@]+@|[?&](sasl\.password|ssl\.key\.password|ssl\.key\.pem|password|token)=[^&]", re.I
)


class Login(NamedTuple):
    """Who logs in; None where nobody does."""

    user: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password={'***' if self.password else None})"


def read_secret(variable: str, file: str | None, folder: Path = Path()) -> str | None:
    """A secret of the environment, else the first line of a file; None if there is neither."""
    if os.environ.get(variable):
        return os.environ[variable].strip()
    if file is None:
        return None
    try:
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file}: the file of a secret is not text") from None
    if not lines or not lines[0].strip():
        raise ValueError(f"{file}: the file of a secret is empty")
    return lines[0].strip()


def read_login(settings: Mapping[str, str], user: str | None, password: str | None, variable: str) -> Login:
    """The login of an address.

    Parameters
    ----------
    settings
        Of the address: ``user``; ``password_file``, a file whose first line is the password; ``password_env``, the
        name of an environment variable.
    user, password
        As the address has them before its host.
    variable
        The environment variable that is used if a user is named and nothing says where the password is.

    Examples
    --------
    >>> os.environ["PLANT"] = "secret"
    >>> read_login({"password_env": "PLANT"}, "ann", None, "MOMOSTREAM_MQTT_PASSWORD")
    Login(user='ann', password=***)
    """
    user = settings.get("user", user)
    if name := settings.get("password_env"):
        if not os.environ.get(name):
            raise ValueError(f"the environment variable {name}, which password_env names, is not set")
        return Login(user, read_secret(name, None))
    if file := settings.get("password_file"):
        return Login(user, read_secret("", file))
    if user is not None and password is None:
        password = read_secret(variable, None)
    return Login(user, password)


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """TLS that checks the certificate and the name of the server.

    Parameters
    ----------
    settings
        Of the address: ``ca``, a file with certificates of authorities, in place of those of the system; ``cert`` and
        ``key``, the certificate of this client and its key. Keys must not be encrypted.
    """
    check_tls_files(settings)
    try:
        context = ssl.create_default_context(cafile=settings.get("ca"))
        if "cert" in settings:
            # A password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(settings["cert"], settings.get("key"), password="")
    except ssl.SSLError as error:
        which = " and ".join(settings[name] for name in TLS if name in settings)
        raise ValueError(f"{which}: not certificates and a key that fit ({error.reason or error})") from None
    return context


def server_tls_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """TLS of a server with this certificate; its key may be in the same file, and must not be encrypted."""
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise ValueError(f"{path} does not exist")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A password keeps OpenSSL from asking for one at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        which = certificate if key is None else f"{certificate} and {key}"
        raise ValueError(f"{which}: not a certificate and its key, unencrypted ({error.reason or error})") from None
    return context


def check_tls_files(settings: Mapping[str, str]) -> None:
    """Raise an error for files of certificates that do not exist, or a key without its certificate."""
    if "key" in settings and "cert" not in settings:
        raise ValueError("the setting key needs cert, the certificate of the key")
    for name in TLS:
        if name in settings and not os.path.isfile(settings[name]):
            raise ValueError(f"{settings[name]}: the file that {name} names does not exist")


def check_no_password(option: str, address: str | None) -> None:
    """Reject a password in an address of the command line, which every user of the machine can see.

    Examples
    --------
    >>> check_no_password("FEED", "mqtts://ann@broker/rows?password_file=mqtt.secret")
    >>> check_no_password("FEED", "mqtts://ann:secret@broker/rows")
    Traceback (most recent call last):
    ValueError: FEED contains a password, which every user of this machine can see: name a file with
    ?password_file=FILE, or an environment variable with ?password_env=NAME
    """
    if address is not None and "://" in address and _PASSWORD.search(address):
        raise ValueError(
            f"{option} contains a password, which every user of this machine can see: name a file with "
            "?password_file=FILE, or an environment variable with ?password_env=NAME"
        )


def relative_to(folder: Path, address: str) -> str:
    """The address with files of certificates and passwords that begin at a folder.

    Examples
    --------
    >>> relative_to(Path("/etc/farm"), "mqtts://broker/rows?ca=plant.pem&client_id=a")
    'mqtts://broker/rows?ca=/etc/farm/plant.pem&client_id=a'
    """
    return _FILES.sub(lambda found: f"{found[1]}={quote(os.fspath(folder / unquote(found[2])), safe='/')}", address)
