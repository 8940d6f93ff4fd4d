"""Tallies of files in batches: tables larger than memory, partitioned Parquet, several processes or a cluster.

Every batch passes the one gate (:func:`rank.verdicts.gate_rows`), is counted, and is forgotten; counts add.
What only all rows together can show is settled from what is kept of each batch: its labels, its counts, and
a 64-bit number per row that stands for the key of the call.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pandas as pd

from rank import readers
from rank.columns import counting_rows_after, id_strings
from rank.exceptions import InputError
from rank.parallel import map_tasks
from rank.tally import INCONSISTENT, INVALID, Tally, add_tallies, tally_verdicts
from rank.verdicts import (
    GateFacts,
    VerdictTable,
    check_columns,
    check_verdicts,
    gate_rows,
    grouping_columns,
    guess_layout,
    label_codes,
    needs_layout,
    refuse_repeated_keys,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["is_large", "read_tally", "tally_files"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Rows of one batch: enough to make the cost of a batch small, few enough to stay near the cache.
BATCH_ROWS = 500_000

#: Files above these sizes are read in batches by `read_tally`; Parquet packs its rows more tightly.
_WHOLE_BYTES = {"parquet": 2_000_000, "text": 32_000_000}

#: Rows of Parquet per task when there are several workers, rounded up to whole row groups.
_TASK_ROWS = 1_000_000

#: Bytes in which a header, or the first object of JSON Lines, must end.
_HEADER_BYTES = 1 << 20

_BLOCK_BYTES = 1 << 24

#: Batches whose counts are added in one go.
_ADD_AT_ONCE = 8

#: Keys whose rows are read again when keys repeat.
_MOST_EXPLAINED = 1_000

_NO_ROWS = "the verdict table has a header but no rows"

#: Folder name of a missing value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def read_tally(
    paths: Paths,
    *,
    batch_rows: int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
    drop_exact_copies: bool = False,
    **options: Any,
) -> Tally:
    """Read verdict files and count them: small ones whole, large ones and folders in batches.

    Parameters
    ----------
    paths : path or sequence of paths
        Files (see `rank.readers.read_table`; ``"-"`` is standard input) and folders of Parquet files.
    batch_rows : int, optional
        Rows of a batch; given, even small files are read in batches. Default: batches for what is large.
    n_jobs, dask
        See `tally_files`.
    drop_exact_copies : bool
        See `rank.verdicts.check_verdicts`; needs the whole table at once.
    **options
        ``by``, ``layout``, ``number_runs``: see `rank.verdicts.check_verdicts`.

    Returns
    -------
    Tally
        The same either way.
    """
    files = readers.list_files(paths)
    if drop_exact_copies and any(map(os.path.isdir, files)):
        raise InputError("exact copies cannot be dropped from folders of Parquet files; name the files")
    batches = batch_rows is not None or dask is not None or any(is_large(file) for file in files)
    if drop_exact_copies or not batches:
        return tally_verdicts(readers.read_verdicts(files, drop_exact_copies=drop_exact_copies, **options))
    return tally_files(files, batch_rows=batch_rows or BATCH_ROWS, n_jobs=n_jobs, dask=dask, **options)


def tally_files(
    paths: Paths,
    *,
    by: Sequence[str] | None = None,
    layout: str | None = None,
    number_runs: bool = False,
    batch_rows: int = BATCH_ROWS,
    n_jobs: int = 1,
    dask: Any = None,
) -> Tally:
    """Count verdict files batch by batch, so that memory does not grow with the text in them.

    Parameters
    ----------
    paths : path or sequence of paths
        CSV, TSV, JSON Lines or Parquet, plain or (text) gzipped, and folders of Parquet files. Folder names
        such as ``judge=a`` below a folder are columns. Files of other kinds are read whole.
    by, layout, number_runs
        See `rank.verdicts.check_verdicts`.
    batch_rows : int
        Rows in memory at a time (CSV: rounded to blocks of bytes).
    n_jobs : int
        Local processes; Parquet is shared out by row groups, text by files.
    dask : str or distributed.Client, optional
        Dask scheduler; see `rank.parallel.map_tasks`. The workers must see the files under the same names.

    Returns
    -------
    Tally
        Counts, labels, ledger and notes are those of
        ``tally_verdicts(read_verdicts(paths, by=..., layout=..., number_runs=...))``, for any `batch_rows`
        and any number of workers.

    Raises
    ------
    InputError
        As the readers and the gate do. Rows are counted in their file; an error names the bad rows of the
        first batch that has any.

    Notes
    -----
    Kept in memory: the counts of the distinct calls, the distinct labels, and 8 bytes per row for finding
    repeated keys (none with `number_runs`). The 8 bytes are a hash of the key's labels; rows whose hashes
    are equal are read again and compared exactly, so a collision costs time and never a verdict.

    Columns that nothing is computed from are not read, so what is wrong in them is not found. With a
    ``criterion`` column the calls are merged before they are counted: then the codes of all rows (no texts)
    are held in memory, some 100 bytes per row.

    Examples
    --------
    >>> import tempfile
    >>> rows = pd.DataFrame({"item_first": ["a", "b"], "item_second": ["b", "a"], "verdict": ["first", "second"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows.to_parquet(os.path.join(folder, "verdicts.parquet"))
    ...     tally_files(folder, batch_rows=1).counts[0].tolist()
    [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    """
    if batch_rows < 1:
        raise InputError(f"batch rows must be at least 1, found {batch_rows}")
    parts = [part for path in readers.list_files(paths) for part in _open_parts(path)]
    if not parts:
        raise InputError("no verdict file was given; name at least one")
    names = ", ".join(dict.fromkeys(part.given for part in parts))
    try:
        columns = _common_columns(parts)
        with readers.naming(names):
            check_columns(columns, by, layout, number_runs=number_runs)
    except InputError:
        # Rows that do not fit the header say more than what the header lacks, as when a file is read whole.
        for part in parts:
            if part.kind == "delimited":
                _explain_text(part.path, part.name, part.columns)
        raise
    by = grouping_columns(columns) if by is None else list(by)
    wanted = [column for column in columns if column in {*readers.VERDICT_COLUMNS, *by}]
    if "criterion" in wanted:
        with readers.naming(names):
            frame = _compact_frame(parts, wanted, batch_rows)
            return tally_verdicts(check_verdicts(frame, by=by, layout=layout))

    count = partial(_count_part, columns=wanted, by=by, keep_keys=not number_runs, batch_rows=batch_rows)

    def count_with(layout: str | Mapping[str, str] | None) -> _Piece:
        total = _add_pieces(map_tasks(partial(count, layout=layout), parts, n_jobs=n_jobs, dask=dask))
        if total is None:
            raise InputError(f"{names}: {_NO_ROWS}")
        return total

    chosen: str | Mapping[str, str] | None = layout
    try:
        total = count_with(layout)
        if layout is None:
            chosen = _guess_layouts(total.facts.labels, total.tally.items, names)
            if any(chosen[column] != used for column, used in total.layouts):
                total = count_with(chosen)
    except InputError:
        if layout is not None:
            raise
        # A batch knows a part of the labels and may have taken them for something else: ask all of them.
        chosen = _guess_layouts(*_list_labels(parts, wanted, batch_rows), names)
        total = count_with(chosen)
    if isinstance(chosen, Mapping):
        total.facts.layouts.update(chosen)
    if not number_runs:
        _refuse_repeated_hashes(total.keys, parts, by, chosen, batch_rows, names)
    with readers.naming(names):
        return _finish(total, number_runs)


def is_large(path: str | os.PathLike[str]) -> bool:
    """Whether `read_tally` reads a path in batches on its own: large files and all folders."""
    if os.path.isdir(path):
        return True
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as stream:
            kind = "parquet" if stream.read(4) == b"PAR1" else "text"
            return os.fstat(stream.fileno()).st_size > _WHOLE_BYTES[kind]
    except (OSError, ValueError):
        return False


# --- what is kept of a batch --------------------------------------------------------------------------------


@dataclass
class _Piece:
    """What is kept of some rows: counts, facts, the hashed keys, and the layouts that its batches were read with."""

    tally: Tally
    facts: GateFacts
    keys: list[np.ndarray]
    layouts: set[tuple[str, str]]


def _add_pieces(pieces: Iterable[_Piece | None]) -> _Piece | None:
    """Add pieces up, None where there are none; tallies wait until there is enough to add, so that each row is moved a few times only."""
    total: _Piece | None = None
    waiting: list[Tally] = []
    for piece in pieces:
        if piece is None:
            continue
        if total is None:
            total = piece
            continue
        total.facts.add(piece.facts)
        total.keys += piece.keys
        total.layouts |= piece.layouts
        waiting.append(piece.tally)
        if sum(tally.n_pairs for tally in waiting) > total.tally.n_pairs:
            total.tally = add_tallies([total.tally, *waiting])
            waiting = []
    if waiting and total is not None:
        total.tally = add_tallies([total.tally, *waiting])
    return total


def _count_part(
    part: _Part,
    *,
    columns: list[str],
    by: list[str],
    layout: str | Mapping[str, str] | None,
    keep_keys: bool,
    batch_rows: int,
) -> _Piece | None:
    """Count the rows of one part of a file; None where it has none."""
    pieces = []
    total = None
    # Closed here, also when a batch is refused: a reader left open reads ahead in a thread of its own.
    with contextlib.closing(part.batches(columns, batch_rows)) as batches:
        for start, frame in batches:
            table, facts, keys = _gate_batch(frame, part, start, by, layout, keep_keys)
            stated = {
                (name, facts.layouts[name])
                for name, labels in facts.labels.items()
                if any(map(needs_layout, labels))
            }
            pieces.append(
                _Piece(tally_verdicts(replace(table, ledger={"n_rows": len(frame)})), facts, [keys], stated)
            )
            if len(pieces) == _ADD_AT_ONCE:
                total = _add_pieces([total, *pieces])
                pieces = []
    return _add_pieces([total, *pieces]) if pieces else total


def _gate_batch(
    frame: pd.DataFrame,
    part: _Part,
    start: int,
    by: list[str],
    layout: str | Mapping[str, str] | None,
    keep_keys: bool,
) -> tuple[VerdictTable, GateFacts, np.ndarray]:
    """Pass a batch through the gate; also return a hash of the key of every row."""
    with readers.naming(part.name), counting_rows_after(start):
        table, facts = gate_rows(frame.drop(columns="run", errors="ignore"), by, layout)
    if not keep_keys:
        return table, facts, np.zeros(0, dtype=np.uint64)
    keys = _hash_labels(table.groups)[table.group]
    keys += _hash_labels(table.contexts, 16)[table.context]
    items = pd.DataFrame({"item": table.items})
    keys += _hash_labels(items, 32)[table.first]
    keys += _hash_labels(items, 33)[table.second]
    if "run" in frame.columns:
        code, labels = label_codes(frame, ["run"])
        keys += _hash_labels(labels, 34)[code]
    return table, facts, keys


def _hash_labels(labels: pd.DataFrame, salt: int = 0) -> np.ndarray:
    """Hash rows of labels by their text alone, so that workers and batches agree, shape (rows,)."""
    factors = np.random.default_rng(salt).integers(0, 2**63, size=labels.shape[1], dtype=np.uint64)
    total = np.zeros(len(labels), dtype=np.uint64)
    for factor, column in zip(factors, labels.columns, strict=True):
        hashed = pd.util.hash_array(labels[column].to_numpy(dtype=object), categorize=False)
        total += hashed * (2 * factor + np.uint64(1))
    return total


# --- what all rows together decide --------------------------------------------------------------------------


def _guess_layouts(labels: Mapping[str, Counter[str]], items: np.ndarray, names: str) -> dict[str, str]:
    with readers.naming(names):
        return {column: guess_layout(column, found, items) for column, found in labels.items()}


def _list_labels(
    parts: Sequence[_Part], columns: list[str], batch_rows: int
) -> tuple[dict[str, Counter[str]], np.ndarray]:
    """Count the labels of the verdict columns and list the items, without understanding either."""
    labels: dict[str, Counter[str]] = {name: Counter() for name in ("verdict", "winner") if name in columns}
    items: set[str] = set()
    for part in parts:
        for start, frame in part.batches([*labels, "item_first", "item_second"], batch_rows):
            with readers.naming(part.name), counting_rows_after(start):
                for name in ("item_first", "item_second"):
                    items.update(label_codes(frame, [name])[1][name])
                for name, counter in labels.items():
                    code, texts = label_codes(frame, [name])
                    counter.update(dict(zip(texts[name], np.bincount(code).tolist(), strict=True)))
    return labels, np.array(sorted(items), dtype=object)


def _refuse_repeated_hashes(
    keys: list[np.ndarray],
    parts: Sequence[_Part],
    by: list[str],
    layout: str | Mapping[str, str] | None,
    batch_rows: int,
    names: str,
) -> None:
    """Raise when a key occurs twice: read the rows with equal hashes again and compare what they say."""
    hashes = np.concatenate(keys)
    keys.clear()
    hashes.sort()
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return
    suspects = np.unique(hashes[1:][equal])
    n_repeated = len(suspects) + int(equal.sum())
    suspects = suspects[:_MOST_EXPLAINED]
    found = []
    before = 0
    lengths: dict[str, int] = {}
    for part in parts:
        optional = frozenset(part.columns) - {*readers.VERDICT_COLUMNS, *by}
        for start, frame in part.batches(list(part.columns), batch_rows, optional):
            lengths[part.name] = lengths.get(part.name, 0) + len(frame)
            chosen = np.isin(_gate_batch(frame, part, start, by, layout, True)[2], suspects)
            if chosen.any():
                found.append(frame[chosen].astype(object).set_axis(before + np.flatnonzero(chosen)))
            before += len(frame)
    frame = pd.concat(found)
    table, _ = gate_rows(frame.reset_index(drop=True), by, layout)
    key = [(table.group, len(table.groups)), (table.context, len(table.contexts))]
    key += [(table.first, len(table.items)), (table.second, len(table.items)), (table.run, len(frame))]
    with readers.naming(names), readers.placing_rows(list(lengths), list(lengths.values())):
        refuse_repeated_keys(frame, key, table.verdict, by, n_repeated=n_repeated)


def _finish(total: _Piece, number_runs: bool) -> Tally:
    """Complete the ledger, the notes and merged results, as `rank.verdicts.check_verdicts` does for a table."""
    tally = total.tally
    counts = tally.counts
    ledger = {**tally.ledger, **total.facts.ledger, "n_invalid": int(counts[..., INVALID].sum())}
    if number_runs:
        ledger["n_numbered_runs"] = ledger["n_rows"] - int((counts.sum(axis=-1) > 0).sum())
    if stated := int(counts[..., INCONSISTENT].sum()):
        counts = _expand_merged(tally)
        ledger["n_merged_rows"] = int(counts.sum() - tally.counts.sum())
        ledger["n_stated_inconsistent"] = stated
    notes = total.facts.notes(tally.items, tally.groups, tally.contexts, ledger)
    return replace(tally, counts=counts, ledger=ledger, notes=notes)


def _expand_merged(tally: Tally) -> np.ndarray:
    """Let stated merged results of both orders count in both orders; see `rank.verdicts`."""
    uses = np.zeros(tally.n_groups, dtype=bool)
    uses[tally.group[tally.counts[..., INCONSISTENT].any(axis=1)]] = True
    merged = uses[tally.group]
    asked = tally.counts.sum(axis=2) > 0
    mixed = merged & asked[:, 0] & asked[:, 1]
    if mixed.any():
        example = int(np.flatnonzero(mixed)[0])
        pair = f"{tally.items[tally.item_i[example]]} and {tally.items[tally.item_j[example]]}"
        raise InputError(
            f"{int(mixed.sum())} pair(s), for example {pair}: the group states merged results ('tie (inconsistent)') and also "
            "shows pairs in both orders; keep either the merged rows or the single calls"
        )
    both = tally.counts.sum(axis=1, keepdims=True)
    return np.where(merged[:, None, None], both, tally.counts)


def _compact_frame(parts: Sequence[_Part], columns: list[str], batch_rows: int) -> pd.DataFrame:
    """Return all rows with their texts as codes."""
    pieces: dict[str, list[pd.Categorical]] = {column: [] for column in columns}
    for part in parts:
        for _, frame in part.batches(columns, batch_rows):
            for column in columns:
                cells = frame[column].astype("category").array
                texts = id_strings(pd.Series(cells.categories), column, allow_empty=True, decimals="keep")
                pieces[column].append(cells.rename_categories(texts.to_numpy(dtype=object)))
    if not pieces[columns[0]]:
        raise InputError(_NO_ROWS)
    return pd.DataFrame({column: pd.api.types.union_categoricals(cells) for column, cells in pieces.items()})


# --- files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Consecutive rows of a file that are read by one worker, batch by batch.

    Attributes
    ----------
    path, name : str
    given : str
        What the user named: the file, or the folder that it is in.
    kind : str
        ``parquet``, ``delimited``, ``lines`` (of JSON), or ``whole``: read already, as `frame`.
    columns : tuple of str
        Columns of the file, and of the names of its folders.
    rows_before : int
        Rows of the file before the first one.
    row_groups : tuple of int
    labels : tuple of pairs (column, value)
        From the names of folders.
    """

    path: str
    name: str
    given: str
    kind: str
    columns: tuple[str, ...]
    rows_before: int = 0
    row_groups: tuple[int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    frame: pd.DataFrame | None = None

    def batches(
        self, columns: list[str], batch_rows: int, optional: frozenset[str] = frozenset()
    ) -> Generator[tuple[int, pd.DataFrame], None, None]:
        """Yield the number of rows before a batch, and the batch with the columns asked for.

        Optional columns that are no text are blank.
        """
        fixed = dict(self.labels)
        own = [column for column in columns if column not in fixed]
        start = self.rows_before
        for frame in self._frames(own, batch_rows, optional):
            for column in columns:
                if column in fixed:
                    label = pd.Index([fixed[column]], dtype=object)
                    frame[column] = pd.Categorical.from_codes(
                        np.zeros(len(frame), dtype=np.int64), categories=label
                    )
            yield start, frame[columns]
            start += len(frame)

    def _frames(
        self, columns: list[str], batch_rows: int, optional: frozenset[str]
    ) -> Iterator[pd.DataFrame]:
        if self.kind == "parquet":
            tables = _parquet_tables(self.path, columns, self.row_groups, batch_rows)
        elif self.kind == "delimited":
            tables = _delimited_tables(self.path, self.name, columns, batch_rows)
        elif self.kind == "lines":
            yield from _json_frames(self.path, self.name, columns, batch_rows)
            return
        else:
            assert self.frame is not None
            for low in range(0, len(self.frame), batch_rows):
                yield self.frame.iloc[low : low + batch_rows].reset_index(drop=True)
            return
        for table in tables:
            yield pd.DataFrame(
                {c: _series(table.column(c), c, self.name, c in optional) for c in table.column_names}
            )


def _common_columns(parts: Sequence[_Part]) -> list[str]:
    first = parts[0]
    for part in parts[1:]:
        missing = [column for column in first.columns if column not in part.columns]
        surplus = [column for column in part.columns if column not in first.columns]
        lacking, having, columns = (part, first, missing) if missing else (first, part, surplus)
        if columns:
            quoted = ", ".join(f'"{column}"' for column in columns)
            raise InputError(
                f"{lacking.name}: has no column {quoted}, which {having.name} has; files that are read together need the same columns"
            )
    return list(first.columns)


def _open_parts(path: str | os.PathLike[str]) -> list[_Part]:
    """Find out what a path is, and cut it into parts; sizes and names decide, never the number of workers."""
    name = readers.display_name(path)
    if os.path.isdir(path):
        return [part for file, labels in _list_folder(path) for part in _parquet_parts(file, name, labels)]
    kind = "whole" if name == "standard input" else _kind_of(path, name)
    if kind == "parquet":
        return _parquet_parts(os.fspath(path), name, ())
    if kind == "delimited":
        with _open_bytes(path) as stream:
            header, _ = readers.first_record(_skip_mark(stream.read(_HEADER_BYTES)))
        columns = _header_columns(header, name)
    elif kind == "lines":
        columns = _json_columns(os.fspath(path), name)
    else:
        frame = readers.read_table(path)
        return [_Part(os.fspath(path), name, name, kind, tuple(frame.columns), frame=frame)]
    return [_Part(os.fspath(path), name, name, kind, tuple(columns))]


def _kind_of(path: str | os.PathLike[str], name: str) -> str:
    """Kind of a file by its first bytes; what is no regular file, or broken, is left to `rank.readers`."""
    if not os.path.isfile(path):
        return "whole"
    try:
        with open(path, "rb") as stream:
            if stream.read(4) == b"PAR1":
                return "parquet"
        with _open_bytes(path) as stream:
            data = stream.read(_HEADER_BYTES)
    except (OSError, EOFError, ValueError):
        return "whole"
    try:
        readers.refuse_foreign(data, name)
        text = _skip_mark(data).decode("utf-8", "strict" if len(data) < _HEADER_BYTES else "ignore")
    except (InputError, UnicodeDecodeError):
        return "whole"
    text = text.lstrip()
    if not text or text[0] == "[" or "\0" in text:
        return "whole"
    if text[0] != "{":
        return "delimited"
    # One object per line, or one object that holds the list?
    try:
        records, _ = readers.json_lines(text.split("\n", 1)[:1], name)
    except InputError:
        return "whole"
    return "whole" if any(isinstance(value, list) for value in records[0].values()) else "lines"


def _open_bytes(path: str | os.PathLike[str]) -> IO[bytes]:
    with open(path, "rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


def _skip_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


# --- Parquet ------------------------------------------------------------------------------------------------


def _list_folder(folder: str | os.PathLike[str]) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the Parquet files below a folder, in the order of their names, with the labels of their folders."""
    root = Path(folder)
    found = []
    for file in sorted(root.rglob("*")):
        steps = file.relative_to(root).parts
        hidden = any(step.startswith(("_", ".")) for step in steps)
        if hidden or file.suffix not in (".parquet", ".pq") or not file.is_file():
            continue
        pairs = [step.partition("=") for step in steps[:-1] if "=" in step]
        labels = [
            (unquote(column), "" if value == _NO_VALUE else unquote(value)) for column, _, value in pairs
        ]
        found.append((str(file), tuple(labels)))
    if not found:
        raise InputError(f"{os.fspath(folder)}: there is no Parquet file in this folder")
    return found


def _parquet_parts(path: str, given: str, labels: tuple[tuple[str, str], ...]) -> list[_Part]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            metadata = file.metadata
            columns = [
                column.strip() for column in file.schema_arrow.names if not readers.is_pandas_index(column)
            ]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: the Parquet data cannot be read ({readers.one_line(error)}); write the file again"
        ) from None
    both = [column for column, _ in labels if column in columns]
    if both:
        raise InputError(
            f"{path}: the column {both[0]} is in the file and in the name of its folder; drop one"
        )
    columns += [column for column, _ in labels]
    readers.check_names(columns, path)
    parts = []
    groups: list[int] = []
    n_rows = before = 0
    for index in range(metadata.num_row_groups):
        groups.append(index)
        n_rows += metadata.row_group(index).num_rows
        if n_rows >= _TASK_ROWS or index == metadata.num_row_groups - 1:
            parts.append(_Part(path, path, given, "parquet", tuple(columns), before, tuple(groups), labels))
            before, n_rows, groups = before + n_rows, 0, []
    return parts or [_Part(path, path, given, "parquet", tuple(columns), labels=labels)]


def _parquet_tables(
    path: str, columns: list[str], row_groups: tuple[int, ...], batch_rows: int
) -> Iterator[pyarrow.Table]:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
    raw = {name.strip(): name for name in schema.names}
    kinds = (pa.types.is_string, pa.types.is_large_string)
    text = [raw[c] for c in columns if any(is_kind(schema.field(raw[c]).type) for is_kind in kinds)]
    try:
        # Texts stay codes into a dictionary, as they are in the file.
        with parquet.ParquetFile(path, read_dictionary=text) as file:
            chosen = [raw[column] for column in columns]
            batches = file.iter_batches(batch_rows, row_groups=list(row_groups), columns=chosen)
            for table in _gather(batches, batch_rows):
                yield table.select(chosen).rename_columns(columns)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: the Parquet data cannot be read ({readers.one_line(error)}); write the file again"
        ) from None


def _gather(batches: Iterable[pyarrow.RecordBatch], batch_rows: int) -> Iterator[pyarrow.Table]:
    """Cut large batches and put small ones together: what a batch costs must not depend on how a file was written."""
    import pyarrow as pa

    waiting: list[pyarrow.RecordBatch] = []
    n_waiting = 0
    for batch in batches:
        low = 0
        while low < batch.num_rows:
            piece = batch.slice(low, batch_rows - n_waiting)
            waiting.append(piece)
            low += piece.num_rows
            n_waiting += piece.num_rows
            if n_waiting == batch_rows:
                yield pa.Table.from_batches(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _series(array: pyarrow.ChunkedArray, column: str, name: str, optional: bool) -> pd.Series:
    """Return a column as text, as categories of text, or as integers."""
    import pyarrow as pa

    if pa.types.is_integer(array.type) and array.null_count == 0:
        return pd.Series(array.to_numpy())
    if pa.types.is_dictionary(array.type):
        whole = array.unify_dictionaries().combine_chunks()
        if isinstance(whole, pa.ChunkedArray):
            whole = whole.chunk(0)
        texts = readers.text_column(pa.chunked_array([whole.dictionary]), column, name).to_pandas()
        categories = pd.Index(texts.to_numpy(dtype=object), dtype=object)
        if categories.is_unique:
            codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            return pd.Series(pd.Categorical.from_codes(codes, categories=categories))
    return readers.text_column(array, column, name, optional=optional).to_pandas()


# --- separated values ---------------------------------------------------------------------------------------


def _header_columns(header: str, name: str) -> list[str]:
    columns = [
        column.strip() for column in readers.split_header(header, readers.find_separator(header, name))
    ]
    readers.check_names(columns, name)
    return columns


def _delimited_tables(path: str, name: str, columns: list[str], batch_rows: int) -> Iterator[pyarrow.Table]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with _open_bytes(path) as stream:
        start = stream.read(_HEADER_BYTES)
    marked = len(start) - len(_skip_mark(start))
    header, length = readers.first_record(start[marked:])
    every = _header_columns(header, name)
    separator = readers.find_separator(header, name)
    has_rows, sound = _look_through(path, name, separator, marked, marked + length)
    if not sound:
        _explain_text(path, name, every)
    if not has_rows:
        return
    convert = arrow_csv.ConvertOptions(
        column_types={column: pa.dictionary(pa.int32(), pa.string()) for column in columns},
        include_columns=columns,
        null_values=[],
        strings_can_be_null=False,
    )
    read = arrow_csv.ReadOptions(column_names=every, block_size=_BLOCK_BYTES)
    parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        # Arrow's own files: it reads ahead in a thread, which must not need Python while the interpreter ends.
        with pa.OSFile(path) as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with pa.CompressedInputStream(file, "gzip") if zipped else file as stream:
                stream.read(marked + length)
                with arrow_csv.open_csv(stream, read, parse, convert) as reader:
                    yield from _gather(reader, batch_rows)
    except (pa.ArrowInvalid, OSError) as error:
        _explain_text(path, name, every)
        raise InputError(f"{name}: the rows cannot be read ({readers.one_line(error)})") from None


def _look_through(path: str, name: str, separator: str, marked: int, header_end: int) -> tuple[bool, bool]:
    """Return whether there are rows below the header, and whether the quotation marks pair up at first sight."""
    check = readers.QuoteCheck(separator)
    has_rows = False
    position = 0
    with _open_bytes(path) as stream, _refusing_damage(name):
        while block := stream.read(_BLOCK_BYTES):
            check.add(block[marked:] if position == 0 else block)
            has_rows |= bool(block[max(header_end - position, 0) :].strip(b"\r\n"))
            position += len(block)
    return has_rows, check.end()


@contextlib.contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{name}: the data are damaged or cut short ({error}); copy the file again"
        ) from None


def _explain_text(path: str, name: str, columns: Sequence[str]) -> None:
    """Raise for the first row that is no row, if there is one."""
    with _open_bytes(path) as stream:
        header, _ = readers.first_record(_skip_mark(stream.read(_HEADER_BYTES)))
    separator = readers.find_separator(header, name)
    with io.TextIOWrapper(_open_bytes(path), "utf-8-sig", newline="") as text, _refusing_damage(name):
        try:
            readers.explain_records(text, separator, len(columns), name)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}: it holds the byte 0x{error.object[error.start]:02x}, which is not UTF-8 text; save the table as UTF-8"
            ) from None


# --- JSON Lines ---------------------------------------------------------------------------------------------


def _json_records(path: str, name: str, batch_rows: int) -> Iterator[tuple[list[Any], list[int]]]:
    number = 1
    with io.TextIOWrapper(_open_bytes(path), "utf-8-sig", newline="\n") as text:
        while True:
            try:
                lines = list(itertools.islice(text, batch_rows))
            except UnicodeDecodeError:
                readers.read_table(path)  # names the line
                raise
            except (OSError, EOFError, zlib.error):
                readers.read_table(path)  # says what is damaged
                raise
            if not lines:
                return
            yield readers.json_lines(lines, name, start=number)
            number += len(lines)


def _json_columns(path: str, name: str) -> list[str]:
    columns: dict[str, None] = {}
    for records, _ in _json_records(path, name, BATCH_ROWS):
        for record in records:
            if isinstance(record, dict):
                columns.update(dict.fromkeys(record))
    trimmed = [column.strip() for column in columns]
    readers.check_names(trimmed, name)
    return trimmed


def _json_frames(path: str, name: str, columns: list[str], batch_rows: int) -> Iterator[pd.DataFrame]:
    for records, lines in _json_records(path, name, batch_rows):
        if records:
            yield readers.records_frame(records, lines, name).reindex(columns=columns, fill_value="")
