# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ray.client(...): init, written another way."""

from __future__ import annotations

from typing import Any

from sheaf import lifecycle

ClientContext = lifecycle.Context  # What connect() gives.
RAY_ADDRESS_ENVIRONMENT_VARIABLE = "RAY_ADDRESS"
RAY_NAMESPACE_ENVIRONMENT_VARIABLE = "RAY_NAMESPACE"
RAY_RUNTIME_ENV_ENVIRONMENT_VARIABLE = "RAY_RUNTIME_ENV"


class ClientBuilder:
    """client(address).namespace("name").env({...}).connect(): a driver of the cluster at this
    address."""

    def __init__(self, address: str | None = None):
        self._address = address
        self._given: dict[str, Any] = {}

    def env(self, env: dict[str, Any]) -> ClientBuilder:
        """The runtime environment of all tasks and actors."""
        self._given["runtime_env"] = env
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Where named actors are found."""
        self._given["namespace"] = namespace
        return self

    def connect(self) -> lifecycle.Context:
        """init. Raises as init does."""
        return lifecycle.init(self._address, **self._given)


def client(address: str | None = None, _deprecation_warn_enabled: bool = True) -> ClientBuilder:
    """A builder whose connect() joins the cluster at `address`, as init takes it."""
    return ClientBuilder(address)
