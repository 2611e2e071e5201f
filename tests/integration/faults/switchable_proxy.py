# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The address of a cluster that outlives its head: TCP connections go on to whichever head it
points at.

proxy = Proxy(network, 2, "10.77.0.1:6379")   # listens at the same port in namespace 2
proxy.point_at("10.77.0.5:6379")              # cuts all connections; new ones go there
"""

import asyncio
import contextlib
import os
import subprocess
import sys

from packet_switch import address_of


class Proxy:
    def __init__(self, network, place: int, target: str):
        self.address = f"{address_of(place)}:{target.rsplit(':', 1)[1]}"
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        }  # It is none of the cluster's.
        self._process = subprocess.Popen(
            [*network.within(place), sys.executable, __file__, self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )
        self.point_at(target)

    def point_at(self, target: str) -> None:
        self._process.stdin.write(target + "\n")
        said = self._process.stdout.readline()
        assert said == target + "\n", f"the proxy ended: {said!r}"

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


async def forward(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(address: str) -> None:
    target, open_writers = "", set()

    async def take(reader, writer):
        host, port = target.rsplit(":", 1)
        open_writers.add(writer)
        with contextlib.suppress(OSError):
            there, out = await asyncio.open_connection(host, int(port))
            open_writers.add(out)
            if writer.is_closing():  # Pointed elsewhere meanwhile.
                out.close()
            await asyncio.gather(forward(reader, out), forward(there, writer))
            open_writers.discard(out)
        writer.close()
        open_writers.discard(writer)

    host, port = address.rsplit(":", 1)
    await asyncio.start_server(take, host, int(port))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    while line := await commands.readline():
        target = line.decode().strip()
        for writer in list(open_writers):
            writer.transport.abort()
        print(target, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
