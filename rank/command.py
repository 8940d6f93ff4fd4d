"""What every command line shares: arguments, exit codes, and reports as table, CSV, JSON or Markdown.

A command builds a :class:`Report` and hands it to :func:`emit`; its ``main`` is wrapped by :func:`run`.
Nothing heavy is imported here at module level, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rank.exceptions import ConvergenceError, InputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = [
    "Column",
    "Report",
    "Section",
    "add_bucket_arguments",
    "add_level_argument",
    "add_mode_arguments",
    "add_output_arguments",
    "add_recovery_arguments",
    "add_resampling_arguments",
    "add_tie_credit_argument",
    "add_verdict_arguments",
    "batch_options",
    "build_parser",
    "emit",
    "format_interval",
    "format_value",
    "progress",
    "reading_options",
    "run",
    "to_jsonable",
    "write_table",
    "write_text",
]

FORMATS = ("table", "csv", "json", "markdown")
# A copy of rank.verdicts.LAYOUTS, whose module imports pandas; a test keeps the two equal.
LAYOUTS = ("slots", "models", "letters", "numbers", "sides", "items")
UNDEFINED = "–"
WIDTH_OF_FILES = 120

T = TypeVar("T")


# --- arguments
# --------------------------------------------------------------------------------------------------------


# What stands for a file in the help: files that are read, and files that are written.
_READ = ("VERDICTS", "TABLE", "GOLD", "FILE")
_WRITTEN = ("PATH",)


class _Parser(argparse.ArgumentParser):
    """A parser that also refuses paths that cannot be meant, before anything is read."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        parsed, extra = super().parse_known_args(args, namespace)
        if not extra:
            _check_paths(self._paths(parsed, _READ), self._paths(parsed, _WRITTEN))
            if hasattr(parsed, "output") and parsed.output in (None, "-"):
                _require_stdout()
        return parsed, extra

    def _paths(self, parsed: argparse.Namespace, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return the words for each argument with a path of these kinds, and the path."""
        found = []
        for action in self._actions:
            if action.metavar in kinds:
                value = getattr(parsed, action.dest, None)
                paths = value if isinstance(value, list) else [value]
                flag = f"{action.option_strings[-1]} " if action.option_strings else ""
                found += [(f"{flag}{path}", path) for path in paths if isinstance(path, str)]
        return found


def _check_paths(read: list[tuple[str, str]], written: list[tuple[str, str]]) -> None:
    for said, path in (*read, *written):
        if not path:
            where = f" after {said.strip()}" if said.strip() else ""
            raise InputError(f"an empty path was given{where}; name a file")
    stdin = [said for said, path in read if path == "-"]
    if len(stdin) > 1:
        raise InputError(
            f"standard input is named twice ({' and '.join(stdin)}), and can be read once; name a file instead"
        )
    seen: dict[str, str] = {}
    sources = {os.path.realpath(path): said for said, path in read if path != "-"}
    for said, path in written:
        target = os.path.realpath(path)
        # What exists and is no file, such as a terminal or a pipe, is not overwritten.
        if path == "-" or (os.path.exists(target) and not os.path.isfile(target)):
            continue
        same = next((known for source, known in sources.items() if _is_same_file(source, target)), None)
        if same is not None:
            raise InputError(f"{said} would overwrite the input {same}; name another file")
        if target in seen:
            raise InputError(f"{seen[target]} and {said} are the same file; name two")
        seen[target] = said


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _require_stdout() -> None:
    if sys.stdout is None:
        raise InputError("standard output is closed; redirect it to a file or use --output")


def build_parser(command: str, description: str, *, example: str) -> argparse.ArgumentParser:
    """Return the parser of ``rankgap <command>``: no abbreviations, an example and the exit codes in its
    help.

    Parameters
    ----------
    command : str
        The words after ``rankgap``, such as ``"rank"`` or ``"analyses audit"``.
    description : str
        What the command does.
    example : str
        One command line or several, one per line.
    """
    examples = "\n".join(f"  {line}" for line in example.strip().splitlines())
    return _Parser(
        prog=f"rankgap {command}",
        description=description,
        epilog=f"example:\n{examples}\n\nexit status: 0 ok, 1 bad input (one line on stderr), 2 wrong usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``, ``--output``, ``--seed`` and ``--quiet``."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format", choices=FORMATS, default="table", help="how to print the results (default: table)"
    )
    group.add_argument(
        "--output", metavar="PATH", help="write the results to this file (default: standard output)"
    )
    group.add_argument(
        "--seed", type=_seed, metavar="INT", help="seed of the random numbers (default: a fresh one)"
    )
    group.add_argument("--quiet", action="store_true", help="no progress and no remarks on standard error")


def add_verdict_arguments(
    parser: argparse.ArgumentParser, *, gold: str = "optional", summary: str = ""
) -> None:
    """Add the verdict files and how to read them.

    Parameters
    ----------
    parser : ArgumentParser
    gold : {"optional", "required", "none"}
        Whether there is ``--gold``, and whether it must be given.
    summary : str
        For commands that take a summary table as well: what it holds.
    """
    group = parser.add_argument_group("input")
    group.add_argument(
        "verdicts",
        nargs="+",
        metavar="TABLE" if summary else "VERDICTS",
        help="files with one row per judge call (CSV, TSV, JSON, JSON Lines or Parquet, plain or gzipped; "
        "- is standard input) or folders of Parquet files; several are read as one table"
        + (f"; or one summary table with {summary}" if summary else ""),
    )
    if gold != "none":
        group.add_argument(
            "--gold",
            metavar="GOLD",
            required=gold == "required",
            help="reference: a file with item,score or item_a,item_b,winner",
        )
        group.add_argument(
            "--gap-digits",
            type=int,
            metavar="N",
            help="round gold gaps to N decimals, where scores were rounded in their file (default: as they are)",
        )
    group.add_argument(
        "--by",
        nargs="*",
        action="extend",
        metavar="COLUMN",
        help="grouping columns, after the files (default: those of judge, dataset, format, temperature that "
        "are there); --by alone: no groups",
    )
    group.add_argument(
        "--layout", choices=LAYOUTS, help="what the labels in the verdict column mean (default: found out)"
    )
    group.add_argument(
        "--drop-exact-copies",
        action="store_true",
        help="drop rows that repeat an earlier row in every column",
    )
    group.add_argument(
        "--number-runs",
        action="store_true",
        help="number rows that repeat a call as its runs, in file order (for votes without a run column)",
    )
    group.add_argument(
        "--invalid",
        choices=("exclude", "equal"),
        default="exclude",
        help="exclude invalid verdicts from every denominator, or treat invalid as an outcome of its own, where "
        "two invalid verdicts are equal (default: exclude)",
    )
    large = parser.add_argument_group("large files")
    large.add_argument(
        "--batch-rows",
        type=_positive,
        metavar="N",
        help="read in batches of N rows; results stay the same (default: batches for large files only)",
    )
    large.add_argument(
        "--jobs", type=_positive, default=1, metavar="N",
        help="processes; results stay the same. Each takes about a second to start (default: 1)",
    )  # fmt: skip
    large.add_argument("--dask", metavar="ADDRESS", help=DASK_HELP)


#: For every command that runs on a cluster.
DASK_HELP = (
    "scheduler of a Dask cluster to use instead of processes, as in tcp://host:8786; its workers need rankgap installed "
    "and the same paths to the files"
)


def batch_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `rank.streaming.read_tally` that say how, and not what, is read."""
    return {"batch_rows": args.batch_rows, "n_jobs": args.jobs, "dask": args.dask}


def reading_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `rank.readers.read_verdicts` that the arguments state."""
    return {
        "by": args.by,
        "layout": args.layout,
        "drop_exact_copies": args.drop_exact_copies,
        "number_runs": args.number_runs,
    }


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, not {text!r}")
    return number


def add_bucket_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add how pairs are sorted into buckets of the gold gap; return the group for more of the kind."""
    group = parser.add_argument_group("gap buckets")
    group.add_argument(
        "--buckets", type=int, default=4, metavar="K", help="number of quantile buckets (default: 4)"
    )
    group.add_argument(
        "--edges",
        choices=("items", "judged"),
        default="items",
        help="quantiles over all within-context pairs of the judged items, or over the judged pairs (default: items)",
    )
    group.add_argument(
        "--gap-edges", type=float, nargs="+", metavar="GAP", help="fixed edges instead of quantiles"
    )
    group.add_argument(
        "--exclude-gold-ties", action="store_true", help="leave out pairs whose gold gap is zero"
    )
    return group


def add_tie_credit_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--tie-credit``."""
    group.add_argument(
        "--tie-credit",
        type=float,
        default=0.0,
        metavar="X",
        help="credit of a tie on decided gold (default: 0)",
    )


def add_mode_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the thresholds between failure modes."""
    group.add_argument(
        "--high-repeatability",
        type=float,
        default=0.90,
        metavar="C",
        help="C from here on is high (default: 0.90)",
    )
    group.add_argument(
        "--low-flip-rate",
        type=float,
        default=0.20,
        metavar="PHI",
        help="phi up to here is low (default: 0.20)",
    )


def add_level_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--level``: which rankings are held against gold."""
    group.add_argument(
        "--level",
        choices=("auto", "system", "context"),
        default="auto",
        help="rho of one ranking over pooled contexts, or averaged over contexts (default: auto)",
    )


def add_recovery_arguments(group: argparse._ArgumentGroup) -> None:
    """Add ``--level`` and ``--alpha``: how verdicts become a ranking that is held against gold."""
    add_level_argument(group)
    group.add_argument(
        "--alpha",
        type=float,
        default=0.0,
        metavar="X",
        help="pseudo-wins per compared ordered pair, for rankings without a finite maximum (default: 0)",
    )


def add_resampling_arguments(group: argparse._ArgumentGroup, *, resamples: int = 2000) -> None:
    """Add ``--resamples`` and ``--confidence``."""
    group.add_argument(
        "--resamples",
        type=int,
        default=resamples,
        metavar="N",
        help=f"bootstrap resamples (default: {resamples})",
    )
    group.add_argument(
        "--confidence", type=float, default=0.95, metavar="X", help="level of the intervals (default: 0.95)"
    )


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if seed < 0:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 on, not {text!r}")
    return seed


# --- running
# ----------------------------------------------------------------------------------------------------------


def run(
    function: Callable[[list[str]], int | None], argv: Sequence[str] | None = None, *, prog: str = "rankgap"
) -> int:
    """Call a command and turn what happens into an exit code.

    Parameters
    ----------
    function : callable
        Takes the list of arguments and returns an exit code, or None for 0.
    argv : sequence of str, optional
        Default: ``sys.argv[1:]``.
    prog : str
        Name in front of the error, such as ``"rankgap rank"``.

    Returns
    -------
    int
        0 ok, 1 bad input (with one line on standard error), 2 wrong usage, 130 interrupted. The end of a
        reader downstream (``| head``) is no error. Anything else is a defect and keeps its traceback.

    Examples
    --------
    >>> run(lambda argv: None, [])
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed, as by 2>&-; remarks and errors go nowhere
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        code = function(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0 if code is None else int(code)
    except SystemExit as stop:  # argparse: 2 after a usage error, 0 after --help
        if stop.code is not None and not isinstance(stop.code, int):
            raise
        return stop.code or 0
    except (InputError, ConvergenceError) as error:
        return _fail(prog, str(error))
    except BrokenPipeError:
        _drop_output()
        return 0
    except UnicodeEncodeError as error:
        found = ascii(error.object[error.start : error.end])[:60]
        return _fail(
            prog, f"a text holds {found}, which {error.encoding} cannot write; replace it in the input"
        )
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(prog, f"{where}{error.strerror or error}")
    except MemoryError:
        return _fail(prog, "out of memory; use fewer resamples, repetitions or rows at a time")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _fail(prog: str, message: str) -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _drop_output()
    with contextlib.suppress(OSError):
        print(f"{prog}: error: {' '.join(message.split())}", file=sys.stderr)
    return 1


def _drop_output() -> None:
    """Python flushes standard output once more at exit; give it a place to flush to."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def progress(
    iterable: Iterable[T], *, total: int | None = None, label: str = "", quiet: bool = False
) -> Iterator[T]:
    """Pass an iterable through, with a line of progress on standard error after two seconds.

    Parameters
    ----------
    iterable : iterable
    total : int, optional
        Number of elements; default ``len(iterable)`` where there is one.
    label : str
        What is being counted.
    quiet : bool
        No progress at all. There is none either when standard error is no terminal.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield from iterable
        return
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    start = time.monotonic()
    due = start + 2.0
    shown = False
    try:
        for done, element in enumerate(iterable):
            now = time.monotonic()
            if now >= due:
                sys.stderr.write("\r\x1b[K" + _progress_line(label, done, total, now - start))
                sys.stderr.flush()
                shown = True
                due = now + 0.2
            yield element
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _progress_line(label: str, done: int, total: int | None, seconds: float) -> str:
    line = f"{label} {done:,}".strip()
    if total:
        line += f" of {total:,} ({done / total:.0%})"
        if done:
            line += f", about {seconds / done * (total - done):,.0f} s left"
    return line


# --- reports
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """How one column of a section is shown to people.

    Attributes
    ----------
    name : str
        Column of the table.
    header : str
        With the unit where it has one; default: the name with blanks for underscores.
    kind : str
        ``text``, ``share``, ``number``, ``difference`` (signed), ``count`` or ``p``; default: from the dtype.
    digits : int, optional
        Decimals; default 3, and 2 beside an interval.
    low, high : str
        Columns with the ends of its interval.
    """

    name: str
    header: str = ""
    kind: str = ""
    digits: int | None = None
    low: str = ""
    high: str = ""


@dataclass(frozen=True)
class Section:
    """One table of a report.

    Attributes
    ----------
    title : str
    table : DataFrame
        Unrounded values under field names. CSV shows all columns, tables and Markdown those of `columns`.
    columns : tuple of Column
        Default: every column, where ``x_low`` and ``x_high`` become the interval of ``x``.
    notes : tuple of str
        Sentences below the table.
    undefined : mapping of str to str
        Column name -> why a value in it can be undefined; shown when one is.
    group_by : tuple of str
        Columns whose change draws a line, and whose repeated values are left blank in the table format.
    """

    title: str
    table: pd.DataFrame
    columns: tuple[Column, ...] = ()
    notes: tuple[str, ...] = ()
    undefined: Mapping[str, str] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a command has found, before it is a table, CSV, JSON or Markdown.

    Attributes
    ----------
    title : str
    sections : tuple of Section
    sentences : tuple of str
        The findings in plain language, shown first below the title.
    data : mapping
        The JSON document, keys as in the specification; values may be NaN, numpy scalars, arrays and
        DataFrames.
    notes : tuple of str
        What was counted, mapped or assumed; shown last, and in JSON as ``notes`` unless `data` has its own.
    flat : DataFrame, optional
        The CSV, when it isn't simply the sections one after another.
    """

    title: str
    sections: tuple[Section, ...] = ()
    sentences: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    flat: pd.DataFrame | None = None


def emit(report: Report, args: argparse.Namespace) -> None:
    """Print a report, or write it to ``args.output``, in the format ``args.format``.

    A file appears whole or not at all. With CSV, which has no place for them, sentences and notes go to
    standard error unless ``args.quiet``.

    Parameters
    ----------
    report : Report
    args : Namespace
        With ``format``, ``output`` and ``quiet`` of :func:`add_output_arguments`.
    """
    to_file = args.output is not None and args.output != "-"
    if not to_file:
        _require_stdout()
    unicode_out = to_file or _speaks_unicode(sys.stdout)
    if args.format == "json":
        text = _json_text(report, ascii_only=not unicode_out)
    elif args.format == "csv":
        text = _csv_text(report)
    elif args.format == "markdown":
        text = _markdown_text(report)
    else:
        text = _table_text(report, colour=not to_file and sys.stdout.isatty(), unicode=unicode_out)
    # The name of a file may hold bytes that are no text.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if to_file:
        write_text(args.output, text)
    else:
        if not unicode_out:
            encoding = sys.stdout.encoding or "ascii"
            text = text.replace(UNDEFINED, "-").encode(encoding, "replace").decode(encoding)
        sys.stdout.write(text)
        sys.stdout.flush()
    if args.format == "csv" and not args.quiet:
        section_notes = (note for section in report.sections for note in section.notes)
        for remark in (*report.sentences, *section_notes, *report.notes):
            print(remark, file=sys.stderr)


def _speaks_unicode(stream: Any) -> bool:
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").replace("_", "")
    return encoding.startswith("utf")


# --- values
# -----------------------------------------------------------------------------------------------------------


def format_value(value: Any, kind: str = "number", digits: int | None = None) -> str:
    """Return a value as people read it.

    Parameters
    ----------
    value : object
        None and NaN are shown as a dash.
    kind : str
        See :class:`Column`.
    digits : int, optional
        Decimals of shares, numbers and differences; default 3.

    Examples
    --------
    >>> format_value(0.61234, "share"), format_value(1234567, "count"), format_value(0.0002, "p")
    ('0.612', '1,234,567', '< 0.001')
    >>> format_value(float("nan")), format_value(-0.0001), format_value(0.05, "difference", 2)
    ('–', '0.000', '+0.05')
    """
    if _is_missing(value):
        return UNDEFINED
    if isinstance(value, str):
        return _printable(value)
    if _is_bool(value):
        return "yes" if value else "no"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _printable(str(value))
    if kind == "text":
        return _printable(str(value))
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if kind == "count":
        return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"
    digits = 3 if digits is None else digits
    if kind == "p" and number < 10.0**-digits:
        return f"< {10.0**-digits:.{digits}f}"
    text = f"{number:+,.{digits}f}" if kind == "difference" else f"{number:,.{digits}f}"
    # No signed zero.
    return text[1:] if text[0] in "+-" and not text.strip("+-0.,") else text


def format_interval(value: Any, low: Any, high: Any, kind: str = "number", digits: int | None = None) -> str:
    """Return an estimate with its interval.

    Examples
    --------
    >>> format_interval(0.6123, 0.5512, 0.6689)
    '0.61 [0.55, 0.67]'
    >>> format_interval(0.6123, float("nan"), float("nan"))
    '0.61'
    """
    digits = 2 if digits is None else digits
    text = format_value(value, kind, digits)
    if _is_missing(value) or (_is_missing(low) and _is_missing(high)):
        return text
    return f"{text} [{format_value(low, kind, digits)}, {format_value(high, kind, digits)}]"


def to_jsonable(value: Any) -> Any:
    """Return a value as strict JSON has it: NaN and infinities are None, numpy and pandas objects plain.

    Examples
    --------
    >>> import numpy as np
    >>> to_jsonable({"spearman": np.float64("nan"), "counts": np.array([1, 2]), 3: (True, None)})
    {'spearman': None, 'counts': [1, 2], '3': [True, None]}
    """
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(to_jsonable(item) for item in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "columns") and hasattr(value, "to_dict"):  # DataFrame
        return [to_jsonable(record) for record in value.to_dict("records")]
    if hasattr(value, "tolist"):  # numpy scalars and arrays, Series
        return to_jsonable(value.tolist())
    if _is_missing(value):
        return None
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _printable(text: str) -> str:
    """The text on one line; control characters, which could steer a terminal, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c.isspace() and c == " " else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


# --- files
# ------------------------------------------------------------------------------------------------------------


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that appears whole or not at all (UTF-8).

    Raises
    ------
    InputError
        When it cannot be written there.
    """
    target = os.path.realpath(path)
    data = text.encode("utf-8", "surrogateescape")
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            # A directory fails with its own message; a pipe or device can't be replaced and is written to.
            with open(target, "wb") as stream:
                stream.write(data)
            return
        try:
            with open(temporary, "xb") as stream:
                stream.write(data)
            if os.path.exists(target):
                os.chmod(temporary, os.stat(target).st_mode & 0o777)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{os.fspath(path)}: cannot be written ({reason}); name another file") from None


def write_table(path: str | os.PathLike[str], frame: pd.DataFrame) -> None:
    """Write a table as CSV, whole or not at all: unrounded numbers, undefined ones empty."""
    write_text(path, _to_csv(frame))


# --- JSON and CSV
# -----------------------------------------------------------------------------------------------------


def _json_text(report: Report, *, ascii_only: bool) -> str:
    import json

    document = to_jsonable(report.data)
    notes = [*(note for section in report.sections for note in section.notes), *report.notes]
    if notes:
        document.setdefault("notes", notes)
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=ascii_only) + "\n"


def _csv_text(report: Report) -> str:
    import pandas as pd

    if report.flat is not None:
        return _to_csv(report.flat)
    if len(report.sections) == 1:
        return _to_csv(report.sections[0].table)
    parts = []
    for section in report.sections:
        part = section.table.reset_index(drop=True)
        # As objects, counts stay whole numbers where another section lacks the column.
        part = part.astype(object)
        part.insert(0, "section", section.title)
        parts.append(part)
    return _to_csv(pd.concat(parts, ignore_index=True)) if parts else ""


def _to_csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n"))


# --- tables for people
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cells:
    """A section as text, ready for a terminal or Markdown."""

    headers: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    notes: list[str]


def _cells(section: Section) -> _Cells:
    frame = section.table
    columns = section.columns or _infer_columns(frame)
    headers, numeric, texts, notes = [], [], [], []
    unexplained = False
    for column in columns:
        values = frame[column.name].tolist()
        kind = column.kind or _infer_kind(frame[column.name])
        if column.low and column.high:
            ends = zip(values, frame[column.low].tolist(), frame[column.high].tolist())
            text = [format_interval(value, low, high, kind, column.digits) for value, low, high in ends]
        else:
            text = [format_value(value, kind, column.digits) for value in values]
        header = column.header or column.name.replace("_", " ")
        if UNDEFINED in text:
            reason = section.undefined.get(column.name)
            unexplained |= reason is None
            if reason:
                notes.append(f"{UNDEFINED} under {header}: {reason}")
        headers.append(header)
        numeric.append(kind != "text")
        texts.append(text)
    if unexplained:
        notes.append(f"{UNDEFINED}: undefined for these data")
    return _Cells(headers, numeric, [list(row) for row in zip(*texts)], [*notes, *section.notes])


def _infer_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    names = list(map(str, frame.columns))
    ends = {f"{name}_{end}" for name in names for end in ("low", "high")} & set(names)
    return tuple(
        Column(name, low=f"{name}_low", high=f"{name}_high")
        if {f"{name}_low", f"{name}_high"} <= ends
        else Column(name)
        for name in names
        if name not in ends
    )


def _infer_kind(values: pd.Series) -> str:
    name = str(values.name)
    if values.dtype.kind == "f" and (name in ("p", "p_value") or name.endswith(("_p", "_p_value"))):
        return "p"
    if values.dtype.kind in "iu":
        return "count"
    return "number" if values.dtype.kind == "f" else "text"


def _markdown_text(report: Report) -> str:
    blocks = [f"# {_markdown(report.title)}"] if report.title else []
    blocks += map(_markdown, report.sentences)
    for section in report.sections:
        cells = _cells(section)
        if section.title:
            blocks.append(f"## {_markdown(section.title)}")
        rows = [map(_markdown, cells.headers), ["--:" if right else ":--" for right in cells.numeric]]
        rows += [map(_markdown, row) for row in cells.rows]
        if cells.headers:
            blocks.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
        if cells.notes:
            blocks.append("\n".join(f"- {_markdown(note)}" for note in cells.notes))
    if report.notes:
        blocks.append("\n".join(f"- {_markdown(note)}" for note in report.notes))
    return "\n\n".join(blocks) + "\n"


# An interval, or a bracket on its own.
_BRACKETS = re.compile(r"(\[[-+−–∞<\\0-9., %]*\](?![(:\[]))|[\[\]]")


def _markdown(text: str) -> str:
    """The text with everything escaped that Markdown would read as a table, HTML or emphasis."""
    for character in "\\|<*`":
        text = text.replace(character, "\\" + character)
    # Links; the brackets of an interval are none.
    text = _BRACKETS.sub(lambda found: found[1] or "\\" + found[0], text)
    # Inside a word an underscore is plain text on GitHub; around one it is emphasis.
    return " ".join(f"\\{word}" if word.startswith("_") else word for word in text.split(" "))


def _table_text(report: Report, *, colour: bool, unicode: bool) -> str:
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=_width(),
        force_terminal=colour,
        color_system="auto" if colour else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    _print_report(report, console, unicode=unicode)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def _width() -> int:
    """The terminal's width, or COLUMNS, or a width that suits a file."""
    import shutil

    if sys.stdout is not None and sys.stdout.isatty():
        return max(shutil.get_terminal_size().columns, 40)
    with contextlib.suppress(KeyError, ValueError):
        return max(int(os.environ["COLUMNS"]), 40)
    return WIDTH_OF_FILES


def _print_report(report: Report, console: Console, *, unicode: bool = True) -> None:
    from rich.text import Text

    def paragraph(text: str, style: str = "", indent: int = 0) -> None:
        from rich.padding import Padding

        console.print(Padding(Text(_printable(text), style=style), (0, 0, 0, indent)))

    if report.title:
        paragraph(report.title, "bold")
    for sentence in report.sentences:
        paragraph(sentence)
    for section in report.sections:
        console.print()
        if section.title:
            paragraph(section.title, "bold cyan")
        cells = _cells(section)
        for part, table in enumerate(_fitting_tables(section, cells, console.width, unicode)):
            if part:
                console.print()
            console.print(table)
        for note in cells.notes:
            paragraph(note, "dim", 2)
    if report.notes:
        console.print()
        for note in report.notes:
            paragraph(note, "dim")


def _fitting_tables(section: Section, cells: _Cells, width: int, unicode: bool) -> Iterator[RenderableType]:
    """The section as one table, or as several side-by-side parts below each other that repeat the label
    columns.

    One row that is too wide is turned into a list of name and value.
    """
    import textwrap

    from rich.cells import cell_len

    if not cells.headers:
        return
    n_columns = len(cells.headers)
    widths = [
        max(cell_len(cells.headers[k]), *(cell_len(row[k]) for row in cells.rows), 1)
        for k in range(n_columns)
    ]
    # One blank of padding on either side of the divider, which is a blank.
    gap, margin = 3, 0

    def total(chosen: Iterable[int]) -> int:
        return sum(widths[k] + gap for k in chosen) + margin

    if total(range(n_columns)) <= width:
        yield _rich_table(section, cells, list(range(n_columns)), unicode)
        return
    if len(cells.rows) == 1:
        pairs = [[header, value] for header, value in zip(cells.headers, cells.rows[0])]
        plain = Section(section.title, section.table)
        yield _rich_table(plain, _Cells(["", ""], [False, True], pairs, []), [0, 1], unicode)
        return
    # Headers may break at blanks before columns are parted.
    labels = next((k for k in range(n_columns) if cells.numeric[k]), n_columns)
    for k in range(n_columns):
        words = max(map(cell_len, cells.headers[k].split()), default=1)
        widths[k] = max(words, *(cell_len(row[k]) for row in cells.rows), 1)
    broken = ["\n".join(textwrap.wrap(header, widths[k])) for k, header in enumerate(cells.headers)]
    cells = _Cells(broken, cells.numeric, cells.rows, cells.notes)
    keys = list(range(labels))
    # Label columns that leave no room are folded by the table itself.
    room = max(width - min(total(keys), width // 2), 1)
    parts: list[list[int]] = [[]]
    for k in range(labels, n_columns):
        if parts[-1] and sum(widths[m] + gap for m in [*parts[-1], k]) > room:
            parts.append([])
        parts[-1].append(k)
    for part in parts:
        yield _rich_table(section, cells, keys + part, unicode)


def _rich_table(section: Section, cells: _Cells, chosen: list[int], unicode: bool) -> RenderableType:
    from rich import box
    from rich.table import Table

    names = [column.name for column in section.columns] or [c.name for c in _infer_columns(section.table)]
    groups = [k for k in chosen if k < len(names) and names[k] in section.group_by]
    listing = not any(cells.headers)
    table = Table(
        box=box.SIMPLE_HEAD if unicode else box.ASCII2,
        show_header=not listing,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
        header_style="bold",
    )
    for k in chosen:
        right = cells.numeric[k]
        table.add_column(
            _text(cells.headers[k]),
            justify="right" if right else "left",
            no_wrap=right and not listing,
            overflow="fold",
            vertical="bottom" if not cells.rows else "top",
        )
    previous: list[str] | None = None
    for row in cells.rows:
        key = [row[k] for k in groups]
        repeated = key == previous
        if previous is not None and not repeated:
            table.add_section()
        table.add_row(*(_text("" if repeated and k in groups else row[k]) for k in chosen))
        previous = key if groups else None
    return table


def _text(text: str) -> Text:
    from rich.text import Text

    return Text(text)
