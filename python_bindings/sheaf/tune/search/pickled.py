# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A searcher whose state is all its fields."""

from __future__ import annotations

from typing import Any

from sheaf.tune.search.searcher import Searcher


class PickledSearcher(Searcher):
    """The base of searchers on top of other packages, whose own state is pickled with theirs."""

    def get_state(self) -> dict[str, Any]:
        """Returns what set_state() wants later, picklable by cloudpickle."""
        return dict(vars(self))

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was.

        Args:
            state: what its get_state() returned.
        """
        vars(self).update(state)

    def save(self, checkpoint_path: str) -> None:
        """Writes the state.

        Args:
            checkpoint_path: the file.
        """
        import cloudpickle

        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.get_state(), file)

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_path: what its save() wrote.
        """
        import cloudpickle

        with open(checkpoint_path, "rb") as file:
            self.set_state(cloudpickle.load(file))
