# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes a dataset of a dataset, lazily, row by row: maps, filters, columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sheaf.data import plan, transforms
from sheaf.data.compute import TaskOptions, task_options, udf_of
from sheaf.data.methods.arguments import columns_of
from sheaf.data.user_code import operator_name

Dataset = Any  # Which has this among its bases.


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
                alone=expression.is_of_task(),
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
            fn: takes a batch and returns the column, with a value for each row, or one value,
                in no list, for all rows.
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
            *more_exprs: further such mappings, or unnest(...) of structs.
            **options: as of map.

        Returns:
            The dataset.
        """
        from sheaf.data.expressions.several import UnnestExpr

        expressions: dict[str, Any] = {}
        for given in (exprs, *more_exprs):
            if isinstance(given, UnnestExpr):
                expressions[repr(given)] = given
            else:
                expressions.update(given or {})
        if not expressions:
            raise ValueError("with_columns: want names with expressions")
        settled = task_options("with_columns", None, options.pop("compute", None), None, options)
        label = f"WithColumns({', '.join(expressions)})"
        return self._with(
            plan.WithColumns(
                (self._plan,),
                label,
                transforms.with_columns(expressions),
                None,
                settled,
                keeps_rows=True,
                alone=any(one.is_of_task() for one in expressions.values()),
                default_options=settled == TaskOptions(),
                expressions=expressions,
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
        keeps_rows: bool = True,
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
                keeps_rows=keeps_rows,
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
        on_schema = functools.partial(_dropped, names)
        return self._project(
            "drop_columns", transforms.drop(names), on_schema, options, plan.Drop, columns=names
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
        exploding = functools.partial(_explode, column)
        return self._project("explode", exploding, None, {}, keeps_rows=False)


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
