# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Search spaces give what Ray's give: the same configurations in the same order, and, with Optuna and
HyperOpt, the same suggestions. space_traces.py records them."""

import gzip
import importlib.util
import json
import logging
import types

import pytest
from sheaf.tune.search import BasicVariantGenerator, grid_search, sample
from sheaf.tune.search.variant_generator import flatten_resolved_vars, format_vars
from space_traces import RECORDED, plain, random_states, searchers, spaces, suggestions

LIBRARY = types.SimpleNamespace(**{**vars(sample), "grid_search": grid_search})


@pytest.fixture(scope="module")
def recorded():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


def made(name):
    """What our generator makes of a space, for each random state."""
    for state, random_state in random_states():
        space, arguments = spaces(LIBRARY)[name]
        generator = BasicVariantGenerator(random_state=random_state, **arguments)
        trials = [
            [
                plain(config),
                f"{number}_{format_vars(resolved)}" if resolved else str(number),
                plain(flatten_resolved_vars(resolved)),
            ]
            for number, (resolved, config) in enumerate(generator.variants(space, 3))
        ]
        yield f"{name} {state}", [generator.total(space, 3), trials]


def test_there_are_enough():
    assert len(spaces(LIBRARY)) >= 60


@pytest.mark.parametrize("name", spaces(LIBRARY))
def test_the_same_configurations(name, recorded):
    for key, (total, trials) in made(name):
        expected_total, expected = recorded["variants"][key]
        assert total == expected_total
        assert [config for config, _, _ in trials] == [config for config, _, _ in expected], key
        for (_, tag, evaluated), (_, expected_tag, expected_evaluated) in zip(trials, expected):
            if "_object_at_" not in expected_tag:  # Ray shows a domain that was drawn as an object.
                assert (tag, evaluated) == (expected_tag, expected_evaluated), key
            assert "object_at" not in tag


@pytest.mark.parametrize("name", spaces(LIBRARY))
def test_a_generator_goes_on_from_its_state(name):
    space, arguments = spaces(LIBRARY)[name]
    generator = BasicVariantGenerator(random_state=1, **arguments)
    states, whole = [generator.get_state()], []
    for _, config in generator.variants(space, 3):
        whole.append(plain(config))
        states.append(json.loads(json.dumps(generator.get_state())))
    for taken, state in enumerate(states):
        other = BasicVariantGenerator(random_state=1, **arguments)
        other.set_state(state)
        assert [plain(config) for _, config in other.variants(space, 3)] == whole[taken:], taken


@pytest.mark.parametrize("package", ["optuna", "hyperopt"])
def test_the_same_suggestions(package, recorded):
    for needed in ("optuna", "hyperopt"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    from sheaf.tune.search.hyperopt import HyperOptSearch
    from sheaf.tune.search.optuna import OptunaSearch

    logging.getLogger("optuna").setLevel(logging.WARNING)
    library = {"OptunaSearch": OptunaSearch, "HyperOptSearch": HyperOptSearch}
    compared = 0
    for name, searcher, space, mode in searchers(library, LIBRARY):
        if name.startswith(package):
            assert suggestions(searcher, space, mode) == recorded["suggestions"][name], name
            compared += 1
    assert compared >= 20
