"""The TLS context of a server, from the files of its certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.cli.serve.document import Document
from headrace.cli.serve.sections import TlsSection


def server_context(document: Document, given: TlsSection) -> ssl.SSLContext:
    """Returns the context of `[tls]`.

    Raises:
        click.BadParameter: a file is missing, or has no certificate or no key.
    """
    folder = document.path.parent
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = folder / given.certificate, folder / given.key
    try:
        # A key with a pass phrase is refused: the prompt for it would hold up the start.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise document.error(
            ("tls", "certificate"),
            f"expected PEM files of a certificate and of its key, without a pass phrase, got {certificate} and {key}: "
            f"{error}",
        ) from error
    if given.client_authorities is not None:
        _ask_clients(context, document, folder / given.client_authorities)
    return context


def _ask_clients(context: ssl.SSLContext, document: Document, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise document.error(
            ("tls", "client_authorities"), f"expected a PEM file of certificates, got {authorities}: {error}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
