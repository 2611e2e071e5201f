# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs about ray.data in which Sheaf answers otherwise and is meant to: of differences.py."""

# Bugs: they differ, and are not mended yet.
OPEN: set[str] = set()

# (why, what Sheaf says)
KNOWN: dict[str, tuple[str, list[str]]] = {
    "data_batches.batches_of_wrong_sizes": (
        "Batches of no rows are refused; on Ray such an iterator gives nothing.",
        ["raises", "raises", "raises", "raises 'xml': yes", "raises 'xml': yes"],
    ),
    "data_batches.iterators_over_batches": (
        "A dataset has as many blocks as were asked for: of ten rows in three, Ray makes four.",
        [
            "[4, 4, 2]",
            "[4, 4]",
            "[3, 3, 4]",
            "[10]",
            "[10]",
            "['{id: array<int64>[0, 1, 2, 3, 4]}', '{id: array<int64>[5, 6, 7, 8, 9]}']",
        ],
    ),
    "data_batches.mistakes_about_classes": (
        "What cannot be called is refused where it is given; on Ray when the dataset runs.",
        [
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
            "raises",
        ],
    ),
    "data_batches.views_cannot_be_written": (
        "zero_copy_batch=False gives arrays that may be written, as Ray's documents say; "
        "its own are read-only.",
        ["raises", "{id: 7}", "{id: 1}"],
    ),
    "data_blocks.as_a_data_frame": (
        "DataFrames have NumPy's types, and the columns of a dataset without rows; Ray's "
        "have Arrow's types, and no columns.",
        ["DataFrame {a: [1, 2], b: ['x', nan]} int64 [0, 1]", "raises", "(0, 1)"],
    ),
    "data_blocks.other_numbers_of_blocks": (
        "No blocks are refused; on Ray such a dataset loses its rows.",
        [
            "[2, 2, 2, 2, 2] 5",
            "[10] 1",
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
            "raises",
            "raises",
            "raises",
        ],
    ),
    "data_blocks.parts": (
        "Parts differ by one row at most; Ray deals out whole blocks.",
        ["[5, 5]", "[2, 2, 2, 2, 2]", "[[0, 1, 2], [3, 4, 5], [6, 7, 8]]", "raises", "raises"],
    ),
    "data_expressions.arithmetic": (
        "Operators mean what they mean in Python: 1 / 2 is 0.5, 3 // 2 is the integer 1. "
        "Ray's / truncates integers, and its // makes floats.",
        [
            "{s: 11, d: 9, m: 2, q: 2.5}",
            "{s: 22, d: 19, m: 4, q: 5.0}",
            "{s: 33, d: 29, m: 6, q: 7.5}",
            "{f: 1, r: 0, n: 3}",
            "{f: 2, r: -1, n: 5}",
            "{f: 4, r: -2, n: 7}",
        ],
    ),
    "data_expressions.division": (
        "Operators mean what they mean in Python: a quotient of integers is a float, and no sum of them wraps.",
        ["{q: 0.5, f: 0.5}", "{q: 0.0, f: nan}", "{q: -0.5, f: -inf}", "raises"],
    ),
    "data_expressions.remainders": (
        "Operators mean what they mean in Python: // rounds down, % has the sign of the divisor.",
        ["{r: 1, f: 3}", "{r: 2, f: -4}", "{r: 2, f: 4}"],
    ),
    "data_expressions.types_of_results": (
        "A quotient of integers is a float.",
        ["i: int32, f: float, a: int64, b: float", "i: int32, f: float, c: double, d: bool"],
    ),
    "data_expressions.wrong_expressions": (
        "An expression has no truth value: `a and b` of expressions would silently be b.",
        ["raises", "raises", "raises", "raises", "raises", "raises"],
    ),
    "data_files.blocks_of_files": (
        "override_num_blocks holds; Ray reads small files as one block.",
        ["2", "[3, 3, 3, 3] 4"],
    ),
    "data_files.json_there_and_back": (
        "JSON is written as json.dumps writes it; Ray's has no spaces.",
        [
            "1 files ['.json']",
            '{"a": 1, "l": [1]} {"a": 2, "l": []}',
            "{a: 1, l: [1]}",
            "{a: 2, l: []}",
        ],
    ),
    "data_files.json_with_moments": (
        "Moments are written as texts that readers take for moments again; Ray writes "
        "milliseconds.",
        ["1 files ['.json']", '{"t": "2024-01-02T03:04:05", "s": "\\u00fc"}'],
    ),
    "data_files.parquet_of_several_files": (
        "input_files names the files; Ray's names none before it runs.",
        [
            "{id: 0, s: 'a'}",
            "{id: 1, s: 'b'}",
            "{id: 2, s: 'c'}",
            "{id: 3, s: 'a'}",
            "{id: 4, s: 'b'}",
            "{id: 5, s: 'c'}",
            "6 ['0.parquet', '1.parquet']",
            "{id: 0, s: 'a'}",
            "{id: 1, s: 'b'}",
            "{id: 2, s: 'c'}",
            "{id: 3, s: 'a'}",
            "{id: 4, s: 'b'}",
            "{id: 5, s: 'c'}",
        ],
    ),
    "data_files.parquet_that_is_none": ("The error names the file.", ["raises 'x.parquet': yes"]),
    "data_files.partitions_by_two_columns": (
        "Values of folders of Parquet files are integers where all look so, as in pyarrow.",
        ["['out/k=a/n=1', 'out/k=b/n=2']", "{v: 1.5, k: 'a', n: 1}", "{v: 2.5, k: 'b', n: 2}"],
    ),
    "data_files.records_of_tensorflow": (
        "TFRecords need no TensorFlow.",
        ["1 files ['.tfrecords']", "{f: 0.5, i: 1, l: [1, 2], s: b'x'}"],
    ),
    "data_files.some_columns_of_parquet": (
        "A column that no file has is an error; Ray gives rows of a column of its own making.",
        ["{s: 'a'}", "{s: 'b'}", "{s: 'c'}", "['s']", "[{'id': 0}]", "raises 'zz': yes"],
    ),
    "data_files.writing_nothing": ("The folder is there, though empty; Ray makes none.", ["0"]),
    "data_groups.aggregates_of_nan": (
        "NaN is a value, and sums, means and deviations with it are NaN; Ray gives None.",
        ["nan 1.0 3.0 nan"],
    ),
    "data_groups.unique": (
        "A dataset without rows has a list of no values; Ray gives None.",
        ["[1, 2, 3] ['a', 'b']", "[1, None]", "[]", "raises 'zz': yes"],
    ),
    "data_pairs.joins_with_lists_and_structs": (
        "Columns keep their order: those of the left side, then the right side's. Ray "
        "puts nested ones last.",
        [
            "{id: 1, v: [1], s: {x: 1}, w: 'a'}",
            "{id: 1, v: [1], s: {x: 1}, w: 'a'}",
            "{id: 2, v: [2, 3], s: None, w: None}",
        ],
    ),
    "data_pairs.unions": (
        "Datasets come one behind the other, as Ray's documents say; Ray's blocks come in turns.",
        [
            "{id: 0}",
            "{id: 1}",
            "{id: 0}",
            "{id: 1}",
            "{id: 2}",
            "{id: 0}",
            "{id: 1}",
            "{id: 0}",
            "{id: 1}",
            "{id: 2}",
            "{id: 0}",
            "{id: 1}",
            "5",
            "{id: 0}",
            "{id: 1}",
        ],
    ),
    "data_pairs.wrong_joins": (
        "The error names the column that is not there.",
        ["raises 'sideways': yes", "raises", "raises 'zz': yes", "raises"],
    ),
    "data_rows.a_range_of_tensors": (
        "Tensors have Arrow's own type, so that other libraries know them.",
        [
            "{data: array<int64>[[0, 0], [0, 0]]}",
            "{data: array<int64>[[1, 1], [1, 1]]}",
            "{data: array<int64>[[2, 2], [2, 2]]}",
            "data: extension<arrow.fixed_shape_tensor[value_type=int64, shape=[2,2]]>",
        ],
    ),
    "data_rows.an_empty_range": (
        "A dataset without rows keeps its columns.",
        ["no rows", "0 [] ['id']"],
    ),
    "data_rows.arrays": (
        "Tensors have Arrow's own type, so that other libraries know them.",
        [
            "{data: 0}",
            "{data: 1}",
            "{data: 2}",
            "{data: array<int64>[0, 1]}",
            "{data: array<int64>[2, 3]}",
            "{data: array<float64>[1.0, 1.0]}",
            "data: extension<arrow.fixed_shape_tensor[value_type=float, shape=[3,4]]>",
        ],
    ),
    "data_rows.blocks_of_items": (
        "A dataset has as many blocks as were asked for: of ten rows in four, Ray makes five.",
        ["3", "2", "4"],
    ),
    "data_rows.columns_named_twice": (
        "A name that another column has is refused; on Ray one column is lost.",
        ["raises", "raises", "raises", "raises", "raises"],
    ),
    "data_rows.items_that_are_no_dicts": (
        "A column has one type in all blocks.",
        [
            "{item: 1}",
            "{item: 2}",
            "{item: 3}",
            "item: int64",
            "{item: 'a'}",
            "{item: 'b'}",
            "{item: 1.5}",
            "{item: 2.0}",
        ],
    ),
    "data_rows.rows_like_dicts": (
        "Keys of rows that are no texts become texts.",
        ["{b: 1, a: 2}", "{id: 'text'}", "{1: 0}", "{1: 1}"],
    ),
    "data_rows.values_of_all_kinds_through_a_map": (
        "Tensors have Arrow's own type, so that other libraries know them.",
        [
            "{int: 1, float: 0.5, text: 'ü', bytes: b'\\x00\\x01', flag: True, none: None, list: [1, 2], struct: {a: 1, b: [None, 'x']}, numpy: 3, array: array<uint8>[0, 1]}",
            "int: int64, float: double, text: string, bytes: binary, flag: bool, none: null, list: list<item: int64>, struct: struct<a: int64, b: list<item: string>>, numpy: int16, array: extension<arrow.fixed_shape_tensor[value_type=uint8, shape=[2]]>",
        ],
    ),
    "data_torch.dtypes_of_some_columns": (
        "A column that dtypes={...} does not name keeps its own; on Ray that is a KeyError.",
        [
            "{a: float32[3][0.0, 1.0, 2.0], b: float16[3][0.0, 0.5, 1.0]}",
            "{a: bfloat16[3][0.0, 1.0, 2.0], b: int32[3][0, 0, 1]}",
            "raises nothing, gives [{a: tensor([0, 1, 2]), b: tensor([0.0000, 0.5000, 1.0000], "
            "dtype=torch.float64)}]",
        ],
    ),
    "data_torch.dtypes_that_are_none": (
        "A column that dtypes={...} does not name keeps its own; on Ray that is a KeyError.",
        [
            "raises nothing, gives [{a: tensor([0., 1., 2.]), b: tensor([0.0000, 0.5000, 1.0000], "
            "dtype=torch.float64)}]",
            "raises",
            "raises",
        ],
    ),
    "data_torch_values.tensors_with_gradients": (
        "The values of tensors that require gradients are taken; Ray refuses them.",
        [
            "raises nothing, gives [{x: 1.0}, {x: 1.0}, {x: 1.0}]",
            "raises nothing, gives [{x: array<float32>[1.0, 1.0]}, {x: array<float32>[1.0, 1.0]}, "
            "{x: array<float32>[1.0, 1.0]}]",
        ],
    ),
    "data_types.dictionaries_of_arrow": (
        "Dictionary columns are sorted by their values; Ray does not sort them.",
        [
            "{c: 'x', v: 1}",
            "{c: 'y', v: 2}",
            "{c: 'x', v: 3}",
            "{c: 'x', sum(v): 4}",
            "{c: 'y', sum(v): 2}",
            "{c: 'y', v: 2}",
            "{c: 'x', v: 1}",
            "{c: 'x', v: 3}",
        ],
    ),
    "data_types.infinities_and_zeros": (
        "-0.0 equals 0.0, so it is no group of its own.",
        [
            "{v: inf}",
            "{v: -inf}",
            "{v: -0.0}",
            "{v: 0.0}",
            "{v: inf}",
            "{v: -inf}",
            "{v: -0.0}",
            "{v: 0.0}",
            "v: double",
            "{v: 0.0, sum(n): 3}",
        ],
    ),
    "data_types.moments_made_by_rows": (
        "Moments have microseconds, as Python's have; Ray takes the coarsest unit that fits.",
        [
            "{t: datetime.datetime(2024, 1, 2, 3, 4, 5), d: datetime.date(2024, 1, 2), s: datetime.timedelta(0)}",
            "t: timestamp[us], d: date32[day], s: duration[us]",
        ],
    ),
    "data_types.moments_with_zones": (
        "Moments keep their time zone through functions.",
        [
            "{t: datetime.datetime(2024, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))}",
            "{t: datetime.datetime(2024, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))}",
            "t: timestamp[us, tz=UTC]",
        ],
    ),
    "data_types.stamps_of_pandas": (
        "Blocks are Arrow tables, and rows have Python's own datetime and None; Ray's "
        "blocks may be DataFrames, whose rows have Timestamp and NaT.",
        ["{kind: 'datetime'}", "{kind: 'NoneType'}", "'M'"],
    ),
    "data_types.tensors_of_text_and_flags": (
        "Arrays of text are lists: Arrow has no tensors of text.",
        ["{t: array<bool>[[True, False]]}", "{t: ['a', 'bc']}"],
    ),
}
