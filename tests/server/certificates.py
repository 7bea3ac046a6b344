"""Certificates for tests, of authorities that live as long as the process."""

import datetime as dt
import ssl

import trustme

AUTHORITY = trustme.CA()
OTHER_AUTHORITY = trustme.CA()


LONG_AGO = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)


def server_context(*, asks_clients=False, until=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=until).configure_cert(context)
    if asks_clients:
        AUTHORITY.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(authority=AUTHORITY, certificate_of=None, until=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate_of is not None:
        issued = certificate_of.issue_cert("client@example.org", not_before=LONG_AGO, not_after=until)
        issued.configure_cert(context)
    return context
