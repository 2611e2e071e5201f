# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs in which Sheaf answers otherwise than Ray and is meant to: why, and what it says. Anything
else that differs is a bug."""

from typing import NamedTuple


class Difference(NamedTuple):
    reason: str
    lines: list  # What Sheaf says.


KNOWN: dict[str, Difference] = {
    "drawn.seed_0004": Difference(
        "A misspelt option of a call is refused by options(), where it is written, not by remote().",
        [
            "actor {'max_restarts': 1}",
            "method {'max_task_retries': 0}",
            "method(): fine",
            "decorated: fine",
            "options {'num_gpus': 0}",
            "options(): fine",
            "made with ()",
            "remote(): fine",
            "options of the call {'num_cpus': 1}",
            "options() of the method: raises TypeError <TypeError>",
        ],
    ),
    "drawn.seed_0015": Difference(
        "What is no reference is a ValueError in a list, too, whatever it is.",
        [
            "get [[]] {}",
            "get(): raises ValueError <ValueError>",
            "nothing",
            "get 3 {}",
            "get(): raises ValueError <ValueError>",
            "nothing",
            "get <function <l {}",
            "get(): raises ValueError <ValueError>",
            "nothing",
            "wait 4 {'fetch_local': False, 'num_returns': 2}",
            "wait(): fine",
            "[0, 0]",
            "wait 5 {'num_returns': 1}",
            "wait(): raises TypeError <TypeError>",
            "wait 3 {'fetch_local': False}",
            "wait(): raises ValueError <ValueError>",
        ],
    ),
    "drawn.seed_0042": Difference(
        "What is no reference is a ValueError in a list, too, whatever it is.",
        [
            "get 'x' {}",
            "get(): raises ValueError <ValueError>",
            "nothing",
            "get [[]] {}",
            "get(): raises ValueError <ValueError>",
            "nothing",
            "get a ref {}",
            "get(): fine",
            "1",
            "wait 8 {'fetch_local': True, 'num_returns': 1}",
            "wait(): raises TypeError <TypeError>",
            "wait 8 {}",
            "wait(): raises TypeError <TypeError>",
            "wait 0 {'fetch_local': False}",
            "wait(): fine",
            "[1, 1]",
        ],
    ),
}
