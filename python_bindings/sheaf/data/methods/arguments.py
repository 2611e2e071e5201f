# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several methods of datasets have."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

from sheaf.data.errors import suggestion


def columns_of(what: str, columns: Any) -> tuple[str, ...]:
    """Names of columns.

    Raises:
        TypeError: they are no strings.
        ValueError: one comes twice.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r}: want names of columns, as strings")
    if len(set(names)) < len(names):
        raise ValueError(f"{what}: {list(names)}: a column comes twice")
    return names


def count_of(what: str, count: int | None, name: str = "num_blocks") -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"{what}: {name}={count!r}: want a number of 1 or more")
    return count


@dataclasses.dataclass(frozen=True)
class RandomSeedConfig:
    """A seed that says whether each run draws anew.

    Attributes:
        seed: the same gives the same; None: another each time.
        reseed_after_execution: each run of a random_shuffle has another order, which follows from
            the seed and the number of the run. Other operations draw the same each time.
        use_timestamp_as_default: has no effect.
    """

    seed: int | None = None
    reseed_after_execution: bool = True
    use_timestamp_as_default: bool = False

    def __post_init__(self) -> None:
        if self.seed is not None and not isinstance(self.seed, int):
            raise TypeError(f"RandomSeedConfig: seed={self.seed!r}: want a whole number, or None")


def seed_of(seed: Any) -> int | None:
    """The seed that a number or a RandomSeedConfig says.

    Raises:
        TypeError: it is something else.
    """
    found = getattr(seed, "seed", seed)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise TypeError(f"seed={seed!r}: want a whole number, a RandomSeedConfig, or None")
    return found


def reseeds(seed: Any) -> bool:
    """Whether each run is to draw anew."""
    return bool(getattr(seed, "reseed_after_execution", False))


def suggesting(kind: type) -> None:
    """Lets public methods of a class say, of keywords that they do not take, which is meant."""
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        wrapped = hasattr(method, "__wrapped__")
        if name.startswith("_") or not inspect.isfunction(method) or wrapped:
            continue
        parameters = inspect.signature(method).parameters.values()
        if any(one.kind == one.VAR_KEYWORD for one in parameters):
            continue  # They look at what is left over themselves.
        known = frozenset(one.name for one in parameters)
        setattr(kind, name, _suggesting(method, name, known))


def _suggesting(method: Any, name: str, known: frozenset[str]) -> Any:
    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not known.issuperset(kwargs):
            unknown = next(keyword for keyword in kwargs if keyword not in known)
            near = suggestion(unknown, known - {"self"})
            raise TypeError(f"{name}() got an unexpected keyword argument '{unknown}'{near}")
        return method(*args, **kwargs)

    return checked
