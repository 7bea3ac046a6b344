"""Certificates for tests, of authorities that live as long as the process."""

import ssl

import trustme

AUTHORITY = trustme.CA()
OTHER_AUTHORITY = trustme.CA()


def server_context(*, asks_clients=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    if asks_clients:
        AUTHORITY.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(authority=AUTHORITY, certificate_of=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate_of is not None:
        certificate_of.issue_cert("client@example.org").configure_cert(context)
    return context
