"""Levers: what rho would become if flips were resolved, errors fixed, or a bucket of pairs not judged at all.

Every number is the outcome of ranking the rewritten verdicts again. It says what a change of these verdicts would have done
to the ranking of these items, given this gold; it does not say that the change can be had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from difficulty.reliability import STATISTICS, pair_statistics, pair_verdicts
from rank.buckets import EDGE_BASES, bucket_gaps
from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, Gold
from rank.leverage import LIFELINE, UNRANKED, Leverage, context_pairs, leverage, rank_always, set_right
from rank.recovery import RecoveryProblem, resample_clusters, spearman
from rank.resample import DEFAULT_LEVEL, check_resampling, percentile_interval, seed_of
from rank.tally import INCONSISTENT, INVALID, Tally

Floats = npt.NDArray[np.float64]

LEVERS = ("flips", "errors", "both", "drop")
DEFAULT_LEVER_RESAMPLES = 1_000
_CHUNK = 4_000_000

NO_INTERVAL = "most resamples leave items that no comparison connects"
_PENALISED = (
    f"where an item only wins or only loses, strengths are not finite and items are ranked with {LIFELINE:g} pseudo-wins per "
    "compared ordered pair"
)

_LOWERS = (
    "setting verdicts right can lower rho: all other wrong verdicts stay, and one may have made up for another; and where gold is "
    "tied or differs between contexts, what is right for a pair need not go with the order of the averaged gold"
)

#: What each lever does, for people.
LEVER_NAMES = {
    "flips": "resolve flips",
    "errors": "fix errors",
    "both": "both",
    "drop": "do not judge",
}


@dataclass(frozen=True)
class LeverStudy:
    """The levers of one group.

    Attributes
    ----------
    labels : mapping of str to str
    level : {"system", "context"}
        Which rho.
    spearman, spearman_low, spearman_high : float
        Rho as observed, with its interval over clusters.
    levers : DataFrame
        One row per bucket and lever: ``bucket`` (or "all"), ``gap_low``, ``gap_high``, ``lever``, ``n_pairs`` (pairs
        touched), ``n_verdicts`` (verdicts changed; with "drop", saved), ``spearman_after``, ``spearman_change`` with
        bounds, ``change_per_100`` (per 100 of those verdicts) with bounds, ``share_best`` and
        ``share_best_per_verdict`` (share of resamples in which no other single lever does better), ``reason``,
        ``penalised`` (ranked with pseudo-wins, see `rank.leverage.rank_always`; system level only).
    best, best_per_verdict : int or None
        Row of the lever that pays most (one bucket; resolve flips, fix errors or do not judge), and per
        verdict changed (not counting "drop"); None where none raises rho.
    check_first : Leverage
        Every wrong or flipped pair, most damaging first.
    kinds : ndarray of str, shape (P,)
        "flip", "error" or "" for each pair row of the tally.
    reason : str
        Why there is nothing; empty otherwise.
    notes : tuple of str
    """

    labels: Mapping[str, str]
    level: str
    spearman: float
    spearman_low: float
    spearman_high: float
    levers: pd.DataFrame
    best: int | None
    best_per_verdict: int | None
    check_first: Leverage
    kinds: np.ndarray
    reason: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The labels joined for people, or "all"."""
        return " / ".join(self.labels.values()) or "all"

    def check_first_frame(self, top: int | None = None) -> pd.DataFrame:
        """Return the most damaging pairs, with ``kind`` "flip" or "error"."""
        frame = self.check_first.to_frame(top)
        frame.insert(len(frame.columns) - 2, "kind", self.kinds[self.check_first.rows[:top]])
        return frame

    def to_dict(self, top: int = 20) -> dict[str, Any]:
        """Return the JSON object of the group."""

        def row(index: int | None) -> dict[str, Any] | None:
            return None if index is None else dict(self.levers.to_dict("records")[index])  # type: ignore[arg-type]

        return {
            **self.labels,
            "spearman": self.spearman,
            "spearman_low": self.spearman_low,
            "spearman_high": self.spearman_high,
            "spearman_level": self.level,
            "levers": self.levers,
            "best": row(self.best),
            "best_per_verdict": row(self.best_per_verdict),
            "check_first": self.check_first_frame(top),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class _Lever:
    bucket: str
    kind: str
    rows: npt.NDArray[np.bool_]
    gap_low: float
    gap_high: float


def mark_wrong(tally: Tally, gold: Gold, *, invalid: str = "exclude") -> np.ndarray:
    """Return "flip", "error" or "" for each pair, shape (P,).

    Only pairs with decided gold are marked. A flip has two orders that differ; an error is any other verdict that is not
    gold's: both orders wrong, both a tie, or a wrong verdict in the only order.
    """
    winner = gold.align(tally).winner
    stats = pair_statistics(tally.counts, None, invalid=invalid)
    flip = stats[:, STATISTICS.index("n_flips")] > 0
    verdict = pair_verdicts(tally.counts, invalid=invalid)
    seen = _valid(tally.counts) > 0
    decided = ((winner == GOLD_I) | (winner == GOLD_J)) & seen
    kinds = np.where(decided & (verdict != winner), "error", "")
    return np.where(decided & flip, "flip", kinds)


def pull_levers(
    tally: Tally,
    gold: Gold,
    *,
    n_buckets: int = 4,
    edges: str | Sequence[float] = "items",
    invalid: str = "exclude",
    recovery_level: str = "auto",
    alpha: float = 0.0,
    n_resamples: int = DEFAULT_LEVER_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    labels: Mapping[str, str] | None = None,
    rng: np.random.Generator | int | None = None,
) -> LeverStudy:
    """Compute what rho would become under every lever, for one group.

    Parameters
    ----------
    tally : Tally
        One group.
    gold : Gold
        Item gold. "Right" means all valid verdicts of the pair, in both orders and all runs, name gold's item.
        The gold order stays the same under every lever, also where gold differs between contexts and not judging
        some pairs would change an item's average.
    n_buckets, edges
        See `rank.buckets.bucket_gaps`. Without buckets (constant gaps, say) only the levers on all pairs are
        left, and a note says why.
    invalid : {"exclude", "equal"}
        See `difficulty.reliability.modal_verdicts`.
    recovery_level, alpha
        See `rank.recovery.recover_ranking`. Verdicts without a finite maximum are ranked with a few
        pseudo-wins (`rank.leverage.rank_always`), since fixing verdicts soon leaves an item that never loses.
    n_resamples, level, rng
        Bootstrap over clusters (contexts if the table has them, else pairs); every resample is rewritten and
        ranked again, and all levers see the same resamples.

    Returns
    -------
    LeverStudy
    """
    check_resampling(n_resamples, level)
    if labels is None:
        labels = {str(column): str(tally.groups[column].iloc[0]) for column in tally.groups.columns}
    kinds = mark_wrong(tally, gold, invalid=invalid)
    first = leverage(tally, gold, rows=kinds != "", level=recovery_level, alpha=alpha)
    notes: list[str] = []
    names: tuple[str, ...] = ()
    bucket, low, high = np.full(tally.n_pairs, -1), np.zeros(0), np.zeros(0)
    try:
        found = bucket_gaps(
            tally,
            gold,
            gold.align(tally),
            n_buckets=n_buckets,
            edges=edges,
        )
        names, bucket, low, high = found.names, found.bucket, found.low, found.high
        notes.extend(found.notes)
    except InputError as error:
        if not isinstance(edges, str) or edges not in EDGE_BASES or n_buckets < 2:
            raise
        notes.append(f"no buckets: {error}")
    seen = _valid(tally.counts) > 0
    problem = RecoveryProblem(tally, gold, level=recovery_level, alpha=alpha)
    levers = _list_levers(kinds[seen], bucket[seen], names, low, high)
    nan = float("nan")
    empty = LeverStudy(
        labels, problem.level, first.spearman, nan, nan, pd.DataFrame(), None, None, first, kinds, first.reason,
        tuple(notes),
    )  # fmt: skip
    if first.spearman != first.spearman:
        return replace(empty, reason=first.reason or "rho is undefined")
    winner = gold.align(problem.tally).winner
    wins = np.stack(
        [
            np.where(lever.rows[:, None], 0.0, problem.wins)
            if lever.kind == "drop"
            else set_right(problem.wins, winner, lever.rows)
            for lever in levers
        ]
    )
    n_valid = _valid(problem.tally.counts)
    total = problem.tally.counts.sum(axis=1)
    # A stated merged flip hides one verdict for either item.
    n_right = total[np.arange(len(total)), np.maximum(winner, 0) % 2] + total[:, INCONSISTENT] / 2
    verdicts = np.stack(
        [np.where(lever.rows, n_valid if lever.kind == "drop" else n_valid - n_right, 0) for lever in levers]
    )
    weights = resample_clusters(problem.cluster_key(), n_resamples, np.random.default_rng(seed_of(rng)))
    everything = np.concatenate([problem.wins[None], wins])
    penalised = np.zeros(len(everything), dtype=bool)
    if problem.level == "context":
        rho, samples = _by_context(problem, everything, n_resamples, np.random.default_rng(seed_of(rng)))
        weights, verdict_samples = weights[:0], np.zeros((0, len(levers)))
    else:
        rho, samples, penalised = _pooled(problem, everything, weights)
        per_cluster = np.zeros((problem.n_clusters, len(levers)))
        np.add.at(per_cluster, problem.cluster, verdicts.T)
        verdict_samples = weights @ per_cluster
    study = _assemble(empty, levers, rho, samples, verdicts.sum(axis=1), verdict_samples, level)
    study.levers["penalised"] = penalised[1:]
    if penalised.any():
        study = replace(study, notes=(*study.notes, _PENALISED))
    fixing = study.levers[study.levers["lever"] != "drop"]
    if (fixing["spearman_change"] < -1e-12).any():
        study = replace(study, notes=(*study.notes, _LOWERS))
    if problem.n_clusters < 2:
        study = replace(study, notes=(*study.notes, "a single cluster: no intervals"))
    return study


def _valid(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=(1, 2))
    return np.asarray(total - counts[..., INVALID].sum(axis=1))


def _list_levers(
    kinds: np.ndarray, bucket: np.ndarray, names: tuple[str, ...], low: Floats, high: Floats
) -> list[_Lever]:
    flip, error = kinds == "flip", kinds == "error"
    rows = {"flips": flip, "errors": error, "both": flip | error}
    levers = []
    for k, name in enumerate(names):
        inside = bucket == k
        for kind in LEVERS:
            chosen = inside if kind == "drop" else rows[kind] & inside
            levers.append(_Lever(name, kind, chosen, float(low[k]), float(high[k])))
    nan = float("nan")
    return levers + [_Lever("all", kind, rows[kind], nan, nan) for kind in rows]


def _pooled(problem: RecoveryProblem, wins: Floats, weights: Floats) -> tuple[Floats, Floats, np.ndarray]:
    """Rho of every set of wins (L, P, 2), the same under every weighting (B, C), and which had no finite maximum."""
    from scipy.sparse import csr_matrix

    p = problem.pooled
    m, known = len(p.item_i), ~np.isnan(problem.score)
    score = problem.score[known]

    def rho(pooled: Floats) -> tuple[Floats, np.ndarray]:
        values, penalised = rank_always(p.item_i, p.item_j, pooled, p.n_items, alpha=problem.alpha)
        return spearman(values[:, known], score), penalised

    rows = np.concatenate([problem.cluster] * 2)
    columns = np.concatenate([2 * p.pair_of_row, 2 * p.pair_of_row + 1])
    step = max(1, _CHUNK // max(2 * m, p.n_items**2))
    estimate, samples = np.empty(len(wins)), np.empty((len(weights), len(wins)))
    penalised = np.zeros(len(wins), dtype=bool)
    for k, one in enumerate(wins):
        (estimate[k],), (penalised[k],) = rho(problem.pooled_wins(one)[None])
        matrix = csr_matrix((one.T.ravel(), (rows, columns)), shape=(problem.n_clusters, 2 * m))
        for start in range(0, len(weights), step):
            part = slice(start, start + step)
            samples[part, k] = rho(np.asarray(weights[part] @ matrix).reshape(-1, m, 2))[0]
    return estimate, samples, penalised


def _by_context(
    problem: RecoveryProblem, wins: Floats, n_resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Mean rho over contexts of every set of wins, and its bootstrap over contexts.

    The change under a lever is averaged over the contexts that have a ranking with and without it; the others
    are left out of it.
    """
    table = np.array([part.rho(wins[:, part.rows], problem.alpha) for part in context_pairs(problem)])
    table = table[~np.isnan(table[:, 0])]
    table = table[np.lexsort(np.nan_to_num(table).T)]
    base = table[:, :1]
    change = table - base
    drawn = rng.integers(0, len(table), size=(n_resamples, len(table)))
    weights = np.zeros((n_resamples, len(table)))
    np.add.at(weights, (np.arange(n_resamples)[:, None], drawn), 1.0)
    known = ~np.isnan(change)
    filled = np.where(known, change, 0.0)

    def mean(w: Floats) -> Floats:
        n = w @ known
        change_mean = np.divide(w @ filled, n, out=np.full(n.shape, np.nan), where=n > 0)
        return np.asarray((w @ base) / w.sum(axis=1, keepdims=True) + change_mean)

    return mean(np.ones((1, len(table))))[0], mean(weights)


def _assemble(
    study: LeverStudy,
    levers: list[_Lever],
    rho: Floats,
    samples: Floats,
    n_verdicts: np.ndarray,
    verdict_samples: Floats,
    level: float,
) -> LeverStudy:
    bounds = percentile_interval(samples[:, 0], rho[0], level=level, bounds=(-1.0, 1.0))
    change, change_samples = rho[1:] - rho[0], samples[:, 1:] - samples[:, :1]
    n_pairs = np.array([int(lever.rows.sum()) for lever in levers])
    untouched = n_pairs == 0
    change_samples = np.where(untouched, 0.0, change_samples)
    span = percentile_interval(change_samples, change, level=level, bounds=(-2.0, 2.0))
    touched = np.where(n_verdicts > 0, n_verdicts, np.nan)
    per = 100 * change / touched
    counts = verdict_samples if len(verdict_samples) else touched
    with np.errstate(divide="ignore", invalid="ignore"):
        per_samples = 100 * change_samples / np.where(np.asarray(counts) > 0, counts, np.nan)
    per_span = percentile_interval(per_samples, per, level=level)
    kind = np.array([lever.kind for lever in levers])
    single = np.array([lever.bucket != "all" for lever in levers])
    if not single.any():  # no buckets: the levers on all pairs are all there is
        single = ~single
    candidates = single & (kind != "both") & ~untouched
    cheap = candidates & (kind != "drop") & (n_verdicts > 0)
    frame = pd.DataFrame(
        {
            "bucket": [lever.bucket for lever in levers],
            "gap_low": [lever.gap_low for lever in levers],
            "gap_high": [lever.gap_high for lever in levers],
            "lever": kind,
            "n_pairs": n_pairs,
            "n_verdicts": n_verdicts.astype(int),
            "spearman_after": rho[1:],
            "spearman_change": change,
            "spearman_change_low": span.low,
            "spearman_change_high": span.high,
            "change_per_100": per,
            "change_per_100_low": per_span.low,
            "change_per_100_high": per_span.high,
            "share_best": _share_best(change_samples, candidates),
            "share_best_per_verdict": _share_best(per_samples, cheap),
            "reason": [
                UNRANKED if value != value else NO_INTERVAL if len(samples) and end != end else ""
                for value, end in zip(change, span.low, strict=True)
            ],
        }
    )
    return replace(
        study,
        spearman=float(rho[0]),
        spearman_low=float(bounds.low),
        spearman_high=float(bounds.high),
        levers=frame,
        best=_best(change, candidates, -n_verdicts),
        best_per_verdict=_best(per, cheap, change),
    )


def _share_best(samples: Floats, candidates: np.ndarray) -> Floats:
    """Share of resamples in which a candidate does at least as well as all others; NaN for the rest."""
    result = np.full(samples.shape[1], np.nan)
    if len(samples) and candidates.any():
        values = np.where(np.isnan(samples[:, candidates]), -np.inf, samples[:, candidates])
        top = values.max(axis=1, keepdims=True)
        result[candidates] = ((values >= top - 1e-12) & np.isfinite(values)).mean(axis=0)
    return result


def _best(values: Floats, candidates: np.ndarray, then: np.ndarray) -> int | None:
    """Index of the largest positive value; among equals the largest in `then`."""
    usable = np.flatnonzero(candidates & (np.nan_to_num(values, nan=-1.0) > 1e-12))
    if not len(usable):
        return None
    return int(usable[np.lexsort((usable, -then[usable], -np.round(values[usable], 12)))[0]])


def describe_levers(study: LeverStudy) -> str:
    """Say in a sentence or two which lever pays most, how sure that is, and on what it is conditional."""
    name = f"{study.name}: " if study.labels else ""
    if study.reason:
        return f"{name}no levers, because {study.reason}."
    table = study.levers
    if study.best is None:
        why = (
            "it is 1 already" if study.spearman > 1 - 1e-12 else "the order of the items stays, or gets worse"
        )
        return (
            f"{name}given these verdicts and this gold, no single lever on a bucket raises rho above "
            f"{study.spearman:.3f}: {why}."
        )
    row = table.iloc[study.best]
    n_equal = _count_equal(table, study.best, "spearman_change")
    pays = "would pay most"
    if n_equal:
        pays = f"would pay as much as {n_equal} other lever{'s' if n_equal > 1 else ''} (none pays more)"
    text = (
        f"{name}given these verdicts and this gold, {_phrase(row)} {pays}: rho {study.spearman:.3f} would have been "
        f"{row.spearman_after:.3f} ({_signed(row, 'spearman_change', 3)}; {row.n_pairs:,} pairs, {row.n_verdicts:,} verdicts"
        f"{' saved' if row.lever == 'drop' else ' changed'}"
    )
    if row.share_best == row.share_best:
        text += f"; no other single lever does better in {row.share_best:.0%} of the resamples"
    text += ")."
    if row.spearman_change_low <= 0 <= row.spearman_change_high:
        text += " Its interval includes no change."
    if study.best_per_verdict is not None:
        per = table.iloc[study.best_per_verdict]
        same = study.best_per_verdict == study.best
        n_equal = _count_equal(table, study.best_per_verdict, "change_per_100")
        most = f"as much as {n_equal} other lever{'s' if n_equal > 1 else ''}" if n_equal else "most"
        text += (
            f" Per verdict changed {f'it pays {most} as well' if same else f'{_phrase(per)} pays {most}'}: "
            f"{_signed(per, 'change_per_100', 3)} per 100 verdicts"
        )
        if per.share_best_per_verdict == per.share_best_per_verdict:
            text += f" (first in {per.share_best_per_verdict:.0%} of the resamples)"
        text += "."
    return text


def _count_equal(table: pd.DataFrame, best: int, column: str) -> int:
    """Number of other single levers with the same value as the best one."""
    single = table["bucket"] != "all"
    if not single.any():
        single = ~single
    rivals = single & (table["lever"] != "both") & (table["n_pairs"] > 0)
    if column == "change_per_100":
        rivals &= table["lever"] != "drop"
    values = table[column].to_numpy(dtype=float)
    equal = np.abs(values - values[best]) < 1e-12
    return int((equal & rivals.to_numpy()).sum()) - 1


def _phrase(row: pd.Series) -> str:
    where = "all pairs" if row.bucket == "all" else f"{row.bucket} pairs"
    if row.bucket.isdigit():
        where = f"pairs of bucket {row.bucket}"
    return {
        "flips": f"resolving the flips on {where} rightly",
        "errors": f"fixing the wrong decisive verdicts on {where}",
        "both": f"resolving the flips and fixing the errors on {where}",
        "drop": f"not judging the {where}",
    }[row.lever]


def _signed(row: pd.Series, name: str, digits: int) -> str:
    text = f"{row[name]:+.{digits}f}"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return text if low != low else f"{text} [{low:+.{digits}f}, {high:+.{digits}f}]"
