# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Why a public name of Ray is absent here, or is something else: one sentence for users each. What
differs and has no reason here is a bug; a reason that no name needs fails the tests, too.

A key is "MODULE NAME", or "MODULE NAME.MEMBER"; `*` stands for anything. The first that fits counts."""

REASONS: dict[str, str] = {}
