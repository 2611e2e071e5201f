# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes a dataset of a dataset, lazily: maps, filters, columns, blocks, exchanges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sheaf.data import exchange, plan, transforms
from sheaf.data.compute import TaskOptions, task_options, udf_of
from sheaf.data.user_code import operator_name

Dataset = Any  # Which has this among its bases.
GroupedData = Any


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


class Changes:
    """The lazy methods of Dataset."""

    _plan: plan.Node

    def _with(self, node: plan.Node) -> Dataset:
        raise NotImplementedError

    def _map(
        self, what: str, label: str, fn: Any, given: Mapping[str, Any], make: Any, **more: Any
    ) -> Dataset:
        """A Map node of a user's function."""
        given = dict(given)
        udf = udf_of(
            what,
            fn,
            given.pop("fn_constructor_args", None),
            given.pop("fn_constructor_kwargs", None),
        )
        compute, concurrency = given.pop("compute", None), given.pop("concurrency", None)
        name = operator_name(label, udf)
        transform = make(
            udf,
            fn_args=given.pop("fn_args", None) or (),
            fn_kwargs=given.pop("fn_kwargs", None),
            name=name,
        )
        options = task_options(what, udf, compute, concurrency, given)
        default = options == TaskOptions()
        return self._with(
            plan.Map((self._plan,), name, transform, udf, options, default_options=default, **more)
        )

    def map(self, fn: Callable[[dict[str, Any]], dict[str, Any]], **options: Any) -> Dataset:
        """Each row through a function.

        Args:
            fn: takes a row as a dict and returns one; a class with __call__ runs in actors.
            **options: compute, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs,
                num_cpus, num_gpus, memory, concurrency, and options of remote functions.

        Returns:
            The dataset.
        """
        return self._map("map", "Map", fn, options, transforms.map_rows, keeps_rows=True)

    def flat_map(
        self, fn: Callable[[dict[str, Any]], list[dict[str, Any]]], **options: Any
    ) -> Dataset:
        """Each row through a function that gives any number of rows.

        Args:
            fn: takes a row as a dict and returns a list of rows, or yields them.
            **options: as of map.

        Returns:
            The dataset.
        """
        return self._map("flat_map", "FlatMap", fn, options, transforms.flat_map)

    def map_batches(
        self,
        fn: Any,
        *,
        batch_size: int | str | None = None,
        compute: Any = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool = True,
        **options: Any,
    ) -> Dataset:
        """Batches of rows through a function.

        Args:
            fn: takes a batch and returns one, or yields several; a class with __call__ runs in
                actors.
            batch_size: rows; the last batch of a task has what is left. None or "auto": whole
                blocks.
            compute: TaskPoolStrategy or ActorPoolStrategy.
            batch_format: "default" and "numpy": dicts of arrays; "pandas", "pyarrow", "polars".
            zero_copy_batch: batches are read-only views of blocks; False: copies.
            udf_modifying_row_count: False: the function gives as many rows as it gets.
            **options: as of map.

        Returns:
            The dataset.
        """
        size = None if batch_size in ("auto", "default") else batch_size
        if isinstance(size, str):
            raise ValueError(f"map_batches: batch_size={size!r}: want a number of rows, or None")
        make = functools.partial(
            transforms.map_batches,
            batch_size=size,
            batch_format=batch_format,
            zero_copy_batch=zero_copy_batch,
        )
        given = {"compute": compute, **options}
        keeps = not udf_modifying_row_count
        return self._map(
            "map_batches", "MapBatches", fn, given, make, rows=size or 0, keeps_rows=keeps
        )

    def filter(self, fn: Any = None, expr: Any = None, **options: Any) -> Dataset:
        """The rows for which something is true.

        Args:
            fn: takes a row as a dict; or an expression.
            expr: an expression of sheaf.data.expressions, or its text.
            **options: as of map.

        Returns:
            The dataset.
        """
        if (fn is None) == (expr is None):
            raise ValueError("filter: want either fn or expr")
        if fn is not None and not callable(getattr(fn, "evaluate", None)):
            return self._map(
                "filter", "Filter", fn, options, transforms.filter_rows, keeps_schema=True
            )
        expression = expr if fn is None else fn
        if isinstance(expression, str):
            from sheaf.data.expressions import parse

            expression = parse(expression)
        settled = task_options(
            "filter", None, options.pop("compute", None), options.pop("concurrency", None), options
        )
        return self._with(
            plan.FilterExpr(
                (self._plan,),
                "Filter",
                transforms.filter_expression(expression),
                None,
                settled,
                keeps_schema=True,
                default_options=settled == TaskOptions(),
                expression=expression,
            )
        )

    def add_column(
        self,
        col: str,
        fn: Callable[[Any], Any],
        *,
        batch_format: str | None = "pandas",
        **options: Any,
    ) -> Dataset:
        """A further column, or another in the place of one.

        Args:
            col: its name.
            fn: takes a batch and returns the column, or one value for all rows.
            batch_format: of the batch.
            **options: as of map.

        Returns:
            The dataset.
        """
        if batch_format not in ("pandas", "pyarrow", "numpy", "default", "polars"):
            raise ValueError(
                f"add_column: batch_format={batch_format!r}: want 'pandas', 'pyarrow' or 'numpy'"
            )
        if not callable(fn):
            raise ValueError(f"add_column: fn={fn!r}: want a function of a batch")
        adding = functools.partial(_with_column, col, fn, batch_format)
        functools.update_wrapper(adding, fn, assigned=("__name__",), updated=())
        make = functools.partial(transforms.map_batches, batch_format="pyarrow")
        return self._map("add_column", "AddColumn", adding, options, make, keeps_rows=True)

    def with_columns(self, exprs: Any = None, *more_exprs: Any, **options: Any) -> Dataset:
        """Further columns by expressions, which all see the columns that are there.

        Args:
            exprs: names with expressions of sheaf.data.expressions.
            *more_exprs: further such mappings.
            **options: as of map.

        Returns:
            The dataset.
        """
        expressions: dict[str, Any] = {}
        for mapping in (exprs, *more_exprs):
            expressions.update(mapping or {})
        if not expressions:
            raise ValueError("with_columns: want names with expressions")
        settled = task_options("with_columns", None, options.pop("compute", None), None, options)
        label = f"WithColumns({', '.join(expressions)})"
        return self._with(
            plan.Map(
                (self._plan,),
                label,
                transforms.with_columns(expressions),
                None,
                settled,
                keeps_rows=True,
                default_options=settled == TaskOptions(),
            )
        )

    def with_column(self, column_name: str, expr: Any, **options: Any) -> Dataset:
        """A further column by an expression.

        Args:
            column_name: its name.
            expr: of sheaf.data.expressions.
            **options: as of map.

        Returns:
            The dataset.
        """
        return self.with_columns({column_name: expr}, **options)

    def _project(
        self,
        label: str,
        transform: Any,
        on_schema: Any,
        options: Mapping[str, Any],
        node: Any = plan.Map,
        **more: Any,
    ) -> Dataset:
        given = dict(options)
        settled = task_options(
            label, None, given.pop("compute", None), given.pop("concurrency", None), given
        )
        return self._with(
            node(
                (self._plan,),
                label,
                transform,
                None,
                settled,
                keeps_rows=True,
                on_schema=on_schema,
                default_options=settled == TaskOptions(),
                **more,
            )
        )

    def select_columns(self, cols: str | list[str], **options: Any) -> Dataset:
        """Some columns, in this order.

        Args:
            cols: their names.
            **options: as of map.

        Returns:
            The dataset.
        """
        names = columns_of("select_columns", cols)
        on_schema = functools.partial(_selected, names)
        return self._project(
            "select_columns",
            transforms.select(names),
            on_schema,
            options,
            plan.Select,
            columns=names,
        )

    def drop_columns(self, cols: list[str], **options: Any) -> Dataset:
        """All columns but some.

        Args:
            cols: their names.
            **options: as of map.

        Returns:
            The dataset.
        """
        names = columns_of("drop_columns", cols)
        return self._project(
            "drop_columns", transforms.drop(names), functools.partial(_dropped, names), options
        )

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **options: Any) -> Dataset:
        """Other names of columns.

        Args:
            names: old names with new ones, or new names for all.
            **options: as of map.

        Returns:
            The dataset.
        """
        transform = transforms.rename(names)
        return self._project(
            "rename_columns", transform, functools.partial(_through, transform), options
        )

    def explode(self, column: str) -> Dataset:
        """One row for each element of a column of lists; none for an empty list or NULL.

        Args:
            column: its name.

        Returns:
            The dataset.
        """
        return self._project(
            "explode", functools.partial(_explode, column), None, {}
        )._not_one_to_one()

    def _not_one_to_one(self) -> Dataset:
        import dataclasses

        assert isinstance(self._plan, plan.Map)
        return self._with(dataclasses.replace(self._plan, keeps_rows=False))

    def limit(self, limit: int) -> Dataset:
        """The first rows.

        Args:
            limit: how many, 0 or more.

        Returns:
            The dataset.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit={limit!r}: want a number of rows")
        if limit < 0:
            raise ValueError(f"limit={limit}: want 0 or more rows")
        return self._with(plan.Limit((self._plan,), limit))

    def union(self, *other: Dataset) -> Dataset:
        """Datasets one behind the other.

        Args:
            *other: the others.

        Returns:
            The dataset.
        """
        return self._with(plan.Union((self._plan, *(one._plan for one in other))))

    def zip(self, *other: Dataset) -> Dataset:
        """Columns of datasets of equal lengths side by side; a name that is taken gets _1 etc.

        Args:
            *other: the others.

        Returns:
            The dataset.
        """
        return self._with(plan.Zip((self._plan, *(one._plan for one in other))))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: list[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """Other blocks of the same rows.

        Args:
            num_blocks: how many.
            target_num_rows_per_block: or how many rows each has.
            strict: has no effect: blocks have that many rows, and the last what is left.
            shuffle: rows go to random blocks; else they keep their order.
            keys: rows with equal ones go to one block.
            sort: blocks are sorted by `keys`.

        Returns:
            The dataset.
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition: want either num_blocks or target_num_rows_per_block")
        for name, value in (
            ("num_blocks", num_blocks),
            ("target_num_rows_per_block", target_num_rows_per_block),
        ):
            if value is not None and value < 1:
                raise ValueError(f"repartition: {name}={value}: want 1 or more")
        if keys is not None:
            if num_blocks is None:
                raise ValueError("repartition: keys want num_blocks")
            names = columns_of("repartition", keys)
            return self._with(
                plan.Exchange(
                    (self._plan,), "Repartition", exchange.ByKeys(num_blocks, keys=names, sort=sort)
                )
            )
        if shuffle:
            if num_blocks is None:
                raise ValueError("repartition: shuffle=True wants num_blocks")
            return self.random_shuffle(num_blocks=num_blocks)
        if sort:
            raise ValueError("repartition: sort=True wants keys")
        return self._with(plan.Repartition((self._plan,), num_blocks, target_num_rows_per_block))

    def random_shuffle(
        self, *, seed: Any = None, num_blocks: int | None = None, **options: Any
    ) -> Dataset:
        """All rows in random order.

        Args:
            seed: the same gives the same order for the same blocks.
            num_blocks: how many blocks come out; None: as many as the size asks for.
            **options: options of remote functions, for its tasks.

        Returns:
            The dataset.
        """
        settled = task_options("random_shuffle", None, None, None, options)
        method = exchange.Shuffle(_count("random_shuffle", num_blocks), seed=_seed(seed))
        return self._with(plan.Exchange((self._plan,), "RandomShuffle", method, settled))

    def randomize_block_order(self, *, seed: Any = None) -> Dataset:
        """The blocks in random order, their rows as they are.

        Args:
            seed: the same gives the same order.

        Returns:
            The dataset.
        """
        return self._with(plan.RandomizeBlocks((self._plan,), _seed(seed)))

    def random_sample(self, fraction: float, *, seed: Any = None) -> Dataset:
        """Each row with some probability.

        Args:
            fraction: from 0 to 1.
            seed: the same gives the same rows for the same blocks.

        Returns:
            The dataset.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"random_sample: fraction={fraction}: want 0 to 1")
        transform = functools.partial(_sample, float(fraction), _seed(seed))
        return self._with(
            plan.Map(
                (self._plan,), f"RandomSample({fraction})", transform, keeps_schema=True, alone=True
            )
        )

    def sort(
        self, key: str | list[str], descending: bool | list[bool] = False, boundaries: Any = None
    ) -> Dataset:
        """All rows in the order of columns, NULL last; equal keys keep their order.

        Args:
            key: the columns, the most significant first.
            descending: whether large values come first; of all columns or of each.
            boundaries: values of the first column between blocks, rising; None: from samples.

        Returns:
            The dataset.
        """
        names = columns_of("sort", key)
        if not names:
            raise ValueError("sort: want one column or more")
        down = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        if len(down) != len(names):
            raise ValueError(f"sort: {len(down)} values of descending for {len(names)} columns")
        known = plan.known_schema(self._plan)
        if known is not None:
            from sheaf.data.schema import check_columns

            check_columns(names, known.names, "sort")
        bounds = None if boundaries is None else tuple(sorted(boundaries))
        method = exchange.Sort(keys=tuple(zip(names, map(bool, down))), bounds=bounds)
        return self._with(plan.Exchange((self._plan,), "Sort", method))

    def groupby(
        self, key: str | list[str] | None, num_partitions: int | None = None
    ) -> GroupedData:
        """Groups of rows with equal keys.

        Args:
            key: the columns; None: one group of all.
            num_partitions: how many partitions the rows go to; None: as many as the size asks for.

        Returns:
            What has aggregate, count, sum, map_groups and so on.
        """
        from sheaf.data.grouped import GroupedData

        names = () if key is None else columns_of("groupby", key)
        known = plan.known_schema(self._plan)
        if known is not None:
            from sheaf.data.schema import check_columns

            check_columns(names, known.names, "groupby")
        return GroupedData(self, names, _count("groupby", num_partitions, "num_partitions"))

    def join(
        self,
        ds: Dataset,
        join_type: str,
        num_partitions: int | None = None,
        on: Any = ("id",),
        right_on: Any = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: Mapping[str, Any] | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Rows of two datasets whose keys are equal.

        Args:
            ds: the other, the right side.
            join_type: "inner", "left_outer", "right_outer", "full_outer", "left_semi",
                "right_semi", "left_anti" or "right_anti".
            num_partitions: how many partitions the rows go to; None: as many as the size asks for.
            on: columns of both, or of this one.
            right_on: columns of the other; None: `on`.
            left_suffix: of columns of this one whose names both have.
            right_suffix: of those of the other.
            partition_size_hint: has no effect.
            aggregator_ray_remote_args: options of remote functions, for its tasks.
            validate_schemas: has no effect: types of keys are always compared.

        Returns:
            The dataset.
        """
        from sheaf.data.join import Join

        left = columns_of("join", on)
        right = left if right_on is None else columns_of("join", right_on)
        method = Join(
            _count("join", num_partitions, "num_partitions"),
            keeps_rows=False,
            kind=join_type,
            left=left,
            right=right,
            suffixes=(left_suffix, right_suffix),
        )
        method.check()
        settled = task_options("join", None, None, None, aggregator_ray_remote_args or {})
        return self._with(
            plan.Exchange((self._plan, ds._plan), f"Join({join_type})", method, settled)
        )


def _count(what: str, count: int | None, name: str = "num_blocks") -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"{what}: {name}={count!r}: want a number of 1 or more")
    return count


def _seed(seed: Any) -> int | None:
    return getattr(seed, "seed", seed)


def _selected(names: tuple[str, ...], schema: Any) -> Any:
    import pyarrow as pa

    from sheaf.data.schema import check_columns

    check_columns(names, schema.names, "select_columns")
    return pa.schema([schema.field(name) for name in names])


def _dropped(names: tuple[str, ...], schema: Any) -> Any:
    import pyarrow as pa

    from sheaf.data.schema import check_columns

    check_columns(names, schema.names, "drop_columns")
    return pa.schema([field for field in schema if field.name not in names])


def _through(transform: Any, schema: Any) -> Any:
    return next(iter(transform(iter([schema.empty_table()])))).schema


def _with_column(name: str, fn: Any, batch_format: str | None, table: Any) -> Any:
    from sheaf.data.block import table_to_batch
    from sheaf.data.columns import column_of

    values = fn(table_to_batch(table, batch_format))
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):  # For all rows.
        values = [values] * table.num_rows
    column = column_of(name, values)
    place = table.schema.get_field_index(name)
    return table.append_column(name, column) if place < 0 else table.set_column(place, name, column)


def _explode(column: str, tables: Any) -> Any:
    import pyarrow.compute as pc

    from sheaf.data.schema import check_columns

    for table in tables:
        check_columns([column], table.column_names, "explode")
        lists = table.column(column)
        rows = table.take(pc.list_parent_indices(lists))
        yield rows.set_column(table.column_names.index(column), column, pc.list_flatten(lists))


def _sample(fraction: float, seed: int | None, tables: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    from sheaf.data.task_context import TaskContext

    start = None if seed is None else [seed, TaskContext.current().task_idx]
    random = np.random.default_rng(start)
    for table in tables:
        yield table.filter(pa.array(random.random(table.num_rows) < fraction))
