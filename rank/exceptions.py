"""The errors that rankgap raises on purpose.

Everything that a user's input can cause is an :class:`InputError`; the command line prints it as one
sentence and leaves with exit code 1. A :class:`ConvergenceError` is a failure of an algorithm,
not of the input.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ConvergenceError", "InputError", "NoMaximumError"]


class InputError(ValueError):
    """Input that cannot be used: one sentence saying what, where, what was found and what to do."""


class NoMaximumError(InputError):
    """The likelihood has no finite maximum: the graph of wins is not strongly connected.

    Parameters
    ----------
    message : str
        The sentence for the reader.
    components : iterable of iterables of str, optional
        The connected islands of the comparison graph, when there is more than one.
    never_win, never_lose : iterable of str, optional
        Items without a single win (or loss), ties counting as both.

    Attributes
    ----------
    components : tuple of tuples of str
    never_win, never_lose : tuple of str

    Examples
    --------
    >>> error = NoMaximumError("C never wins", never_win=["C"])
    >>> error.never_win
    ('C',)
    >>> isinstance(error, InputError)
    True
    """

    def __init__(
        self,
        message: str,
        *,
        components: Iterable[Iterable[str]] = (),
        never_win: Iterable[str] = (),
        never_lose: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.components = tuple(tuple(component) for component in components)
        self.never_win = tuple(never_win)
        self.never_lose = tuple(never_lose)

    def __reduce__(self) -> tuple[object, ...]:
        # Default pickling would drop the keyword-only attributes on the way back from a worker process.
        return _restore_no_maximum, (str(self), self.components, self.never_win, self.never_lose)


def _restore_no_maximum(
    message: str,
    components: tuple[tuple[str, ...], ...],
    never_win: tuple[str, ...],
    never_lose: tuple[str, ...],
) -> NoMaximumError:
    return NoMaximumError(message, components=components, never_win=never_win, never_lose=never_lose)


class ConvergenceError(RuntimeError):
    """An iteration stopped before it reached its tolerance; the message says what to try next."""
