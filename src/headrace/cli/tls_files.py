"""Files of certificates that a command is given for a server with TLS."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from headrace.cli.options import SERVER_SCHEMES

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for a server with TLS; without any of them a command connects without TLS.

    Attributes:
        authorities: certificates that are trusted; None trusts those of the system.
        certificate: of the client, where the server asks for one.
        key: of this certificate; None: it is in the same file.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def require_server(self, address: str) -> None:
        """Refuses files for what is not the address of a server.

        Raises:
            click.UsageError: refused.
        """
        if self != TlsFiles() and not address.startswith(SERVER_SCHEMES):
            raise click.UsageError(
                "--ca, --certificate and --key: expected the address of a server, such as tcp://127.0.0.1:9000, got "
                f"{address}"
            )

    def context(self) -> ssl.SSLContext | None:
        """Returns the context for a client; None without files.

        Raises:
            click.BadParameter: no certificate or no key in a file.
            click.UsageError: a key without its certificate.
        """
        if self == TlsFiles():
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.authorities is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(self.authorities)
            except OSError as error:
                raise click.BadParameter(
                    f"{self.authorities}: expected a PEM file of certificates, got {error}"
                ) from error
        self._show_certificate(context)
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        if self.certificate is None:
            if self.key is not None:
                raise click.UsageError(
                    "--key: expected the certificate of this key as well; pass --certificate"
                )
            return
        try:
            # A key with a pass phrase is refused: the prompt for it would hold up the command.
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ValueError) as error:
            raise click.BadParameter(
                f"{self.certificate}: expected PEM files of a certificate and of its key, without a pass phrase, got "
                f"{self.key or 'no --key'}: {error}"
            ) from error


def tls_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for servers with TLS; the command gets them as `tls_files`."""

    @click.option(
        "--ca",
        metavar="FILE",
        type=_FILE,
        help="For a server with TLS: a PEM file of the certificates that are trusted.",
    )
    @click.option(
        "--certificate",
        metavar="FILE",
        type=_FILE,
        help="For a server that asks clients for certificates: a PEM file with one.",
    )
    @click.option(
        "--key",
        metavar="FILE",
        type=_FILE,
        help="The PEM file of the key of --certificate.  [default: that of the certificate]",
    )
    @functools.wraps(function)
    def with_files(
        *args: object, ca: Path | None, certificate: Path | None, key: Path | None, **options: object
    ) -> None:
        function(*args, tls_files=TlsFiles(ca, certificate, key), **options)

    return with_files
