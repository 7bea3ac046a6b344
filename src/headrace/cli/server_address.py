"""Servers that a command asks: `tcp://host:port` and `unix:///path`."""

from __future__ import annotations

import os
import ssl

import click

from headrace.cli.tls_files import TlsFiles
from headrace.errors import AuthenticationError
from headrace.server.client.client import Client

_TIMEOUT = 10.0


def connect(address: str, tls_files: TlsFiles) -> Client:
    """Returns a client of a server, with the token of the environment variable HEADRACE_TOKEN.

    Args:
        address: of the server.
        tls_files: certificates of both sides.

    Raises:
        click.BadParameter: not an address, or no certificate in a file.
        click.ClickException: the server asks for another token or for none, or a certificate is not accepted.
        Disconnected, DeadlineExceeded: the server does not answer.
    """
    tls = tls_files.context()
    try:
        return Client(address, token=os.environ.get("HEADRACE_TOKEN") or None, tls=tls, timeout=_TIMEOUT)
    except AuthenticationError as error:
        raise click.ClickException(f"{error}. {_remedy(error)}") from error
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _remedy(error: BaseException | None) -> str:
    """Returns what a user can do so that both sides trust each other."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
            return (
                "Pass --certificate, and --key, with a certificate of an authority that the server asks for "
                "(client_authorities)"
            )
        if isinstance(error, ssl.SSLError):
            return "Pass --ca with a PEM file of the authorities that signed the certificate of the server"
        error = error.__cause__
    return "Set HEADRACE_TOKEN to the token of the server, or unset it for a server without one"
