# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Functions and classes on their way to workers: pickled once, named by the hash of their contents.

Small ones travel inside the template of their calls, larger ones lie in the cluster's key-value
store, as long as a job that exported them runs or a detached actor of it lives. Those that hold
references (an actor's handle in a global, say) travel as an object, so that the references are
counted; those of more than a megabyte as an object that holds their pickle, which a worker reads
once.
"""

from __future__ import annotations

import importlib
import os
import sys

from sheaf import _core

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

FUNCTION, CLASS, METHOD = "f:", "c:", "m:"  # How a key begins.
NAMED = "name:"  # Of what a call of another language names (sheaf.cross_language).
KEY_SPACE = "sheaf-functions"
_INLINE_BYTES = 24 * 1024
_LARGEST_KEPT = 1 << 20  # In the key-value store.
_LARGE = 10 << 20  # From here on there is a warning,
_TOO_LARGE = 95 << 20  # and from here on an error, as Ray has them.
VALUE, PICKLE = 1, 2  # What a carrier holds.


_names: dict[str, str] = {}  # In a worker: of what calls name, by key; CLASS: of its actor.
_MOST_NAMES = 10_000


def note_name(key: str, target: Any) -> None:
    """In a worker: `key` names this function or class."""
    if len(_names) >= _MOST_NAMES:
        del _names[next(iter(_names))]
    module = getattr(target, "__module__", None) or ""
    if module == "__main__":  # The program that a worker runs is the driver's.
        module = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    name = f"{module}.{getattr(target, '__name__', type(target).__name__)}"
    _names[CLASS if key.startswith(CLASS) else key] = name


def name_of(key: str) -> str | None:
    """In a worker: "module.function" or "module.Class.method" of what `key` names; None: it is not
    known here."""
    if key.startswith(METHOD):
        return f"{_names[CLASS]}.{key.split(':')[1]}" if CLASS in _names else None
    return f"{_names[CLASS]}.__init__" if key.startswith(CLASS) else _names.get(key)


class Exported:
    """A function or class as calls name it."""

    __slots__ = ("key", "extra", "carrier")

    def __init__(self, key: str, extra: bytes, carrier: _core.ObjectRef[Any] | None):
        self.key = key
        self.extra = extra
        self.carrier = carrier  # Its calls begin with this reference, whose value is the function.


def export(prefix: str, target: Any, rule: Any, about: Any) -> Exported:
    """Makes `target` callable in workers. `rule`: retry_exceptions; `about`: told to whoever finds
    the actor by name.

    TypeError: it cannot be pickled; the text says why. ValueError: it is too large, with what it
    captures.
    """
    import pickle

    from sheaf._internal import serialization  # Which not every program needs.

    try:
        body, references = serialization.dumps(target)
    except TypeError as error:
        what = "actor class" if prefix == CLASS else "function"
        name = getattr(target, "__qualname__", repr(target))
        raise TypeError(f"Could not serialize the {what} {name}: {error}") from None
    _check_size(target, len(body), prefix == CLASS)
    kept: bytes | None = body
    carrier = None
    carried = 0
    rule_bytes = serialization.dumps(tuple(rule))[0] if isinstance(rule, (list, tuple)) else None
    digest = _digest(body + (rule_bytes or b""))
    if references:
        carrier, kept, carried = _core.put(target), None, VALUE
    elif len(body) > _LARGEST_KEPT:
        carrier, kept, carried = _core.put(pickle.PickleBuffer(body)), None, PICKLE
    elif len(body) > _INLINE_BYTES:
        _core.key_put(KEY_SPACE, digest, body, False, of_job=True)
        kept = None
    # `about` may name exception classes of the program (retry_exceptions of methods).
    extra = serialization.dumps((kept, carried, rule_bytes, about, len(body)))[0]
    return Exported(prefix + digest, extra, carrier)


def _check_size(target: Any, size: int, is_class: bool) -> None:
    if size < _LARGE:
        return
    kind, name = (
        "actor class" if is_class else "remote function",
        getattr(target, "__qualname__", repr(target)),
    )
    hint = (
        "Check that its definition is not implicitly capturing a large array or "
        "other object in scope. "
        "Tip: use put() to put large objects in the object store, and pass the reference."
    )
    if size > _TOO_LARGE:
        raise ValueError(
            f"The {kind} {name} is too large ({size >> 20} MiB > "
            f"FUNCTION_SIZE_ERROR_THRESHOLD={_TOO_LARGE >> 20} MiB). {hint}"
        )
    import warnings

    warnings.warn(f"The {kind} {name} is very large ({size >> 20} MiB). {hint}", stacklevel=2)


def method_key(name: str, rule: Any) -> tuple[str, bytes]:
    """The key and extra of an actor's method."""
    if not isinstance(rule, (list, tuple)):
        return METHOD + name, b""
    import pickle

    from sheaf._internal import serialization  # Which not every program needs.

    rule_bytes = serialization.dumps(tuple(rule))[0]
    return f"{METHOD}{name}:{_digest(rule_bytes)}", pickle.dumps((None, 0, rule_bytes, None, 0), 5)


def named(path: str) -> Any:
    """What "module:name" names, without the @sheaf.remote around it. Raises what importing it
    raises, and AttributeError: there is no such name."""
    module, _, name = path.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target._undecorated if hasattr(type(target), "_undecorated") else target


def _digest(data: bytes) -> str:
    from _blake2 import blake2b  # hashlib would load OpenSSL.

    return blake2b(data, digest_size=16).hexdigest()
