# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Functions and classes on their way to workers: pickled once, named by the hash of their contents.

Small ones travel inside the template of their calls; large ones lie in the cluster's key-value store; those that hold
references (an actor's handle in a global, say) travel as an object, so that the references are counted.
"""

from __future__ import annotations

from sheaf import _core

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

FUNCTION, CLASS, METHOD = "f:", "c:", "m:"  # How a key begins.
NAMED = "name:"  # Of what a call of another language names (sheaf.cross_language).
KEY_SPACE = "sheaf-functions"
_INLINE_BYTES = 24 * 1024


class Exported:
    """A function or class as calls name it."""

    __slots__ = ("key", "extra", "carrier")

    def __init__(self, key: str, extra: bytes, carrier: _core.ObjectRef[Any] | None):
        self.key = key
        self.extra = extra
        self.carrier = carrier  # Its calls begin with this reference, whose value is the function.


def export(prefix: str, target: Any, rule: Any, about: Any) -> Exported:
    """Makes `target` callable in workers. `rule`: retry_exceptions; `about`: told to whoever finds the actor by name.

    TypeError: it cannot be pickled; the text says why.
    """
    import pickle

    from sheaf import serialization

    body, references = serialization.dumps(target)
    kept: bytes | None = body
    carrier = None
    rule_bytes = serialization.dumps(tuple(rule))[0] if isinstance(rule, (list, tuple)) else None
    digest = _digest(body + (rule_bytes or b""))
    if references:
        carrier, kept = _core.put(target), None
    elif len(body) > _INLINE_BYTES:
        _core.key_put(KEY_SPACE, digest, body, False)
        kept = None
    extra = pickle.dumps((kept, carrier is not None, rule_bytes, about), 5)
    return Exported(prefix + digest, extra, carrier)


def method_key(name: str, rule: Any) -> tuple[str, bytes]:
    """The key and extra of an actor's method."""
    if not isinstance(rule, (list, tuple)):
        return METHOD + name, b""
    import pickle

    from sheaf import serialization

    rule_bytes = serialization.dumps(tuple(rule))[0]
    return f"{METHOD}{name}:{_digest(rule_bytes)}", pickle.dumps((None, False, rule_bytes, None), 5)


def _digest(data: bytes) -> str:
    from _blake2 import blake2b  # hashlib would load OpenSSL.

    return blake2b(data, digest_size=16).hexdigest()
