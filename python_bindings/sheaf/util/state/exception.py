# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What listings raise in Ray. Here they raise RayError where the cluster does not answer."""


class DataSourceUnavailable(Exception):
    """A part of the cluster does not answer."""


class RayStateApiException(Exception):
    """A listing failed."""

    def __init__(self, err_msg: str, *args: object):
        super().__init__(f"{err_msg}\n\nThis may be because the cluster has ended, or ends.", *args)


class ServerUnavailable(RayStateApiException):
    """The cluster does not answer."""

    def __init__(self, err_msg: str = "the cluster does not answer"):
        super().__init__(err_msg)
