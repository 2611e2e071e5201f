# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A TCP relay that keeps all bytes that pass, to see what a listener on the wire would see."""

import socket
import threading


class RecordingRelay:
    """Listens at `address`; `target_port` may be set later, before the first connection."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target_port = 0
        self._streams = []  # One bytearray for each direction of each connection.
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def recorded(self) -> bytes:
        return b"\0".join(bytes(stream) for stream in list(self._streams))

    def close(self) -> None:
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                return
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                stream = bytearray()
                self._streams.append(stream)
                threading.Thread(
                    target=self._forward, args=(source, sink, stream), daemon=True
                ).start()

    @staticmethod
    def _forward(source, sink, stream) -> None:
        try:
            while data := source.recv(1 << 16):
                stream += data
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
