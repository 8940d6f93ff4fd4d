"""Batches against the whole table: the same counts, labels, ledger, notes and refusals."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from rank.exceptions import InputError
from rank.readers import read_verdicts
from rank.streaming import read_tally, tally_files
from rank.tally import Tally, add_tallies, tally_verdicts

LABELS: dict[str, list[str]] = {
    "slots": ["first", "second", "tie", ""],
    "letters": ["A", "B", "tie"],
    "models": ["model_a", "model_b", "tie (bothbad)", "tie"],
    "merged": ["first", "second", "tie (inconsistent)"],
    "unknown": ["first", "second", "first", "second", "zzz"],
}


def random_table(rng: np.random.Generator, kind: str) -> pd.DataFrame:
    n = int(rng.integers(1, 40))
    names = np.array(["aa", "bb", "AA", "x y", "é", "07", "7", "m1"], dtype=object)
    items = rng.choice(names, size=int(rng.integers(2, 7)), replace=False)
    first = rng.integers(0, len(items), n)
    second = (first + rng.integers(1, len(items), n)) % len(items)
    if kind == "merged":
        first, second = np.minimum(first, second), np.maximum(first, second)
    table = pd.DataFrame({"item_first": items[first], "item_second": items[second]})
    if kind == "winner":
        pick = rng.random(n)
        winner = np.where(pick < 0.6, table["item_first"], table["item_second"])
        table["winner"] = np.where(pick > 0.9, "tie", winner)
    else:
        table["verdict"] = rng.choice(np.array(LABELS[kind], dtype=object), n)
    for column in ("judge", "dataset", "format", "temperature", "context"):
        if rng.random() < 0.4:
            table[column] = rng.choice(np.array(["u", "v", "w"], dtype=object), n)
    if rng.random() < 0.2:
        table["score_first"], table["score_second"] = rng.integers(1, 4, (2, n)).astype(str)
    if rng.random() < 0.15:
        table["criterion"] = rng.choice(["fluency", "truth", "tone"], n)
    table["note"] = "long text"
    return table


def with_runs(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    key = [c for c in table.columns if c not in ("verdict", "winner", "score_first", "score_second")]
    run = table.groupby(key, dropna=False).cumcount()
    if rng.random() < 0.1 and len(run) > 1:
        run.iloc[-1] = run.iloc[0]  # may repeat a key
    return table.assign(run=run.astype(str))


def write(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False, row_group_size=max(1, len(table) // 3))
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    return path


def outcome(read: Any) -> Tally | str:
    try:
        return read()
    except InputError as error:
        return str(error)


def assert_same(a: Tally, b: Tally) -> None:
    pd.testing.assert_frame_equal(a.groups, b.groups)
    pd.testing.assert_frame_equal(a.contexts, b.contexts)
    for name in ("items", "group", "context", "item_i", "item_j", "counts"):
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y, err_msg=name)
    assert a.has_context == b.has_context
    assert dict(a.ledger) == dict(b.ledger)
    assert a.notes == b.notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".csv.gz"])
@pytest.mark.parametrize("kind", [*LABELS, "winner"])
def test_batches_equal_the_whole_table_on_random_tables(kind: str, suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([len(kind), len(suffix)])
    counted = refused = 0
    for trial in range(6):
        table = random_table(rng, kind)
        number_runs = bool(rng.random() < 0.4) and "criterion" not in table
        if not number_runs:
            table = with_runs(table, rng)
        path = write(table, tmp_path / f"{trial}{suffix}")
        whole = outcome(lambda p=path, n=number_runs: tally_verdicts(read_verdicts(p, number_runs=n)))
        for batch_rows in (4, 1_000):
            parts = outcome(
                lambda p=path, n=number_runs, b=batch_rows: tally_files(p, number_runs=n, batch_rows=b)
            )
            if isinstance(whole, str):
                # The first batch that shows what is wrong says so in its own numbers.
                assert isinstance(parts, str), whole
                assert batch_rows < 1_000 or parts.split(":")[0] == whole.split(":")[0]
                refused += 1
            else:
                assert not isinstance(parts, str), parts
                assert_same(parts, whole)
                counted += 1
    assert refused if kind == "unknown" else counted


def test_layout_is_that_of_all_rows_when_a_batch_alone_would_guess_another(tmp_path: Path) -> None:
    # Row 1 alone reads as slots of the layout letters; the items of row 2 show that it cannot be known.
    table = pd.DataFrame({"item_first": ["x", "a"], "item_second": ["y", "b"], "verdict": ["a", "b"]})
    path = write(table, tmp_path / "t.csv")
    with pytest.raises(InputError, match="could be slots or items"):
        tally_files(path, batch_rows=1)
    # Row 1 alone reads as letters; with row 2, labels are items.
    table = pd.DataFrame({"item_first": ["A", "A"], "item_second": ["y", "z"], "winner": ["A", "z"]})
    path = write(table, tmp_path / "u.csv")
    assert_same(tally_files(path, batch_rows=1), tally_verdicts(read_verdicts(path)))
    assert_same(
        tally_files(path, batch_rows=1, layout="items"), tally_verdicts(read_verdicts(path, layout="items"))
    )


def test_repeated_key_is_found_across_batches_and_files_with_its_rows(tmp_path: Path) -> None:
    n = 40
    table = pd.DataFrame(
        {
            "item_first": [f"i{k}" for k in range(n)],
            "item_second": "z",
            "verdict": "first",
            "judge": "a",
            "run": 0,
        }
    )
    table.loc[n - 1, "item_first"] = "i3"
    path = write(table, tmp_path / "t.parquet")
    whole = outcome(lambda: read_verdicts(path))
    assert outcome(lambda: tally_files(path, batch_rows=6)) == whole
    assert "rows 4, 40" in str(whole)
    parts = [write(table[:20], tmp_path / "a.csv"), write(table[20:], tmp_path / "b.csv")]
    assert outcome(lambda: tally_files(parts, batch_rows=6)) == outcome(lambda: read_verdicts(parts))
    finer = table.assign(judge=["a"] * (n // 2) + ["b"] * (n // 2))
    path = write(finer, tmp_path / "finer.parquet")
    assert "add it to the grouping (--by judge)" in str(
        outcome(lambda: tally_files(path, by=[], batch_rows=6))
    )


def test_hash_collision_costs_time_and_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rank.streaming

    table = with_runs(
        random_table(np.random.default_rng(3), "slots").drop(columns="criterion", errors="ignore"),
        np.random.default_rng(1),
    )
    path = write(table, tmp_path / "t.csv")
    whole = tally_verdicts(read_verdicts(path))
    monkeypatch.setattr(
        rank.streaming, "_hash_labels", lambda labels, salt=0: np.zeros(len(labels), dtype=np.uint64)
    )
    assert_same(tally_files(path, batch_rows=5), whole)


def test_error_names_the_row_of_the_file(tmp_path: Path) -> None:
    table = pd.DataFrame({"item_first": "a", "item_second": ["b"] * 30, "verdict": "first", "run": range(30)})
    table.loc[21, "item_second"] = "a"
    for suffix in (".csv", ".parquet", ".jsonl"):
        path = write(table, tmp_path / f"t{suffix}")
        with pytest.raises(InputError, match=r"row 22: item_first and item_second are the same item \('a'\)"):
            tally_files(path, batch_rows=4)


def test_partitioned_folder_equals_one_file_with_the_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    table = random_table(rng, "slots").drop(
        columns=["judge", "dataset", "criterion", "score_first"], errors="ignore"
    )
    table["judge"] = rng.choice(["gpt 4/o", "b"], len(table))
    table["dataset"] = rng.choice(["d1", "d2"], len(table))
    table = with_runs(table.drop(columns="score_second", errors="ignore"), np.random.default_rng(0))
    whole = tally_verdicts(read_verdicts(write(table, tmp_path / "t.csv")))
    folder = tmp_path / "parts"
    parquet.write_to_dataset(
        pa.Table.from_pandas(table, preserve_index=False), folder, partition_cols=["judge", "dataset"]
    )
    (folder / "_SUCCESS").touch()
    assert_same(tally_files(folder, batch_rows=3), whole)
    assert_same(read_tally(folder), whole)
    assert_same(tally_files(folder, batch_rows=3, n_jobs=2), whole)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no Parquet file in this folder"):
        tally_files(tmp_path / "empty")
    with pytest.raises(InputError, match="exact copies cannot be dropped"):
        read_tally(folder, drop_exact_copies=True)


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {"item_first": ["a"], "item_second": ["b"], "verdict": ["first"], "extra": [[1, 2]], "run": [0]}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    assert tally_files(tmp_path / "t.parquet").counts.sum() == 1
    assert read_tally(tmp_path / "t.parquet").counts.sum() == 1
    # Also where all columns are read to explain a key that occurs twice.
    parquet.write_table(pa.concat_tables([table, table]), tmp_path / "t.parquet")
    whole = outcome(lambda: read_tally(tmp_path / "t.parquet"))
    assert "rows 1, 2" in str(whole)
    assert outcome(lambda: tally_files(tmp_path / "t.parquet", batch_rows=1)) == whole


def test_damaged_gzip_is_refused_in_batches_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    noise = [f"{number:x}" for number in rng.integers(0, 2**60, 100_000)]
    table = pd.DataFrame({"item_first": noise, "item_second": "z", "verdict": "first"})
    data = gzip.compress(table.to_csv(index=False).encode(), 1)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(data)
    assert tally_files(path, batch_rows=30_000).counts.sum() == len(table)
    path.write_bytes(data[:-1_000])
    with pytest.raises(InputError, match="damaged or cut short"):
        tally_files(path)


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.float64(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()],
    ids=str,
)
def test_every_storage_of_ids_gives_the_same_labels(kind: pa.DataType, tmp_path: Path) -> None:
    ids = pa.array(["1", "2", "3", "1"])
    column = ids.cast(pa.int64()).cast(kind) if pa.types.is_floating(kind) else ids.cast(kind)
    table = pa.table(
        {"item_first": column, "item_second": pa.array(["7", "8", "9", "6"]), "run": [0, 0, 0, 1]}
    )
    table = table.append_column("verdict", pa.array(["first", "tie", None, "second"]))
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    whole = tally_verdicts(read_verdicts(tmp_path / "t.parquet"))
    assert_same(tally_files(tmp_path / "t.parquet", batch_rows=1), whole)
    assert list(whole.items) == ["1", "2", "3", "6", "7", "8", "9"]


def test_broken_text_is_refused_like_the_whole_file(tmp_path: Path) -> None:
    good = "item_first,item_second,verdict,run\na,b,first,0\n"
    for name, text in {
        "fields": good + "a,b,first\n",
        "quote": good + 'a,b,"first,1\na,b,first,2\n',
        "quote at the end": good + 'a,b,first,"1',
        "text after a quote": good + '"a"x,b,first,1\n',
        "open quote in the header": 'item_first,item_second,"verdict\na,b,first\n',
        "comment": "# by us\n" + good,
        "half a character": '{"item_first": "a", "item_second": "b", "verdict": "first", "why": "\\ud800"}\n',
        "byte": good.encode() + b"a,b,\xff,1\n",
        "empty": "",
        "header": "item_first,item_second,verdict\n",
        "twice": "item_first,item_first,verdict\na,b,first\n",
        "columns": "x,y\n1,2\n",
        "json": '{"item_first": "a", "item_second": "b", "verdict": "first"}\n{"item_first": [1]}\n',
    }.items():
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        whole = outcome(lambda p=path: read_verdicts(p))
        assert isinstance(whole, str)
        found = outcome(lambda p=path: tally_files(p, batch_rows=1))
        assert isinstance(found, str), name
        assert found.split("; ")[0] == whole.split("; ")[0] or name == "byte"
        assert "UTF-8" in found or name != "byte"


def test_cells_that_span_lines_are_one_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('item_first,item_second,verdict,run,why\n"a\nb",c,first,0,"x\ny"\n\nc,"a\nb",second,0,\n')
    assert_same(tally_files(path, batch_rows=1), tally_verdicts(read_verdicts(path)))


def test_json_lines_with_different_keys_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = '{"item_first": "a", "item_second": 2, "verdict": "first"}\n\n'
    lines += '{"item_first": "a", "item_second": 3.0, "verdict": null, "judge": "z"}\n'
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    whole = tally_verdicts(read_verdicts(path))
    assert_same(tally_files(path, batch_rows=1), whole)
    (tmp_path / "t.gz").write_bytes(gzip.compress(lines.encode()))
    assert_same(tally_files(tmp_path / "t.gz", batch_rows=1), whole)
    (tmp_path / "list.json").write_text(
        '{"rows": [{"item_first": "a", "item_second": "b", "verdict": "first"}]}'
    )
    assert tally_files(tmp_path / "list.json", batch_rows=1).counts[0, 0, 0] == 1


def test_read_tally_is_the_same_whole_and_in_batches(tmp_path: Path) -> None:
    table = pd.DataFrame({"item_first": "a", "item_second": ["b", "c"] * 20, "verdict": "first"})
    path = write(table.assign(run=np.arange(40) // 2), tmp_path / "t.csv")
    assert_same(read_tally(path), read_tally(path, batch_rows=3))
    copies = write(pd.concat([table, table]), tmp_path / "c.csv")
    assert read_tally(copies, batch_rows=3, drop_exact_copies=True).counts.sum() == 2


def test_many_tallies_at_once_equal_one_after_the_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    tallies = []
    for k in range(5):
        table = pd.DataFrame(
            {
                "item_first": rng.choice(["a", "b"], 9),
                "item_second": rng.choice(["x", "y", "z"], 9),
                "verdict": rng.choice(["first", "tie"], 9),
                "judge": rng.choice(["j", "k"], 9),
                "run": np.arange(9) + 9 * k,
            }
        )
        tallies.append(tally_verdicts(read_verdicts(write(table, tmp_path / f"{k}.csv"))))
    one_by_one = tallies[0] + tallies[1] + tallies[2] + tallies[3] + tallies[4]
    assert_same(add_tallies(tallies), one_by_one)
    assert one_by_one.counts.sum() == 45
