# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`ray start` where all machines of a cluster were given one secret, as in the pods that KubeRay
makes: nodes then listen for each other, as Ray's do, and not on this machine alone."""

from __future__ import annotations

import os
import socket

from sheaf._internal import job_server

_OF_KUBERAY = "KUBERAY_GEN_RAY_START_CMD"  # A variable of all its pods.
_OF_SHEAF = ("SHEAF_TOKEN", "SHEAF_TOKEN_FILE")
_GROUP_VARIABLE = "RAY_NODE_TYPE_NAME"
_GROUP_LABEL = "ray.io/node-group"
# Nothing is sent there: the kernel is asked which address of this machine leads out of it.
_OUTSIDE = ((socket.AF_INET, "198.51.100.1", "0.0.0.0"), (socket.AF_INET6, "2001:db8::1", "::"))


def take() -> bool:
    """Whether there is one; one in a file is put where the node that is started finds it.

    Raises:
        ValueError: KubeRay made this pod and gave it none.
        OSError: the file that RAY_AUTH_TOKEN_PATH names cannot be read.
    """
    if os.environ.get("RAY_AUTH_MODE") == "token" and (token := job_server.saved_token()):
        os.environ["RAY_AUTH_TOKEN"] = token
        return True
    if _OF_KUBERAY not in os.environ:
        return False
    if any(os.environ.get(name) for name in _OF_SHEAF):
        return True
    raise ValueError(
        "nodes of several pods need a secret in common: say `authOptions: {mode: token}` in the "
        "spec of the RayCluster"
    )


def listening(own_address: str | None, joins: bool) -> dict[str, str]:
    """The options of `sheaf start` by which a node listens for all others.

    Args:
        own_address: what others dial; None: found out.
        joins: the node joins a cluster; it finds its address on the way to the head.

    Raises:
        OSError: the machine has no way to others.
    """
    if own_address:  # Then it is the only one, unless it is that of a pod.
        found = own_address
        everywhere = found if _OF_KUBERAY not in os.environ else "::" if ":" in found else "0.0.0.0"
    else:
        found, everywhere = _outgoing()
    options = {"host": everywhere}
    # Metrics have a token of their own; that of RAY_AUTH_TOKEN is used for them, too.
    if os.environ.get("RAY_AUTH_TOKEN") and not any(os.environ.get(name) for name in _OF_SHEAF):
        options["metrics-address"] = everywhere
    if own_address or not joins:
        bracketed = f"[{found}]" if ":" in found else found
        options["advertise-address"] = f"{bracketed}:0"  # The port that it listens on.
    return options


def _outgoing() -> tuple[str, str]:
    problem: OSError | None = None
    for family, outside, everywhere in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return probe.getsockname()[0], everywhere
        except OSError as error:
            problem = error
    raise OSError(f"this machine has no way to others: {problem}; name its own --node-ip-address")


def group_label(labels: dict[str, str]) -> dict[str, str]:
    """`labels`, and the group that the variables of this pod name, unless they name one."""
    group = os.environ.get(_GROUP_VARIABLE)
    return {_GROUP_LABEL: group, **labels} if group else labels
