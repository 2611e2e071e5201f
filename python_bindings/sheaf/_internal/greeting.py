# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Whether the one port of a node is at an address: its first words are those of HTTP/2."""

from __future__ import annotations

import socket
import ssl

ANSWER_S = 5.0
# The beginning of HTTP/2, and how a server's answer begins: a frame of settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4


def greet(host: str, port: int) -> None:
    """Returns when a node answers at that address, over TLS or without.

    Raises:
        OSError: nothing there answers as a node does.
    """
    with socket.create_connection((host, port), ANSWER_S) as connection:
        connection.sendall(_HELLO)
        if _answers(connection):
            return
    # A cluster with certificates wants one of ours; that it begins to shake hands is an answer.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), ANSWER_S) as connection,
        context.wrap_socket(connection) as wrapped,
    ):
        if wrapped.selected_alpn_protocol() != "h2":
            raise ConnectionError(f"{host}:{port} answers, but is no node")


def _answers(connection: socket.socket) -> bool:
    head = b""
    try:
        while len(head) < 9:
            piece = connection.recv(9 - len(head))
            if not piece:
                return False
            head += piece
    except ConnectionError:
        return False
    return head[3] == _SETTINGS
