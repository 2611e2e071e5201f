# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What it costs that Sheaf always notes what calls did: the same rows in drivers that stand side by
side and are measured in turns, each with a cluster of its own.

    ./do bench looking [--json FILE] [--turns N] [--pairs N] [--only WORD]

`off` notes nothing, `events` notes calls (SHEAF_EVENTS), `on` takes samples of stacks as well
(SHEAF_PROFILE_HZ): the default. `page` is the same while somebody looks: a process reads the
dashboard's stream of events, with all lanes, and asks for what the overview asks. The columns are
medians over turns of a rate divided by that of `off` in the same turn, for `page` by that of `on`.
A turn lasts a quarter of a second a row, so a slow spell of the machine meets all of them.
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.parse

SIDES = {
    "off": {"SHEAF_EVENTS": "0", "SHEAF_PROFILE_HZ": "0"},
    "events": {"SHEAF_EVENTS": "1", "SHEAF_PROFILE_HZ": "0"},
    "on": {},
    "page": {},
}
ROOT = pathlib.Path(__file__).resolve().parents[1]
DRIVERS = {  # The second: looking_driver.cc.
    "Python": [sys.executable, __file__, "--side"],
    "C++": [str(ROOT / "build/benchmarks/looking_driver")],
}
BESIDE = {"events": "off", "on": "off", "page": "on"}
ALLOWED = {"sync": 2, "in flight": 3}  # Percent that a row may lose.
TURN = 0.25
BATCH = 1000


class Side:
    """A driver with its own cluster, which measures a row when it is told to."""

    def __init__(self, command, name):
        self._process = subprocess.Popen(
            command,
            env=os.environ | SIDES[name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = json.loads(self._process.stdout.readline())
        self.rows = said["rows"]
        self._page = None
        if name == "page":
            self._page = subprocess.Popen(
                [sys.executable, __file__, "--page", said["url"]], stdout=subprocess.PIPE, text=True
            )
            assert self._page.stdout.readline() == "looks\n", "the page shows nothing"

    def rate(self, row):
        self._process.stdin.write(row + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self):
        if self._page is not None:
            assert self._page.poll() is None, "the page has ended by itself"
            self._page.terminate()
            self._page.wait(60)
        self._process.stdin.close()
        self._process.wait(60)


def look(url):
    """What a page does: hears what the cluster does, and asks what waits."""
    address = urllib.parse.urlsplit(url).netloc
    stream = http.client.HTTPConnection(address, timeout=60)
    stream.request("GET", "/api/sheaf/live?lanes=32")
    answer = stream.getresponse()
    asked = 0.0
    for line in answer:
        if line != b"event: digest\n" or time.monotonic() < asked + 2:
            continue
        demand = http.client.HTTPConnection(address, timeout=60)
        demand.request("GET", "/api/sheaf/demand")
        assert demand.getresponse().read()
        demand.close()
        if asked == 0:
            print("looks", flush=True)
        asked = time.monotonic()
    sys.exit("the stream has ended")


def serve():
    """What a side does: answers each line, the name of a row, with its rate."""
    import sheaf

    @sheaf.remote
    def nothing():
        return None

    class Actor:
        def nothing(self):
            return None

    class AsyncActor:
        async def nothing(self):
            return None

    context = sheaf.init(num_cpus=2, include_dashboard=True, dashboard_port=0)
    url = f"http://{context.dashboard_url}"
    get = sheaf.get
    actor = sheaf.remote(num_cpus=0)(Actor).remote()
    coroutines = sheaf.remote(num_cpus=0)(AsyncActor).remote()
    rows = {}
    for name, call in (
        ("task", nothing.remote),
        ("actor call", actor.nothing.remote),
        ("async actor call", coroutines.nothing.remote),
    ):
        rows[f"{name}, sync"] = 1, lambda call=call: get(call())
        rows[f"{name}, in flight"] = (BATCH, lambda call=call: get([call() for _ in range(BATCH)]))
    print(json.dumps({"rows": list(rows), "url": url}), flush=True)
    for line in sys.stdin:
        amount, run = rows[line.strip()]
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < TURN:
            run()
            count += amount
        print(count / (time.perf_counter() - begin), flush=True)
    sheaf.shutdown()


def measure(command, names, pairs, turns, only):
    """{row: {side: [rate, one a turn]}}, over `pairs` sets of drivers, as two processes of one
    program differ by the places of their memory alone."""
    rates = {}
    for number in range(pairs):
        sides = {name: Side(command, name) for name in names}
        for row in (row for row in sides["off"].rows if only in row):
            for side in sides.values():
                side.rate(row)
            mine = rates.setdefault(row, {name: [] for name in names})
            for turn in range(turns):
                order = list(sides) if turn % 2 else list(reversed(sides))
                for name in order:
                    mine[name].append(sides[name].rate(row))
            print(f"set {number + 1} of {pairs}: {row}", file=sys.stderr, flush=True)
        for side in sides.values():
            side.end()
    return rates


def ratio(rates, side, pairs):
    """The median over sets of the median over turns."""
    pieces = [a / b for a, b in zip(rates[side], rates[BESIDE[side]], strict=True)]
    size = len(pieces) // pairs
    return statistics.median(
        statistics.median(pieces[i * size : (i + 1) * size]) for i in range(pairs)
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="writes the figures to this file")
    parser.add_argument("--turns", type=int, default=16, help="turns of a row in a set of drivers")
    parser.add_argument("--pairs", type=int, default=5, help="sets of drivers")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument(
        "--drivers", nargs="+", choices=DRIVERS, default=list(DRIVERS), help="in these languages"
    )
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--page", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve()
        return
    if options.page:
        look(options.page)
    rates = {}
    for language, command in DRIVERS.items():
        if language in options.drivers:
            names = [name for name in SIDES if name != "page" or language == "Python"]
            rates |= measure(command, names, options.pairs, options.turns, options.only)
    found = []
    layout = "| {:26} | {:>10} | {:>10} | {:>8} | {:>8} | {:>8} |"
    print(layout.format("row", "off, /s", "on, /s", *BESIDE), flush=True)
    print("|---|---|---|---|---|---|")
    for row, sides in rates.items():
        # Of C++ there is no page: what it asks is the same.
        row_ratios = {side: ratio(sides, side, options.pairs) for side in BESIDE if side in sides}
        medians = {side: statistics.median(rates) for side, rates in sides.items()}
        allowed = next(value for word, value in ALLOWED.items() if word in row)
        print(
            layout.format(
                row,
                f"{medians['off']:,.0f}",
                f"{medians['on']:,.0f}",
                *(f"{row_ratios[side]:.3f}" if side in row_ratios else "-" for side in BESIDE),
            ),
            flush=True,
        )
        found.append(
            {
                "name": row,
                "unit": "/s",
                "better": "higher",
                "sheaf": medians["on"],
                "floor": medians["off"],
                "ratio_events": row_ratios["events"],
                "ratio_on": row_ratios["on"],
                "ratio_page": row_ratios.get("page"),
                "allowed_percent": allowed,
            }
        )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": found}, indent=1))


if __name__ == "__main__":
    main()
