# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of Ray that programs import and Sheaf does not have yet: they exist, and say so when they
are used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def function(name: str, instead: str = "") -> Any:
    """A function that raises NotImplementedError with its name."""

    def absent(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name} is not in Sheaf yet" + (f"; {instead}" if instead else "")
        )

    absent.__name__ = absent.__qualname__ = name.rpartition(".")[2]
    absent.__doc__ = "Not in Sheaf yet: raises NotImplementedError."
    return absent


def a_class(name: str, instead: str = "") -> Any:
    """A class whose constructor raises NotImplementedError with its name."""
    body = {
        "__init__": function(name, instead),
        "__doc__": "Not in Sheaf yet: raises NotImplementedError.",
    }
    return type(name.rpartition(".")[2], (), body)
