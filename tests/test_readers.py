"""Files in, text cells out; and the sentence for every file that is no table."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from rank.exceptions import InputError
from rank.readers import QuoteCheck, read_gold, read_table, read_verdicts

ROOT = Path(__file__).resolve().parents[1]

# Any text but NUL (refused as binary) and lone surrogates (not encodable).
CELLS = st.one_of(
    st.sampled_from(
        ["07", "7", "NaN", "None", "NA", "null", "", "tie", "1e5", "A ", " A", 'say "x"', "a,b;c\td"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)
NAMES = st.lists(
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6), min_size=1, max_size=4, unique=True
)
TABLES = NAMES.flatmap(
    lambda names: st.lists(
        st.lists(CELLS, min_size=len(names), max_size=len(names)), min_size=1, max_size=6
    ).map(lambda rows: pd.DataFrame(rows, columns=names, dtype=object))
)


def encode(frame: pd.DataFrame, kind: str) -> bytes:
    """The table in a file format, by writers that are not ours."""
    if kind == "parquet":
        sink = io.BytesIO()
        parquet.write_table(
            pa.table({c: pa.array(frame[c].tolist(), pa.string()) for c in frame.columns}), sink
        )
        return sink.getvalue()
    records = frame.to_dict("records")
    if kind == "json":
        return json.dumps(records).encode()
    if kind == "rows":
        return json.dumps({"rows": records}, ensure_ascii=False, indent=1).encode()
    if kind == "jsonl":
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    stream = io.StringIO(newline="")
    separator = {"csv": ",", "tsv": "\t", "semicolon": ";"}[kind]
    csv.writer(stream, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(
        [list(frame.columns), *frame.to_numpy()]
    )
    return stream.getvalue().encode()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "semicolon", "json", "rows", "jsonl", "parquet"])
@given(frame=TABLES)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_text_survives_every_format(tmp_path: Path, frame: pd.DataFrame, kind: str, packed: bool) -> None:
    # The suffix is wrong on purpose.
    file = tmp_path / "table.dat"
    data = encode(frame, kind)
    file.write_bytes(gzip.compress(data) if packed else data)
    read = read_table(file)
    assert list(read.columns) == list(frame.columns)
    assert read.to_dict("list") == frame.to_dict("list")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_encodings_separators_and_line_ends(
    tmp_path: Path, encoding: str, separator: str, newline: str
) -> None:
    file = tmp_path / "t.csv"
    rows = [["item", " score "], ["é07", "1"], ["", "NA"]]
    file.write_bytes(newline.join(separator.join(row) for row in rows).encode(encoding))
    assert read_table(file).to_dict("list") == {"item": ["é07", ""], "score": ["1", "NA"]}


def test_header_only_is_a_table_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item,score\n\n")
    frame = read_table(file)
    assert frame.shape == (0, 2)
    assert list(frame.columns) == ["item", "score"]


def test_json_numbers_stay_as_written_and_null_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(
        '[{"a": 7, "b": 7.0, "c": true, "d": NaN}, {"a": null, "b": 1e2, "c": "x", "d": 1234567890123456789}]'
    )
    expected = {"a": ["7", ""], "b": ["7.0", "1e2"], "c": ["true", "x"], "d": ["", "1234567890123456789"]}
    assert read_table(file).to_dict("list") == expected


def test_absent_json_key_is_an_empty_cell(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text('{"a": "x", "b": "y"}\n\n{"a": "z"}\n')
    assert read_table(file).to_dict("list") == {"a": ["x", "z"], "b": ["y", ""]}


def test_parquet_ids_match_csv_ids(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [7, 70], "context": [7.0, np.nan], "score": [0.1, 2.0]})
    frame.to_parquet(tmp_path / "t")
    assert read_table(tmp_path / "t").to_dict("list") == {
        "item": ["7", "70"],
        "context": ["7", ""],
        "score": ["0.1", "2"],
    }


def test_parquet_float_ids_are_refused(tmp_path: Path) -> None:
    pd.DataFrame({"item_first": [1.5], "item_second": [2.0]}).to_parquet(tmp_path / "t")
    with pytest.raises(InputError, match='column "item_first" holds the number 1.5'):
        read_table(tmp_path / "t")


def test_parquet_dictionary_stays_categorical_and_nulls_are_empty(tmp_path: Path) -> None:
    pd.DataFrame({"judge": pd.Categorical(["x", None, "x"])}).to_parquet(tmp_path / "t")
    column = read_table(tmp_path / "t")["judge"]
    assert isinstance(column.dtype, pd.CategoricalDtype)
    assert column.tolist() == ["x", "", "x"]


REFUSED = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \n", "the file is empty"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\xfd\x01\x02", "not text"),
    "latin-1": ("item,score\ncafé,1\n".encode("latin-1"), "line 2 holds the byte 0xe9"),
    "utf-16 without mark": ("item,score\n".encode("utf-16-le"), "NUL character"),
    "excel": (b"PK\x03\x04rest", "Excel workbook"),
    "bzip2": (b"BZh91AY", "bzip2"),
    "cut gzip": (gzip.compress(b"item,score\na,1\n" * 50)[:-9], "damaged or cut short"),
    "long row": (b'item,score\n"a\nb",1\n\nc,2,3\n', "line 5 has 3 fields, the header has 2"),
    "short row": (b"item,score\na,1\nb\n", "line 3 has 1 field, the header has 2"),
    "open quote": (b'item,score\na,1\nb,"2\nc,3\nd,4\n', "begins on line 3 do not pair up"),
    "two open quotes": (b'item,score\nb,"2\nc,"3\nd,4\n', "begins on line 2 do not pair up"),
    "open quote at the end": (b'item,score\na,1\nb,"2', "begins on line 3 do not pair up"),
    "open quote in the header": (b'item,"score', "begins on line 1 do not pair up"),
    "text after a quote": (b'item,score\n"a"x,1\n', "begins on line 2 do not pair up"),
    "comment": (b"# made by us\nitem,score\na,1\n", "delete the line that begins with '# made by us'"),
    "half a character": (b'{"item": "a"}\n{"item": "\\ud800"}\n', "line 2: the key \"item\" holds '\\ud800'"),
    "half a character in a list": (b'[{"item": "a", "score": "\\udfff"}]', 'record 1: the key "score" holds'),
    "half a character in a key": (b'{"\\ud800": "a"}', "column name '\\ud800' holds half of a surrogate"),
    "same name": (b"item,item\na,b\n", 'two columns "item"'),
    "same name but blanks": (b"item, item\na,b\n", 'two columns "item"'),
    "no name": (b",item\n0,a\n", "column 1 of 2 has no name"),
    "two separators": (b"item;a,score\nx;1,2\n", "separated by comma and semicolon"),
    "broken json": (b'[{"item": "a"},\n {"item" "b"}]', "line 2, column 10 is not valid JSON"),
    "broken json line": (b'{"item": "a"}\n{"item": \n', "line 2, column 9 is not valid JSON"),
    "nested": (b'{"item": "a"}\n{"item": ["b"]}\n', 'line 2: the key "item" holds a list'),
    "key twice": (
        b'{"item": "a"}\n{"item": "b", "item": "c"}\n',
        'line 2: an object has the key "item" twice',
    ),
    "list of lists": (b'[["a", 1]]', "record 1 is a list"),
    "number in list": (b"[1]", "record 1 is the single value 1"),
    "empty list": (b"[]", "the JSON list is empty"),
    "two lists": (b'{"rows": [], "verdicts": []}', 'the lists "rows", "verdicts"'),
    "after the list": (b'[{"a": 1}]\n[{"a": 2}]', "line 1 goes on after the end"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "bad parquet": (b"PAR1" + b"x" * 40 + b"PAR1", "Parquet data cannot be read"),
}


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("name", REFUSED)
def test_refusal_is_one_sentence_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, small: bool
) -> None:
    if not small:
        monkeypatch.setattr("rank.readers._SMALL_BYTES", 0)
    data, words = REFUSED[name]
    file = tmp_path / "table.csv"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_table(file)
    message = str(caught.value)
    assert words in message
    assert message.startswith(f"{file}: ")
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["csv", "tsv", "semicolon"])
@given(frame=TABLES)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_large_tables_are_read_like_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: pd.DataFrame, kind: str
) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(encode(frame, kind))
    small = read_table(file)
    with monkeypatch.context() as patch:
        patch.setattr("rank.readers._SMALL_BYTES", 0)
        pd.testing.assert_frame_equal(read_table(file), small)


@given(
    text=st.text(st.sampled_from('ab",\n'), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=3),
)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_quote_check_is_never_kinder_than_the_strict_csv_module(text: str, cuts: list[int]) -> None:
    check = QuoteCheck(",")
    places = [0, *sorted(cuts), len(text)]
    for low, high in zip(places, places[1:]):
        check.add(text[low:high].encode())
    if check.end():
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    whole = QuoteCheck(",")
    whole.add(text.encode())
    assert whole.end() == check.end()


def test_quote_check_takes_what_the_csv_module_writes() -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([["a", 'say "x"', ""], ['"', "two\nlines", 'end"'], ["", "", ","]])
    for size in (1, 2, 3, 100):
        check = QuoteCheck(",")
        data = stream.getvalue().encode()
        for low in range(0, len(data), size):
            check.add(data[low : low + size])
        assert check.end()


def test_small_files_leave_no_thread_behind() -> None:
    """A thread of Arrow that is about at the end of the interpreter aborts it now and then."""
    code = (
        "import os, sys, pathlib, tempfile, pyarrow.parquet\n"
        "from rank.readers import read_table\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    file = pathlib.Path(folder, 't')\n"
        "    file.write_text('a,b,c\\n1,2,\"3\"\\n')\n"
        "    frame = read_table(file)\n"
        "    frame.to_json(file, orient='records')\n"
        "    read_table(file)\n"
        "    pyarrow.parquet.write_table(pyarrow.table({'a': ['x'], 'b': ['y']}), file, use_dictionary=False)\n"
        "    read_table(file)\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted on Linux")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "0"


def test_parquet_column_that_is_no_text_is_refused_only_where_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    columns = {"item_first": ["a"], "item_second": ["b"], "verdict": ["first"], "extra": [[1, 2]]}
    parquet.write_table(pa.table(columns), file)
    assert len(read_verdicts(file)) == 1
    with pytest.raises(InputError, match='the column "extra" holds list'):
        read_verdicts(file, by=["extra"])
    with pytest.raises(InputError, match='the column "extra" holds list'):
        read_verdicts(file, drop_exact_copies=True)
    with pytest.raises(InputError, match='the column "extra" holds list'):
        read_table(file)


def test_rows_of_several_files_are_placed_in_their_file(tmp_path: Path) -> None:
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("item_first,item_second,verdict\nA,B,first\nB,A,first\n")
    two.write_text("item_first,item_second,verdict\nC,B,first\nA,A,first\n")
    with pytest.raises(InputError, match=r"row 4: .*\(row 4 is row 2 of .*2\.csv\)$"):
        read_verdicts([one, two])
    with pytest.raises(InputError, match="cannot be compared with itself$"):
        read_verdicts(two)


def test_empty_path_and_standard_input_twice() -> None:
    with pytest.raises(InputError, match="an empty path was given"):
        read_table("")
    with pytest.raises(InputError, match="standard input is named twice"):
        read_verdicts(["-", "-"])


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="this is a directory"):
        read_table(tmp_path)


def test_quotes_and_giant_cells_are_no_errors(tmp_path: Path) -> None:
    answer = "line\n" * 100_000
    file = tmp_path / "t.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([["item", "text"], ['5" disk', answer], ["b", "x"]])
    assert read_table(file)["text"].tolist() == [answer, "x"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"item,score\n07,1\n")))
    assert read_table("-")["item"].tolist() == ["07"]


def test_files_read_together_need_the_same_columns(tmp_path: Path) -> None:
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("item_first,item_second,verdict\nA,B,first\n")
    two.write_text("item_second,item_first,verdict\nA,B,second\n")
    assert len(read_verdicts([one, two])) == 2
    two.write_text("item_first,item_second\nA,B\n")
    with pytest.raises(InputError, match='2.csv: has no column "verdict", which .*1.csv has'):
        read_verdicts([one, two])


def test_errors_of_the_gates_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_first,item_second,verdict\nA,A,first\n")
    with pytest.raises(InputError, match=r"t\.csv: "):
        read_verdicts(file)
    file.write_text("item,score\nA,inf\n")
    with pytest.raises(InputError, match=r"t\.csv: "):
        read_gold(file)


def test_every_shared_table_is_read(shared_data: Path) -> None:
    for file in sorted(shared_data.rglob("*.csv")):
        with file.open(newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream)
        frame = read_table(file)
        assert list(frame.columns) == header
        assert frame.to_numpy(dtype=object).tolist() == rows
