"""Clients of MQTT: paho-mqtt, which is imported when a feed or outlet is opened, its logins and TLS."""

from __future__ import annotations

import ssl
from typing import Any

from momostream.feeds.messages import Address
from momostream.feeds.secrets import LOGIN, TLS, read_login, tls_context
from momostream.feeds.source import FeedError

__all__ = ["PASSING", "check_settings", "import_paho", "make_client", "reason_of"]

#: Reasons of a broker to reject a client for now: unavailable, busy, quota exceeded, too many connections.
PASSING = {0x88, 0x89, 0x97, 0x9F}


def import_paho() -> Any:
    """The modules of paho-mqtt."""
    try:
        import paho.mqtt.client
        import paho.mqtt.packettypes
        import paho.mqtt.properties
        import paho.mqtt.subscribeoptions
    except ModuleNotFoundError:
        raise ValueError("MQTT needs paho-mqtt: pip install 'momostream[mqtt]'") from None
    return paho.mqtt


def check_settings(address: Address, *more: str) -> None:
    """Raise an error for a setting of an address that does not exist, or that needs TLS."""
    known = (*more, *LOGIN, *TLS)
    if unknown := address.settings.keys() - set(known):
        raise ValueError(f"{address.name}: unknown setting {', '.join(sorted(unknown))}; there is {', '.join(known)}")
    needless = [name for name in TLS if name in address.settings]
    if needless and not address.is_encrypted:
        raise ValueError(f"{address.name}: {', '.join(needless)} needs TLS: write mqtts:// instead of mqtt://")


def make_client(address: Address, **options: Any) -> Any:
    """A client for MQTT 5 with the login and TLS of an address."""
    mqtt = import_paho().client
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, **options)
    try:
        login = read_login(address.settings, address.user, address.password, "MOMOSTREAM_MQTT_PASSWORD")
        if address.is_encrypted:
            client.tls_set_context(tls_context(address.settings))
    except (ValueError, OSError) as error:
        raise ValueError(f"{address.name}: {error}") from None
    client.username_pw_set(*login)
    return client


def reason_of(error: OSError, name: str) -> str:
    """Why a broker cannot be reached; a `FeedError` where waiting does not help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "" if "hostname" in error.verify_message.lower() else ": name its authority with ?ca=FILE"
        raise FeedError(f"{name}: the certificate of the broker is not accepted: {error.verify_message}{hint}")
    if isinstance(error, ssl.SSLError):
        return f"the broker cannot be reached: TLS failed ({error.reason or error})"
    return f"the broker cannot be reached: {error.strerror or error}"
