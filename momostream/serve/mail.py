"""Alarms by mail: those that wait in a store, together in one message, until the mail server has taken it."""

from __future__ import annotations

import json
import logging
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from itertools import islice
from pathlib import Path
from typing import Any

from momostream.serve.book import Book
from momostream.serve.config import MailConfig, split_address
from momostream.serve.webhooks import AlarmSender
from momostream.storage.store import Store

__all__ = ["Mail", "alarm_sentence", "mail_of"]

# Alarms that one mail reports, and those that it lists.
MOST_ALARMS, MOST_LISTED = 10_000, 50

_log = logging.getLogger("momostream.serve")


def alarm_sentence(alarm: Mapping[str, Any]) -> str:
    """An alarm in words.

    Examples
    --------
    >>> alarm_sentence({"key": "T03", "row": 812, "time": "2025-01-02T03:40:00", "target": "power", "value": 48.0,
    ...                 "lower": 38.0, "upper": 42.0, "level": 0.999})
    'T03, row 812, 2025-01-02T03:40:00: power is 48, expected 38 to 42'
    """
    if not {"row", "target", "value"} <= alarm.keys():
        return _line(json.dumps(alarm, ensure_ascii=False))
    where = [alarm.get("key"), f"row {alarm['row']}", alarm.get("time")]
    low, high = (_number(alarm.get(side)) for side in ("lower", "upper"))
    at = ", ".join(str(part) for part in where if part is not None)
    return _line(f"{at}: {alarm['target']} is {_number(alarm['value'])}, expected {low} to {high}")


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "any"


def _line(text: str) -> str:
    """On one line: names from a feed must not begin another line, or another header."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:500]


def mail_of(
    feed: str, found: Sequence[tuple[int, Mapping[str, Any]]], sender: str, to: Sequence[str], store: str
) -> EmailMessage:
    """The mail about alarms of a feed with their numbers in the store of this identity.

    The same alarms have the same Message-ID, those of another store of this name another one.
    """
    mail = EmailMessage()
    first, last = found[0][0], found[-1][0]
    machines = list(dict.fromkeys(str(alarm.get("key", "")) for _, alarm in found))
    named = ", ".join(name for name in machines[:5] if name) + (", ..." if len(machines) > 5 else "")
    n_alarms = f"{len(found)} alarm{'' if len(found) == 1 else 's'}"
    mail["Subject"] = _line(f"{feed}: {n_alarms}{': ' if named else ''}{named}")[:200]
    mail["From"], mail["To"], mail["Date"] = sender, ", ".join(to), formatdate()
    mail["Message-ID"] = f"<{feed}.{first}-{last}.{store}@momostream>"
    mail["Auto-Submitted"] = "auto-generated"
    lines = [f"{number}. {alarm_sentence(alarm)}" for number, alarm in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        lines.append(f"... and {len(found) - MOST_LISTED} more, up to number {last}")
    mail.set_content("\n".join([f"{n_alarms} of {feed}:", "", *lines, ""]))
    return mail


class Mail(AlarmSender):
    """Sends the alarms of one store to some people, in a thread of its own.

    Parameters
    ----------
    feed, store, book
        As in `momostream.serve.webhooks.Webhook`.
    config
        Server, login and people.
    password
        Of the login; None if there is none.
    context
        TLS towards the server.
    """

    def __init__(
        self, feed: str, store: Path, book: Path, config: MailConfig, password: str | None, context: ssl.SSLContext
    ) -> None:
        super().__init__(feed, store, book, config.timeout, config.pause)
        self.config, self._password, self._context = config, password, context
        # The server may change, the people stay the same.
        self.target = f"mailto:{','.join(config.to)}"

    def deliver(self) -> bool:
        """Send one mail about all that waits; whether it arrived, or nothing waits."""
        book = Book(self.book)
        try:
            with Store(self.store, read_only=True) as store:
                lines = list(islice(store.alarms(book.sent(self.target)), MOST_ALARMS))
                identity = store.identity
            found = [(number, json.loads(alarm.text)) for number, alarm in lines]
            if not found:
                return True
            if not self._send(mail_of(self.feed, found, self.config.sender, self.config.to, identity)):
                return False
            book.note_sent(self.target, found[-1][0])
            self.n_sent += 1
            return True
        finally:
            book.close()

    def _send(self, mail: EmailMessage) -> bool:
        try:
            with self._connect() as server:
                if self.config.user is not None:
                    server.login(self.config.user, self._password or "")
                refused = server.send_message(mail)
        except OSError as error:
            if self._attempts.note(succeeded=False):
                _log.warning(
                    "%s: a mail was not taken by %s: %s; trying again", self.feed, self.config.server, _why(error)
                )
            return False
        if refused:
            _log.warning("%s: %s does not accept %s", self.feed, self.config.server, ", ".join(sorted(refused)))
        self._attempts.note(succeeded=True)
        return True

    def _connect(self) -> smtplib.SMTP:
        host, port = split_address(self.config.server)
        if self.config.encryption == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=self.timeout, context=self._context)
        server = smtplib.SMTP(host, port, timeout=self.timeout)
        try:
            if self.config.encryption == "starttls":
                server.starttls(context=self._context)
        except BaseException:
            server.close()
            raise
        return server


def _why(error: OSError) -> str:
    """What went wrong, without texts of the server, which may repeat a login."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the login is not accepted (code {error.smtp_code})"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the server answers with code {error.smtp_code}"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "the server does not offer what is needed, STARTTLS or a login"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the server accepts none of the recipients"
    return str(error.strerror or error) or type(error).__name__
