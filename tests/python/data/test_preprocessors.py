# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Preprocessors: what each learns of a dataset and makes of it. The expected values are those that
Ray 2.60 gives for the same rows; RobustScaler's follow scikit-learn's formula."""

import math
import warnings

import numpy as np
import pandas
import pyarrow
import pytest
import sheaf
from sheaf import data
from sheaf.data import Preprocessor, preprocessors
from sheaf.data.errors import ColumnNotFoundError
from sheaf.data.preprocessor import PreprocessorNotFittedException
from sheaf.data.preprocessors import (
    Categorizer,
    Chain,
    Concatenator,
    CountVectorizer,
    CustomKBinsDiscretizer,
    FeatureHasher,
    HashingVectorizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    TorchVisionPreprocessor,
    UniformKBinsDiscretizer,
)
from sheaf.data.preprocessors.version_support import UnknownPreprocessorError

TABLE = {
    "x": [1.0, 2.0, 4.0, 9.0, None],
    "i": [1, 2, 3, 4, 10],
    "c": [5.0] * 5,
    "s": ["b", "a", "b", "c", "a"],
    "t": ["to be or", "not to be", "", None, "be be"],
}
LISTS = {"g": [["a", "b"], ["b"], ["c", "a", "a"]], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def table(columns=TABLE):
    """The rows, in blocks of two."""
    whole = pyarrow.table(columns)
    return data.from_arrow([whole.slice(at, 2) for at in range(0, whole.num_rows, 2)])


def results(preprocessor, columns=TABLE):
    """What fit_transform makes, by column."""
    rows = preprocessor.fit_transform(table(columns)).take_all()
    return {name: [row[name] for row in rows] for name in rows[0]}


def close(values):
    return [None if value is None else pytest.approx(value) for value in values]


SCALED = [-0.9486832980505138, -0.6324555320336759, -0.31622776601683794, 0.0, 1.8973665961010275]


@pytest.mark.parametrize(
    "made, stats, expected",
    [
        (
            StandardScaler(["x", "i", "c"]),
            {"mean(x)": 4.0, "mean(i)": 4.0, "mean(c)": 5.0, "std(x)": 3.082207001484488,
             "std(i)": 3.1622776601683795, "std(c)": 0.0},
            {"x": [-0.9733285267845753, -0.6488856845230502, 0.0, 1.6222142113076254, None],
             "i": SCALED, "c": [0.0] * 5},
        ),
        (
            MinMaxScaler(["x", "i", "c"]),
            {"min(x)": 1.0, "min(i)": 1, "min(c)": 5.0, "max(x)": 9.0, "max(i)": 10, "max(c)": 5.0},
            {"x": [0.0, 0.125, 0.375, 1.0, None], "i": [0.0, 1 / 9, 2 / 9, 1 / 3, 1.0],
             "c": [0.0] * 5},
        ),
        (
            MaxAbsScaler(["x", "i"]),
            {"abs_max(x)": 9.0, "abs_max(i)": 10},
            {"x": [1 / 9, 2 / 9, 4 / 9, 1.0, None], "i": [0.1, 0.2, 0.3, 0.4, 1.0]},
        ),
        (
            RobustScaler(["i", "c"], output_columns=["a", "b"]),
            {"low_quantile(i)": 2.0, "median(i)": 3.0, "high_quantile(i)": 4.0,
             "low_quantile(c)": 5.0, "median(c)": 5.0, "high_quantile(c)": 5.0},
            {"a": [-1.0, -0.5, 0.0, 0.5, 3.5], "b": [0.0] * 5, "i": TABLE["i"]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_scalers(made, stats, expected):
    found = results(made)
    assert made.stats_ == {name: pytest.approx(value) for name, value in stats.items()}
    for name, values in expected.items():
        assert found[name] == close(values), name
    assert list(found)[: len(TABLE)] == list(TABLE) and found["s"] == TABLE["s"]


def test_scalers_agree_with_formulae_over_many_blocks():
    random = np.random.default_rng(7)
    values = random.normal(1e6, 3.0, 5000)
    frames = [pandas.DataFrame({"x": part}) for part in np.array_split(values, 13)]
    rows = data.from_pandas(frames)
    scaled = StandardScaler(["x"]).fit_transform(rows)
    made = np.array([row["x"] for row in scaled.take_all()])
    assert made == pytest.approx((values - values.mean()) / values.std(), abs=1e-6)


@pytest.mark.parametrize(
    "made, expected",
    [
        (
            Normalizer(["x", "i"]),
            {"x": [0.7071067811865475, 0.7071067811865475, 0.8, 0.9138115486202573, None],
             "i": [0.7071067811865475, 0.7071067811865475, 0.6, 0.40613846605344767, 1.0]},
        ),
        (
            Normalizer(["x", "i"], "l1", output_columns=["a", "b"]),
            {"a": [0.5, 0.5, 4 / 7, 9 / 13, None], "b": [0.5, 0.5, 3 / 7, 4 / 13, 1.0]},
        ),
        (
            Normalizer(["x", "i"], "max"),
            {"x": [1.0, 1.0, 1.0, 1.0, None], "i": [1.0, 1.0, 0.75, 4 / 9, 1.0]},
        ),
        (
            PowerTransformer(["x", "i"], 0.5),
            {"x": [0.8284271247461903, 1.4641016151377544, 2.4721359549995796, 4.324555320336759,
                   None]},
        ),
        (PowerTransformer(["i"], 2), {"i": [1.5, 4.0, 7.5, 12.0, 60.0]}),
        (PowerTransformer(["i"], 0, "box-cox"), {"i": [math.log(i) for i in TABLE["i"]]}),
        (
            FeatureHasher(["x", "i", "c"], 3, "h"),
            {"h": [[0, 5, 2], [0, 5, 4], [0, 5, 7], [0, 5, 13], [0, 5, math.nan]]},
        ),
        (
            Concatenator(["i", "c"]),
            {"concat_out": [[1, 5], [2, 5], [3, 5], [4, 5], [10, 5]]},
        ),
        (
            Concatenator(["x", "i"], output_column_name="q", dtype=np.float32),
            {"q": [[1, 1], [2, 2], [4, 3], [9, 4], [math.nan, 10]]},
        ),
    ],
)  # fmt: skip
def test_numbers(made, expected):
    found = results(made)
    for name, values in expected.items():
        if isinstance(values[0], list):
            assert np.array(found[name]) == pytest.approx(np.array(values), nan_ok=True)
        else:
            assert found[name] == close(values), name


def test_power_of_negative_numbers_mirrors_that_of_positive_ones():
    made = PowerTransformer(["x"], 2).transform_batch(pandas.DataFrame({"x": [-1.0, 3.0]}))
    assert made["x"].tolist() == pytest.approx([-math.log(2), 7.5])


def test_concatenation_takes_its_columns_away():
    made = Concatenator(["x", "i"], dtype=np.float32).transform(table())
    assert made.columns() == ["c", "s", "t", "concat_out"]
    assert made.take(1)[0]["concat_out"].dtype == np.float32
    flat = results(Concatenator(["v", "w"], flatten=True), {**LISTS, "w": [1, 2, 3]})
    assert [one.tolist() for one in flat["concat_out"]] == [[1, 2, 1], [3, 4, 2], [5, 6, 3]]
    with pytest.raises(Exception, match="column 'g' is list<.*flatten=True"):
        Concatenator(["g"]).transform(table(LISTS)).take_all()


@pytest.mark.parametrize(
    "made, expected",
    [
        (SimpleImputer(["x", "i"]), {"x": [1.0, 2.0, 4.0, 9.0, 4.0], "i": TABLE["i"]}),
        (
            SimpleImputer(["t", "s"], "most_frequent"),
            {"t": ["to be or", "not to be", "", "to be or", "be be"], "s": TABLE["s"]},
        ),
        (
            SimpleImputer(["t"], "constant", "?", output_columns=["u"]),
            {"t": TABLE["t"], "u": ["to be or", "not to be", "", "?", "be be"]},
        ),
        (SimpleImputer(["new"], "constant", 3), {"new": [3] * 5}),
    ],
)
def test_missing_values(made, expected):
    found = results(made)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "made, stats, expected",
    [
        (
            OrdinalEncoder(["s", "i"]),
            {"unique_values(s)": {"a": 0, "b": 1, "c": 2},
             "unique_values(i)": {1: 0, 2: 1, 3: 2, 4: 3, 10: 4}},
            {"s": [1, 0, 1, 2, 0], "i": [0, 1, 2, 3, 4]},
        ),
        (
            OneHotEncoder(["s"]),
            {"unique_values(s)": {"a": 0, "b": 1, "c": 2}},
            {"s": [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]},
        ),
        (
            OneHotEncoder(["s"], max_categories={"s": 2}),
            {"unique_values(s)": {"a": 0, "b": 1}},
            {"s": [[0, 1], [1, 0], [0, 1], [0, 0], [1, 0]]},
        ),
        (
            LabelEncoder("i", output_column="o"),
            {"unique_values(i)": {1: 0, 2: 1, 3: 2, 4: 3, 10: 4}},
            {"i": TABLE["i"], "o": [0, 1, 2, 3, 4]},
        ),
        (
            Categorizer(["s", "t"]),
            {"s": pandas.CategoricalDtype(["a", "b", "c"]),
             "t": pandas.CategoricalDtype(["", "be be", "not to be", "to be or"])},
            {"s": TABLE["s"], "t": TABLE["t"]},
        ),
    ],
)  # fmt: skip
def test_categories(made, stats, expected):
    found = results(made)
    assert made.stats_ == stats
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "made, keys, expected",
    [
        (OrdinalEncoder(["g"]), ["a", "b", "c"], [[0, 1], [1], [2, 0, 0]]),
        (OrdinalEncoder(["g"], encode_lists=False), [("a", "b"), ("b",), ("c", "a", "a")], [0, 1, 2]),
        (OneHotEncoder(["g"]), [("a", "b"), ("b",), ("c", "a", "a")],
         [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (MultiHotEncoder(["g"]), ["a", "b", "c"], [[1, 1, 0], [0, 1, 0], [2, 0, 1]]),
        (MultiHotEncoder(["g"], max_categories={"g": 2}), ["a", "b"], [[1, 1], [0, 1], [2, 0]]),
    ],
)  # fmt: skip
def test_categories_in_lists(made, keys, expected):
    assert results(made, LISTS)["g"] == expected
    assert list(made.stats_["unique_values(g)"]) == keys


def test_a_category_that_was_not_there():
    encoder = OrdinalEncoder(["s"]).fit(table())
    assert encoder.transform(data.from_items([{"s": "a"}, {"s": "zz"}])).take_all() == [
        {"s": 0},
        {"s": None},
    ]


def test_labels_and_back():
    encoder = LabelEncoder("s")
    coded = encoder.fit_transform(table())
    assert [row["s"] for row in coded.take_all()] == [1, 0, 1, 2, 0]
    assert [row["s"] for row in encoder.inverse_transform(coded).take_all()] == TABLE["s"]


def test_categories_reach_pandas():
    frame = Categorizer(["s"]).fit_transform(table()).to_pandas()
    assert frame["s"].cat.categories.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "made, expected",
    [
        (Tokenizer(["t"]),
         [["to", "be", "or"], ["not", "to", "be"], [""], None, ["be", "be"]]),
        (CountVectorizer(["t"]),
         [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1], None, [2, 0, 0, 0, 0]]),
        (CountVectorizer(["t"], max_features=2), [[1, 1], [1, 1], [0, 0], None, [2, 0]]),
        (HashingVectorizer(["t"], 4),
         [[0, 2, 1, 0], [0, 2, 0, 1], [0, 1, 0, 0], None, [0, 2, 0, 0]]),
        (Tokenizer(["t"], lambda text: list(text[:2])),
         [["t", "o"], ["n", "o"], [], None, ["b", "e"]]),
    ],
)  # fmt: skip
def test_texts(made, expected):
    assert results(made)["t"] == expected
    if isinstance(made, CountVectorizer) and made.max_features is None:
        assert made.stats_ == {"token_counts(t)": {"be": 4, "to": 2, "or": 1, "not": 1, "": 1}}


@pytest.mark.parametrize(
    "made, name, expected",
    [
        (UniformKBinsDiscretizer(["x", "i"], 3), "x", [0, 0, 1, 2, None]),
        (UniformKBinsDiscretizer(["x", "i"], 3), "i", [0, 0, 0, 0, 2]),
        (UniformKBinsDiscretizer(["i"], {"i": 3}, right=False), "i", [0, 0, 0, 1, 2]),
        (UniformKBinsDiscretizer(["c"], 2), "c", [0] * 5),
        (CustomKBinsDiscretizer(["x", "i"], [1, 2, 5, 10]), "x", [None, 0, 1, 2, None]),
        (CustomKBinsDiscretizer(["x", "i"], [1, 2, 5, 10]), "i", [None, 0, 1, 1, 2]),
        (CustomKBinsDiscretizer(["i"], {"i": [1, 3, 10]}, include_lowest=True), "i",
         [0, 0, 0, 1, 1]),
        (CustomKBinsDiscretizer(
            ["i"], [0, 2, 4, 20],
            dtypes={"i": pandas.CategoricalDtype(["lo", "mid", "hi"], ordered=True)}), "i",
         ["lo", "lo", "mid", "mid", "hi"]),
        (CustomKBinsDiscretizer(
            ["i"], pandas.IntervalIndex.from_breaks([0, 2, 20])), "i", [0, 0, 1, 1, 1]),
    ],
)  # fmt: skip
def test_bins(made, name, expected):
    assert results(made)[name] == expected


def test_edges_of_bins():
    made = UniformKBinsDiscretizer(["x", "i"], 3).fit(table())
    assert made.stats_["x"] == pytest.approx([0.992, 11 / 3, 19 / 3, 9.0])
    assert made.stats_["i"] == pytest.approx([0.991, 4.0, 7.0, 10.0])


def test_a_chain_learns_of_what_comes_before():
    chain = Chain(
        SimpleImputer(["x"]),
        StandardScaler(["x", "i"]),
        Concatenator(["x", "i"], output_column_name="X"),
        LabelEncoder("s"),
    )
    with pytest.raises(PreprocessorNotFittedException):
        chain.transform(table())
    found = results(chain)
    assert list(found) == ["c", "s", "t", "X"] and found["s"] == [1, 0, 1, 2, 0]
    x = [-1.08821438, -0.72547625, 0.0, 1.81369063, 0.0]
    assert np.array(found["X"]) == pytest.approx(np.array([x, SCALED]).T)
    batch = chain.transform_batch(pandas.DataFrame(TABLE))
    assert batch["s"].tolist() == [1, 0, 1, 2, 0] and batch["X"][2].tolist() == [0.0, SCALED[2]]


def test_neighbours_of_a_chain_learn_in_one_pass(tmp_path):
    def seen(batch):
        (tmp_path / f"{id(batch)}-{len(list(tmp_path.iterdir()))}").touch()
        return batch

    rows = data.from_items([{"a": 1.0, "b": "x"}, {"a": 3.0, "b": "y"}], override_num_blocks=1)
    Chain(StandardScaler(["a"]), OneHotEncoder(["b"])).fit(rows.map_batches(seen))
    assert len(list(tmp_path.iterdir())) == 1


def test_batches_come_back_in_the_kinds_that_ray_gives():
    frame = pandas.DataFrame(TABLE, index=[3, 1, 4, 15, 9])
    scaler = StandardScaler(["i"]).fit(table())
    made = scaler.transform_batch(frame)
    assert isinstance(made, pandas.DataFrame) and made["i"].tolist() == pytest.approx(SCALED)
    assert made.index.tolist() == [3, 1, 4, 15, 9] and frame["i"].tolist() == TABLE["i"]
    assert isinstance(scaler.transform_batch({"i": np.array([4])}), pyarrow.Table)
    made = MinMaxScaler(["i"]).fit(table()).transform_batch({"i": np.array([1, 10])})
    assert isinstance(made, pandas.DataFrame) and made["i"].tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="transform_batch: 3 of type int: want a DataFrame"):
        scaler.transform_batch(3)


@pytest.mark.parametrize(
    "made",
    [
        StandardScaler(["x"], ["y"]),
        SimpleImputer(["t"], "constant", "?"),
        OneHotEncoder(["s"], max_categories={"s": 2}),
        Categorizer(["s"], dtypes={"s": pandas.CategoricalDtype(["b", "a"], ordered=True)}),
        CountVectorizer(["t"], lambda text: text.split("b"), 3),
        UniformKBinsDiscretizer(["x"], 2),
        Chain(StandardScaler(["x"]), LabelEncoder("s")),
    ],
    ids=lambda made: type(made).__name__,
)
def test_serialization(made):
    made.fit(table())
    text = made.serialize()
    again = Preprocessor.deserialize(text)
    assert type(again) is type(made) and again.fit_status() == made.fit_status()
    batch = pandas.DataFrame(TABLE)
    pandas.testing.assert_frame_equal(again.transform_batch(batch), made.transform_batch(batch))
    assert text.startswith(b"CPKL:")


def test_serialization_of_something_else():
    with pytest.raises(ValueError, match="no serialized preprocessor"):
        Preprocessor.deserialize(b"nonsense")
    strange = b"CPKL:" + sheaf.cloudpickle.dumps({"type": "of.another"})
    with pytest.raises(UnknownPreprocessorError, match="unknown preprocessor 'of.another'"):
        Preprocessor.deserialize(strange)


def test_reprs_are_rays():
    assert repr(StandardScaler(["x"])) == "StandardScaler(columns=['x'], output_columns=['x'])"
    assert repr(Concatenator(["x"], dtype=np.float32)) == (
        "Concatenator(columns=['x'], dtype=<class 'numpy.float32'>)"
    )
    assert repr(HashingVectorizer(["t"], 4)) == (
        "HashingVectorizer(columns=['t'], num_features=4, tokenization_fn=simple_split_tokenizer, "
        "output_columns=['t'])"
    )


class Doubled(Preprocessor):
    """A user's own."""

    def _fit(self, ds):
        self.most_ = ds.max("i")
        return self

    def _transform_pandas(self, df):
        df["i"] = df["i"] / self.most_
        return df


def test_a_users_own():
    own = Doubled()
    assert own.fit_status() == Preprocessor.FitStatus.NOT_FITTED
    assert [row["i"] for row in own.fit_transform(table()).take_all()] == [0.1, 0.2, 0.3, 0.4, 1.0]
    assert own.fit_status() == "FITTED"
    assert own.transform_batch({"i": np.array([5])})["i"].tolist() == [0.5]
    with pytest.warns(UserWarning, match="fitted already"):
        own.fit(table())
    assert results(Chain(StandardScaler(["c"]), Doubled()))["i"] == [0.1, 0.2, 0.3, 0.4, 1.0]
    assert [row["i"] for row in Chain(own).transform(table()).take(1)] == [0.1]


def test_images():
    torch = pytest.importorskip("torch")
    images = data.from_numpy(np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3))
    made = TorchVisionPreprocessor(["data"], lambda image: torch.as_tensor(image).permute(2, 0, 1))
    assert [row["data"].shape for row in made.transform(images).take_all()] == [(3, 2, 2)] * 2
    with pytest.raises(Exception, match="the transform returned a int"):
        TorchVisionPreprocessor(["data"], lambda image: 3).transform(images).take_all()


def test_before_it_is_fitted():
    for what in (lambda p: p.transform(table()), lambda p: p.transform_batch({"x": [1]})):
        with pytest.raises(PreprocessorNotFittedException, match="`fit` must be called before"):
            what(StandardScaler(["x"]))


@pytest.mark.parametrize(
    "wrong, error, match",
    [
        (lambda: StandardScaler(["xx"]).fit(table()), ColumnNotFoundError, "no column 'xx'; did you"),
        (lambda: OrdinalEncoder(["t"]).fit(table()), ValueError,
         "Unable to fit column 't' because it contains null values"),
        (lambda: OneHotEncoder(["s"], max_categories={"i": 2}).fit(table()), ValueError,
         "max_categories` for i, which is not present"),
        (lambda: StandardScaler(["x"], ["a", "b"]), ValueError, "2 names for 1 columns"),
        (lambda: SimpleImputer(["x"], "median"), ValueError, "Strategy median is not supported"),
        (lambda: SimpleImputer(["x"], "constant"), ValueError, "`fill_value` must be set"),
        (lambda: Normalizer(["x"], "l3"), ValueError, "Norm l3 is not supported"),
        (lambda: PowerTransformer(["x"], 1, "log"), ValueError, "Method log is not supported"),
        (lambda: UniformKBinsDiscretizer(["x"], {"y": 2}).fit(table()), ValueError,
         r"`columns` must be present in it: \['x'\]"),
        (lambda: UniformKBinsDiscretizer(["x"], 2.5).fit(table()), TypeError, "must be an integer"),
        (lambda: CustomKBinsDiscretizer(["x"], [0, 1, 1]).transform_batch({"x": [1.0]}), ValueError,
         "two edges are equal"),
        (lambda: CustomKBinsDiscretizer(["x"], [0, 2, 1]).transform_batch({"x": [1.0]}), ValueError,
         "bins of column 'x' must increase"),
        (lambda: OneHotEncoder(["s"]).fit(table()).transform_batch({"s": ["a", None]}), ValueError,
         r"columns \['s'\] because they contain null values"),
        (lambda: Concatenator(["q"], raise_if_missing=True).transform_batch({"x": [1]}), ValueError,
         "Missing columns specified"),
        (lambda: Preprocessor().fit(table()), NotImplementedError, "has no _fit"),
    ],
)  # fmt: skip
def test_wrong_use(wrong, error, match):
    with pytest.raises(error, match=match):
        wrong()


@pytest.mark.parametrize(
    "made, columns",
    [
        (StandardScaler(["x"]), {"x": pyarrow.array([None, None], pyarrow.float64())}),
        (MinMaxScaler(["x"]), {"x": pyarrow.array([None, None], pyarrow.int64())}),
        (MaxAbsScaler(["x"]), {"x": pyarrow.array([None, None], pyarrow.float64())}),
        (RobustScaler(["x"]), {"x": pyarrow.array([None, None], pyarrow.float64())}),
    ],
)
def test_columns_without_a_value(made, columns):
    assert results(made, columns)["x"] == [None, None]


def test_no_rows():
    empty = data.from_arrow(pyarrow.table({"x": pyarrow.array([], pyarrow.float64())}))
    for made in (StandardScaler(["x"]), OrdinalEncoder(["x"]), UniformKBinsDiscretizer(["x"], 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if isinstance(made, UniformKBinsDiscretizer):
                with pytest.raises(ValueError, match="Column x has no values to bin"):
                    made.fit(empty)
            else:
                assert made.fit_transform(empty).take_all() == []


def test_all_names_of_ray_are_there():
    assert len(preprocessors.__all__) == 21
