"""Tables from files: CSV, TSV, JSON, JSON Lines and Parquet, plain or gzipped, or from standard input.

What a file is gets decided by its content, not by its name. Every cell arrives as text, exactly as written,
so that the ids ``07``, ``7``, ``NaN`` and ``NA`` stay four different ids; an empty cell or a null is the
empty string. Whether the table makes sense is the business of the gates,
:func:`rank.verdicts.check_verdicts` and :func:`rank.gold.check_gold`.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import re
import sys
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rank.exceptions import InputError

if TYPE_CHECKING:
    import pyarrow

    from rank.gold import Gold
    from rank.verdicts import VerdictTable

__all__ = ["read_gold", "read_table", "read_verdicts"]

_FORMATS = "CSV, TSV, JSON, JSON Lines or Parquet, plain or gzipped"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}

#: What the gate computes from, beside the grouping columns. Another column that is no text is left blank.
VERDICT_COLUMNS = (
    *("item_first", "item_second", "verdict", "winner", "score_first", "score_second"),
    *("criterion", "run", "dataset", "context"),
)

#: Below this size tables are read without Arrow's threads: they cost more than they save, and a thread that
#: is still about when the interpreter ends can abort it.
_SMALL_BYTES = 1 << 20

_LIST_KEYS = ("rows", "verdicts", "gold", "items")

# Files of other kinds that people pass by mistake, by their first bytes.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or Excel workbook; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"BZh": "compressed with bzip2; unpack it or use gzip",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it or use gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it or use gzip",
    b"%PDF": "a PDF document",
    b"ARROW1": "an Arrow/Feather file; save it as Parquet",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"\x80\x04": "a Python pickle; save the table as CSV or Parquet",
    b"\x80\x05": "a Python pickle; save the table as CSV or Parquet",
}


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    r"""Read a table of text cells from a file.

    Parameters
    ----------
    path : str or path-like
        A file, or ``"-"`` for standard input. CSV (separated by comma, semicolon or tab, read off the header
        line), a JSON list of objects, a JSON object with such a list under ``rows`` (or ``verdicts``,
        ``gold``, ``items``), JSON Lines, or Parquet. Gzip is recognised by its first bytes. Text is UTF-8,
        or UTF-16/32 with a byte-order mark.

    Returns
    -------
    DataFrame
        One column of text per column of the file, in the file's order, rows numbered from 0. Dictionary
        columns of a Parquet file come back as categoricals of text. A file with a header and nothing else
        gives zero rows.

    Raises
    ------
    InputError
        If there is no such file, or it is not a table: the sentence names the file, what was found and what
        is needed.

    Notes
    -----
    JSON numbers become their text as written (``7`` -> ``"7"``, ``7.0`` -> ``"7.0"``); ``null``, ``NaN`` and
    an absent key are the empty string. Parquet integers become their decimal text, so they match the ids of
    a CSV file. A Parquet column of floats holding whole numbers only (the form integers with gaps take in
    pandas) becomes text without a decimal point; other floats become the shortest text that reads back as
    the same number, except in columns that name an item, where they are refused, since ``1.1`` and ``1.10``
    would be the same.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "gold.csv")
    ...     _ = file.write_text("item;score\n07;1.5\nNA;\n")
    ...     read_table(file).to_dict("list")
    {'item': ['07', 'NA'], 'score': ['1.5', '']}
    """
    return _read(path, None)


def _read(path: str | os.PathLike[str], needed: Collection[str] | None) -> pd.DataFrame:
    """`read_table`; given the columns that are needed, others of Parquet may hold what is no text."""
    name = display_name(path)
    data = _unpack(_read_bytes(path, name), name)
    if data.startswith(b"PAR1"):
        return _parse_parquet(data, name, needed)
    refuse_foreign(data, name)
    data = to_utf8(data, name)
    start = data[:4096].lstrip()[:1] or data.lstrip()[:1]
    if not start:
        raise InputError(f"{name}: the file is empty; needed is a table with a header line ({_FORMATS})")
    if start in (b"[", b"{"):
        return _parse_json(data, name)
    return _parse_delimited(data, name)


def read_verdicts(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any
) -> VerdictTable:
    """Read one verdict table from one or several files and check it.

    Parameters
    ----------
    paths : path or sequence of paths
        See :func:`read_table`. Several files must have the same columns, in any order; their rows are put
        one after another in the order given.
        Parquet columns that nothing is computed from may hold what is no text, such as lists.
    **options
        Passed on to :func:`rank.verdicts.check_verdicts`.

    Returns
    -------
    VerdictTable

    Raises
    ------
    InputError
        From the reader or from the gate, with the name of the file in front.
    """
    from rank.verdicts import GROUP_COLUMNS, check_verdicts

    files = list_files(paths)
    if not files:
        raise InputError("no verdict file was given; name at least one")
    by = options.get("by")
    needed = None
    if not options.get("drop_exact_copies"):  # which asks every column
        needed = {*VERDICT_COLUMNS, *(GROUP_COLUMNS if by is None else by)}
    frames = [_read(file, needed) for file in files]
    names = [display_name(file) for file in files]
    first = frames[0].columns
    for name, frame in zip(names[1:], frames[1:], strict=True):
        missing = [column for column in first if column not in frame.columns]
        surplus = [column for column in frame.columns if column not in first]
        lacking, having, columns = (name, names[0], missing) if missing else (names[0], name, surplus)
        if columns:
            raise InputError(
                f"{lacking}: has no column {_quoted(columns)}, which {having} has; files that are read "
                "together need "
                "the same columns"
            )
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    with naming(", ".join(names)), placing_rows(names, [len(frame) for frame in frames]):
        return check_verdicts(frame, **options)


def read_gold(path: str | os.PathLike[str], **options: Any) -> Gold:
    """Read gold from a file and check it.

    Parameters
    ----------
    path : path
        See :func:`read_table`.
    **options
        Passed on to :func:`rank.gold.check_gold`.

    Returns
    -------
    Gold

    Raises
    ------
    InputError
        From the reader or from the gate, with the name of the file in front.
    """
    from rank.gold import check_gold

    frame = read_table(path)
    with naming(display_name(path)):
        return check_gold(frame, **options)


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of a file in front of errors."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


@contextlib.contextmanager
def placing_rows(names: Sequence[str], lengths: Sequence[int]) -> Iterator[None]:
    """Add to errors about rows of files put one after another which row of which file they are."""
    try:
        yield
    except InputError as error:
        message = str(error)
        numbers = {int(n) for rows in _ROW_NUMBERS.findall(message) for n in rows.split(", ")}
        ends = np.cumsum(lengths)
        places = []
        for number in sorted(number for number in numbers if 0 < number <= ends[-1])[:4]:
            file = int(np.searchsorted(ends, number))
            row = number - (int(ends[file - 1]) if file else 0)
            places.append(f"row {number} is row {row} of {names[file]}")
        if len(names) < 2 or not places:
            raise
        raise InputError(f"{message} ({', '.join(places)})") from error


_ROW_NUMBERS = re.compile(r"\brows? (\d+(?:, \d+)*)")


def list_files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Any]:
    """Return one path or several as a list; standard input can be in it once."""
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if sum(os.fspath(file) == "-" for file in files) > 1:
        raise InputError("standard input is named twice, and can be read once; name a file instead of one -")
    return files


def display_name(path: str | os.PathLike[str]) -> str:
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def _quoted(names: Sequence[Any]) -> str:
    return ", ".join(f'"{name}"' for name in names)


# --- bytes --------------------------------------------------------------------------------------------------


def _read_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    if not os.fspath(path):
        raise InputError("an empty path was given; name a file, or - for standard input")
    if os.fspath(path) == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; name a file instead of -")
        return sys.stdin.buffer.read()
    file = Path(path)
    try:
        # The size can't be asked first: a pipe such as bash's <(...) has none.
        return file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{name}: this is a directory; name a file ({_FORMATS})") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{name}: cannot be read ({reason})") from None


def refuse_foreign(data: bytes, name: str) -> None:
    """Raise when the first bytes are those of another kind of file."""
    for magic, what in _FOREIGN.items():
        if data.startswith(magic):
            raise InputError(f"{name}: this is {what}; needed is {_FORMATS}")


def _unpack(data: bytes, name: str) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{name}: the gzip data are damaged or cut short ({error}); copy the file again"
        ) from None


# Byte-order marks; UTF-32's little-endian one begins with UTF-16's, so it comes first.
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def to_utf8(data: bytes, name: str) -> bytes:
    """Text as UTF-8 without a byte-order mark."""
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        # Bytes of control codes tell a picture or a database from a text in an old Windows encoding.
        if _control_codes(data[:4096]) > 0.02 * min(len(data), 4096):
            found = "this is not text"
        elif encoding.startswith("utf-8"):
            found = f"line {line} holds the byte 0x{data[error.start]:02x}, which is not UTF-8 text"
        else:
            found = f"the text is not valid {encoding.upper()} although its byte-order mark says so"
        raise InputError(f"{name}: {found}; save the table as UTF-8 ({_FORMATS})") from None
    position = text.find("\x00")
    if position >= 0:
        line = text.count("\n", 0, position) + 1
        raise InputError(
            f"{name}: line {line} holds a NUL character, so this is binary or UTF-16 without a byte-order "
            "mark; save the "
            f"table as UTF-8 ({_FORMATS})"
        )
    if encoding == "utf-8":
        return data
    return text.removeprefix("\ufeff").encode("utf-8")


def _control_codes(data: bytes) -> int:
    return sum(byte < 32 and byte not in b"\t\n\r\f" for byte in data)


def check_names(columns: Sequence[str], name: str) -> None:
    for position, column in enumerate(columns, start=1):
        if not column:
            hint = " (pandas writes its index that way: use index=False)" if position == 1 else ""
            raise InputError(
                f"{name}: column {position} of {len(columns)} has no name{hint}; name or drop the column"
            )
    seen: set[str] = set()
    for column in columns:
        if not _is_text(column):
            raise InputError(
                f"{name}: the column name {ascii(column)} holds half of a surrogate pair, which is no character; "
                "rename the column"
            )
        if column in seen:
            raise InputError(f'{name}: there are two columns "{column}"; rename or drop one')
        seen.add(column)


# --- separated values ---------------------------------------------------------------------------------------


def _parse_delimited(data: bytes, name: str) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header, length = first_record(data)
    separator = find_separator(header, name)
    # Names are trimmed, cells are not: `a, b` is a habit in headers, and the gate reports ids that differ in
    # blanks.
    columns = [column.strip() for column in split_header(header, separator)]
    check_names(columns, name)
    if len(data) < _SMALL_BYTES:
        rows = list(read_records(_lines_of(data), separator, len(columns), name))
        cells = zip(*rows, strict=True) if rows else [()] * len(columns)
        return pd.DataFrame(
            {column: pd.Series(cell, dtype="str") for column, cell in zip(columns, cells, strict=True)}
        )
    # Arrow reads a quotation mark that is never closed, and text after a closing one, without an error.
    quotes = QuoteCheck(separator)
    quotes.add(data)
    if not quotes.end():
        explain_records(_lines_of(data), separator, len(columns), name)
    if not data[length:].strip(b"\r\n"):
        return pd.DataFrame({column: pd.Series([], dtype="str") for column in columns})

    body = _arrow_copy(memoryview(data)[length:])
    parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(
        check_utf8=False,
        column_types={column: pa.string() for column in columns},
        null_values=[],
        strings_can_be_null=False,
    )
    # A row must fit into a block. Blocks of 16 MB parse in parallel; one block for all is the way out for
    # giant rows.
    for block_size in (1 << 24, min(body.size + 1, 2**31 - 1)):
        read = arrow_csv.ReadOptions(column_names=columns, block_size=block_size)
        try:
            return _text_frame(arrow_csv.read_csv(pa.BufferReader(body), read, parse, convert))
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                explain_records(_lines_of(data), separator, len(columns), name)
                raise InputError(f"{name}: the rows cannot be read ({one_line(error)})") from None
    raise InputError(f"{name}: a row is larger than 2 GB, or a quotation mark is never closed")


def _arrow_copy(data: bytes | memoryview) -> pyarrow.Buffer:
    """Copy bytes into memory of Arrow's.

    Its threads may drop the last reference, which for memory of Python's they must not while the interpreter
    ends.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    sink.write(data)
    return sink.getvalue()


def _text_frame(table: pyarrow.Table) -> pd.DataFrame:
    threads = table.nbytes >= _SMALL_BYTES
    frame: pd.DataFrame = table.to_pandas(split_blocks=True, self_destruct=True, use_threads=threads)
    return frame


class QuoteCheck:
    """Whether all quotation marks stand at the edges of fields and pair up, block by block.

    A first look at the speed of memory. Where it says no, `explain_records` knows better: marks within a
    field that does not begin with one are text.

    Examples
    --------
    >>> check = QuoteCheck(",")
    >>> check.add(b'a,"b ""x"')
    >>> check.add(b'" c"')
    >>> check.end()
    True
    """

    def __init__(self, separator: str) -> None:
        # Before an opening and after a closing mark. A mark after a mark is one that is written twice.
        self._edges = np.zeros(256, dtype=bool)
        self._edges[list((separator + '\r\n"').encode())] = True
        self._last = b"\n"  # byte before the block
        self._n_marks = 0
        self._sound = True

    def add(self, block: bytes) -> None:
        if not block:
            return
        # A mark at the end of the block before is looked at again, now that its right side is known.
        data = np.frombuffer(self._last + block, dtype=np.uint8)
        found = b'"' in block or self._last == b'"'
        if found and self._sound:
            marks = np.flatnonzero(data == ord('"'))
            new = marks[1:] if marks[0] == 0 else marks
            opening = new[self._n_marks % 2 :: 2]
            closing = (marks if marks[0] == 0 else new)[(self._n_marks - (marks[0] == 0) + 1) % 2 :: 2]
            closing = closing[closing + 1 < len(data)]
            self._sound = bool(self._edges[data[opening - 1]].all() and self._edges[data[closing + 1]].all())
            self._n_marks += len(new)
        self._last = block[-1:]

    def end(self) -> bool:
        return self._sound and self._n_marks % 2 == 0


def first_record(data: bytes) -> tuple[str, int]:
    """Return the header's text and its length in bytes, blank lines before it included."""
    end = 0
    quoted = False
    record = b""
    while end < len(data):
        # A header is short; the lone carriage returns of old Macs are searched for in it, not in the whole
        # file.
        stops = [
            stop for stop in (data.find(b"\n", end), data.find(b"\r", end, end + (1 << 20))) if stop >= 0
        ]
        stop = min(stops) if stops else len(data) - 1
        if data[stop : stop + 2] == b"\r\n":
            stop += 1
        line = data[end : stop + 1]
        end = stop + 1
        record += line
        quoted ^= bool(line.count(b'"') % 2)
        if not quoted:
            if record.strip():
                break
            record = b""
    return record.decode("utf-8").strip("\r\n"), end


def split_header(header: str, separator: str) -> list[str]:
    with _unlimited_fields():
        return next(csv.reader(io.StringIO(header, newline=""), delimiter=separator), [])


def find_separator(header: str, name: str) -> str:
    found = [separator for separator in _SEPARATORS if len(split_header(header, separator)) > 1]
    if len(found) > 1:
        kinds = " and ".join(_SEPARATORS[separator] for separator in found)
        raise InputError(
            f"{name}: the header line could be separated by {kinds}; put column names that hold one of them "
            "in "
            "double quotes"
        )
    return found[0] if found else ","


def explain_records(text: Iterable[str], separator: str, n_columns: int, name: str) -> None:
    """Raise for the first row with broken quotes or a wrong number of fields, if there is one.

    `text` gives the lines of the file, header included, with their line ends.
    """
    deque(read_records(text, separator, n_columns, name), maxlen=0)


def read_records(text: Iterable[str], separator: str, n_columns: int, name: str) -> Iterator[list[str]]:
    """Yield the rows below the header; raise for the first one that is none. Blank lines are skipped."""
    with _unlimited_fields():
        reader = csv.reader(text, delimiter=separator, strict=True)
        header: list[str] = []
        line = 1
        while True:
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error:
                raise InputError(
                    f"{name}: the double quotes in the row that begins on line {line} do not pair up; close "
                    "the quote with nothing after it, or "
                    'write a quote inside a quoted field as ""'
                ) from None
            if record and len(record) != n_columns:
                fields = "1 field" if len(record) == 1 else f"{len(record)} fields"
                comment = header and header[0].startswith("#")
                remedy = (
                    f"comments are not skipped, so delete the line that begins with {header[0][:20]!r}"
                    if comment
                    else f"put a field that holds the separator ({_SEPARATORS[separator]}) in double quotes, and "
                    "write empty fields out"
                )
                raise InputError(f"{name}: line {line} has {fields}, the header has {n_columns}; {remedy}")
            if header and record:
                yield record
            header = header or record
            line = reader.line_num + 1


def _lines_of(data: bytes) -> io.StringIO:
    return io.StringIO(data.decode("utf-8"), newline="")


@contextlib.contextmanager
def _unlimited_fields() -> Iterator[None]:
    # The csv module's limit is global; model answers are often longer than its 128 KB.
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."


# --- JSON ---------------------------------------------------------------------------------------------------


def _parse_json(data: bytes, name: str) -> pd.DataFrame:
    text = data.decode("utf-8")
    start = len(text) - len(text.lstrip())
    try:
        document, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        first_line = text[start:].split("\n", 1)[0].strip()
        if not (first_line.startswith("{") and first_line.endswith("}")):
            raise _json_error(error, name, 0) from None
        end = start
    except (_BadRecordError, RecursionError) as error:
        raise InputError(f"{name}: {_record_reason(error)}") from None
    if text[end:].strip():
        if text[start] == "[":
            line = text.count("\n", 0, end) + 1
            raise InputError(
                f"{name}: line {line} goes on after the end of the JSON list; one list or one object per line"
            )
        return records_frame(*json_lines(text.split("\n"), name), name)
    if isinstance(document, dict):
        keys = [key for key in _LIST_KEYS if isinstance(document.get(key), list)]
        if len(keys) > 1:
            raise InputError(f"{name}: the JSON object holds the lists {_quoted(keys)}; keep one of them")
        if not keys:
            return records_frame([document], [1], name)
        document = document[keys[0]]
    return records_frame(document, None, name)


class _BadRecordError(Exception):
    pass


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise _BadRecordError(f'an object has the key "{repeated}" twice; rename or drop one')
    return record


def _constant(text: str) -> str | None:
    return None if text == "NaN" else text


_DECODER = json.JSONDecoder(
    object_pairs_hook=_record, parse_int=str, parse_float=str, parse_constant=_constant
)


def _record_reason(error: Exception) -> str:
    return "the JSON is nested too deeply to be a table" if isinstance(error, RecursionError) else str(error)


def _json_error(error: json.JSONDecodeError, name: str, lines_before: int) -> InputError:
    return InputError(
        f"{name}: line {error.lineno + lines_before}, column {error.colno} is not valid JSON ({error.msg}); "
        "needed is a "
        "list of objects, or one object per line"
    )


def json_lines(text: Iterable[str], name: str, *, start: int = 1) -> tuple[list[Any], list[int]]:
    """Return the records of lines of JSON, and the number of the line of each; the first line is `start`."""
    records = []
    lines = []
    for number, line in enumerate(text, start):
        line = line.strip()
        if not line:
            continue
        try:
            record = _DECODER.decode(line)
        except json.JSONDecodeError as error:
            raise _json_error(error, name, number - 1) from None
        except (_BadRecordError, RecursionError) as error:
            raise InputError(f"{name}: line {number}: {_record_reason(error)}") from None
        records.append(record)
        lines.append(number)
    return records, lines


def records_frame(records: list[Any], lines: list[int] | None, name: str) -> pd.DataFrame:
    def place(number: int) -> str:
        return f"line {lines[number]}" if lines else f"record {number + 1}"

    if not records:
        raise InputError(f"{name}: the JSON list is empty; needed is one object per row")
    columns: dict[str, None] = {}
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            raise InputError(
                f"{name}: {place(number)} is {_json_kind(record)}; needed is an object with one key per "
                "column"
            )
        columns.update(dict.fromkeys(record))
    if not columns:
        raise InputError(f"{name}: the JSON objects have no keys; needed is one key per column")
    cells: dict[str, list[Any]] = {}
    for column in columns:
        values = [record.get(column) for record in records]
        kinds = set(map(type, values))
        if not kinds <= {str, type(None), bool}:
            number = next(i for i, value in enumerate(values) if isinstance(value, list | dict))
            raise InputError(
                f'{name}: {place(number)}: the key "{column}" holds {_json_kind(values[number])}; needed is '
                "text or a "
                "number, so flatten or drop that key"
            )
        if kinds != {str}:
            values = [_json_text(value) for value in values]
        cells[column] = values
    trimmed = [column.strip() for column in columns]
    check_names(trimmed, name)
    try:
        frame = pd.DataFrame({column: pd.Series(values, dtype="str") for column, values in cells.items()})
    except UnicodeEncodeError:
        number, column = next(
            (number, column)
            for number in range(len(records))
            for column, values in cells.items()
            if not _is_text(values[number])
        )
        raise InputError(
            f'{name}: {place(number)}: the key "{column}" holds {ascii(cells[column][number])[:60]}, which has '
            "half of a surrogate pair and is no text; remove or repair it"
        ) from None
    frame.columns = pd.Index(trimmed)
    return frame


def _is_text(value: str) -> bool:
    """Whether a string can be encoded: JSON may hold half of a pair of surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _json_text(value: str | bool | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value).lower()


def _json_kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return "null" if value is None else f"the single value {str(value)[:40]}"


# --- Parquet ------------------------------------------------------------------------------------------------

# Columns that name an item or hold the name of one, in the layouts that the gates accept.
_ITEM_COLUMNS = frozenset(
    (
        "item",
        "item_first",
        "item_second",
        "item_a",
        "item_b",
        "winner",
        "model_a",
        "model_b",
        "model",
        "left",
        "right",
    )
)


def _parse_parquet(data: bytes, name: str, needed: Collection[str] | None) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # ParquetFile, not read_table: the latter guesses partitions and filters and loads the dataset
        # machinery.
        table = parquet.ParquetFile(pa.BufferReader(_arrow_copy(data))).read(
            use_threads=len(data) >= _SMALL_BYTES
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{name}: the Parquet data cannot be read ({one_line(error)}); write the file again"
        ) from None
    table = table.select([i for i, column in enumerate(table.column_names) if not is_pandas_index(column)])
    columns = [column.strip() for column in table.column_names]
    if not columns:
        raise InputError(f"{name}: the Parquet file has no columns")
    check_names(columns, name)
    arrays = [
        text_column(table.column(i), column, name, optional=needed is not None and column not in needed)
        for i, column in enumerate(columns)
    ]
    return _text_frame(pa.table(dict(zip(columns, arrays, strict=True))))


def is_pandas_index(column: str) -> bool:
    return column.startswith("__index_level_") and column.endswith("__")


def text_column(
    array: pyarrow.ChunkedArray, column: str, name: str, *, optional: bool = False
) -> pyarrow.ChunkedArray:
    """Return the column as text, or as a dictionary of text where it was one; nulls become the empty string.

    An optional column that is no text becomes empty strings.
    """
    import pyarrow as pa
    from pyarrow import compute

    if optional:
        try:
            return text_column(array, column, name)
        except InputError:
            return pa.chunked_array([pa.repeat(pa.scalar(""), len(array))])

    kind = array.type
    if pa.types.is_nested(kind):
        raise InputError(
            f'{name}: the column "{column}" holds {kind} values; needed is text or numbers, so flatten or '
            "drop the column"
        )
    if pa.types.is_dictionary(kind):
        values = text_column(array.cast(kind.value_type), column, name)
        return compute.dictionary_encode(values)
    if pa.types.is_floating(kind):
        array = _whole_numbers(array, column, name)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return compute.fill_null(array.cast(pa.large_string()), "")
    try:
        return compute.fill_null(array.cast(pa.string()), "")
    except pa.ArrowException:
        raise InputError(
            f'{name}: the column "{column}" holds {kind} values that are no text; convert it to text'
        ) from None


def _whole_numbers(array: pyarrow.ChunkedArray, column: str, name: str) -> pyarrow.ChunkedArray:
    """Floats that are all whole as integers; not-a-number is a null."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    array = compute.if_else(compute.is_nan(array), pa.scalar(None, array.type), array)
    whole = compute.and_(
        compute.equal(compute.floor(array), array), compute.less(compute.abs(array), 2.0**53)
    )
    if compute.all(whole).as_py() in (True, None):
        return array.cast(pa.int64())
    if column in _ITEM_COLUMNS:
        value = array.filter(compute.invert(whole))[0].as_py()
        raise InputError(
            f'{name}: the column "{column}" holds the number {value}, and names that are decimal numbers '
            "lose their "
            "spelling (1.1 and 1.10); store the column as text"
        )
    return array
