"""Which pair-level proxy goes with rho over judges and corpora: rank correlations with permutation tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from difficulty.study import GroupStudy
from rank.columns import finite_numbers, list_some
from rank.exceptions import InputError
from rank.recovery import midranks
from rank.resample import DEFAULT_LEVEL, seed_of

#: Proxies that are always studied, and those on request; column -> words.
PROXIES = {
    "swap_consistency": "swap consistency, all pairs",
    "swap_consistency_close": "swap consistency, close pairs",
    "swap_consistency_far": "swap consistency, far pairs",
    "inconsistent_pair_primacy": "inconsistent-pair primacy (signed)",
    "nontransitive_share": "non-transitive triads",
}
OPTIONAL_PROXIES = {"accuracy": "accuracy A", "trustworthy_rate": "trustworthy rate T"}

#: Triad shares of a summary table; together the non-transitive share.
TRIADS = ("cyclic", "mixed", "inequality")

DEFAULT_PERMUTATIONS = 10_000

#: Below this many points the table says what it cannot show.
SMALL_N = 25

_CHUNK = 4_000_000


@dataclass(frozen=True)
class ProxyStudy:
    """Rank correlation of every proxy with rho.

    Attributes
    ----------
    table : DataFrame
        One row per proxy: ``proxy``, ``n``, ``spearman`` with ``spearman_low``, ``spearman_high``, ``p_value``
        (two-sided permutation), ``p_holm``; ``within_n``, ``within_spearman``, ``within_p_value``,
        ``within_p_holm`` (ranks and permutations inside each corpus); ``reason`` where undefined.
    points : DataFrame
        What was correlated: ``judge``, ``dataset``, the proxies, ``spearman``.
    minimum_detectable : float
        The correlation that would be found with power 0.8 at 5 % (two-sided) with all the points.
    n_points, n_left_out, n_corpora : int
        Points with rho, points without, and corpora among the former.
    n_permutations : int
    level : float
    """

    table: pd.DataFrame
    points: pd.DataFrame
    minimum_detectable: float
    n_points: int
    n_left_out: int
    n_corpora: int
    n_permutations: int
    level: float


def points_from_studies(studies: Sequence[GroupStudy]) -> pd.DataFrame:
    """Return one point per measured group: labels, proxies and rho."""
    rows = []
    for study in studies:
        flat = study.flat()
        names = (*PROXIES, *OPTIONAL_PROXIES, "spearman")
        rows.append({**study.labels, **{name: flat[name] for name in names}})
    return pd.DataFrame(rows)


def points_from_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points of a summary table, one row per judge and corpus.

    Parameters
    ----------
    frame : DataFrame
        ``spearman`` (rho) and at least one proxy: the names of `PROXIES` and `OPTIONAL_PROXIES`; the
        non-transitive share also as its parts, ``triads_cyclic_pct`` and so on in percent or
        ``cyclic_share`` and so on. Units do not matter to ranks. Empty cells are undefined.

    Returns
    -------
    DataFrame
        Label columns, proxies, ``spearman``.

    Raises
    ------
    InputError
        No rho, no proxy, a part of the triad shares missing, text instead of numbers, rho outside [-1, 1].
    """
    if "spearman" not in frame.columns:
        raise InputError(
            "the summary table lacks spearman (rho of the judge's ranking against gold); the proxies are correlated with it"
        )
    if frame.empty:
        raise InputError("the summary table has a header but no rows")
    frame = frame.reset_index(drop=True)
    points = frame[[name for name in ("judge", "dataset") if name in frame.columns]].copy()
    for name in (*PROXIES, *OPTIONAL_PROXIES, "spearman"):
        if name in frame.columns:
            points[name] = finite_numbers(frame[name], name, allow_empty=True)
    if "nontransitive_share" not in points:
        for form in ("triads_{}_pct", "{}_share"):
            names = [form.format(kind) for kind in TRIADS]
            present = [name for name in names if name in frame.columns]
            if present and len(present) < len(names):
                raise InputError(
                    f"the summary table has {list_some(present)} but not {list_some(sorted(set(names) - set(present)))}; "
                    "the non-transitive share is their sum"
                )
            if present:
                total = sum(finite_numbers(frame[name], name, allow_empty=True) for name in names)
                # The sum of decimals must not break ties in the last bits.
                points["nontransitive_share"] = np.round(total, 9) / (100 if "pct" in form else 1)
                break
    if not set(points) & {*PROXIES, *OPTIONAL_PROXIES}:
        raise InputError(
            f"the summary table has no proxy; known are {list_some([*PROXIES, *OPTIONAL_PROXIES], 12)}"
        )
    rho = points["spearman"]
    if ((rho < -1) | (rho > 1)).any():
        row = int(np.flatnonzero((rho < -1) | (rho > 1))[0])
        raise InputError(f"row {row + 1}: spearman {rho[row]:g} is no correlation; it must lie in [-1, 1]")
    return points


def study_proxies(
    points: pd.DataFrame,
    *,
    proxies: Sequence[str] | None = None,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> ProxyStudy:
    """Correlate every proxy with rho over pooled points, and inside each corpus.

    Parameters
    ----------
    points : DataFrame
        From `points_from_studies` or `points_from_summary`; ``dataset`` is the corpus.
    proxies : sequence of str, optional
        Default: those of `PROXIES` that the points have.
    n_permutations : int
        Random reshuffles of rho; equal seeds give equal p-values, whatever the order and names of the points
        and whichever other proxies are studied.
    level : float
        Of the intervals.
    rng : Generator, int or None

    Returns
    -------
    ProxyStudy

    Raises
    ------
    InputError
        Fewer than three points with rho, unknown proxies.

    Notes
    -----
    p = (k + 1) / (B + 1) with k reshuffles whose absolute correlation reaches the observed one: never 0
    (Phipson & Smyth 2010). Holm over the proxies with a p-value. Intervals: Fisher's z with variance
    1.06 / (n - 3) (Fieller, Hartley & Pearson 1957). Within corpus: mid-ranks inside each corpus, centred and
    pooled; permutations inside each corpus. Points of one judge or one corpus are not independent, so p-values
    are descriptive.
    """
    if n_permutations < 1:
        raise InputError(f"permutations must be at least 1, found {n_permutations}")
    if not 0 < level < 1:
        raise InputError(f"confidence must lie between 0 and 1, found {level}")
    names = list(proxies) if proxies is not None else [name for name in PROXIES if name in points]
    for name in names:
        if name not in points or name in ("judge", "dataset", "spearman"):
            there = [n for n in points if n in PROXIES or n in OPTIONAL_PROXIES]
            raise InputError(f"there is no proxy '{name}' in the table; it has {list_some(there, 12)}")
    known = points["spearman"].notna()
    n_points = int(known.sum())
    if n_points < 3:
        raise InputError(
            f"{n_points} point(s) have rho; a correlation over judges and corpora needs at least 3 (and means little below {SMALL_N})"
        )
    used = points[known]
    corpus = (
        pd.factorize(used["dataset"].astype(str), sort=True)[0]
        if "dataset" in used
        else np.zeros(n_points, dtype=int)
    )
    seed = seed_of(rng)
    rows = []
    for name in names:
        value, rho = used[name].to_numpy(dtype=float), used["spearman"].to_numpy(dtype=float)
        have = ~np.isnan(value)
        row: dict[str, object] = {"proxy": name, "n": int(have.sum())}
        r, p, reason = _test(
            value[have], rho[have], np.zeros(int(have.sum()), dtype=int), n_permutations, seed
        )
        low, high = fisher_interval(r, int(have.sum()), level=level)
        row |= {"spearman": r, "spearman_low": low, "spearman_high": high, "p_value": p, "p_holm": math.nan}
        row |= {
            "within_n": 0,
            "within_spearman": math.nan,
            "within_p_value": math.nan,
            "within_p_holm": math.nan,
        }
        if corpus.max() > 0:
            # A corpus with a single point has no order inside.
            size = np.bincount(corpus[have], minlength=int(corpus.max()) + 1)
            inside = have & (size[corpus] > 1)
            r, p, _ = _test(value[inside], rho[inside], corpus[inside], n_permutations, seed)
            row |= {"within_n": int(inside.sum()), "within_spearman": r, "within_p_value": p}
        rows.append(row | {"reason": reason})
    table = pd.DataFrame(rows)
    for column in ("p_value", "within_p_value"):
        table[column.replace("p_value", "p_holm")] = holm(table[column].to_numpy(dtype=float))
    return ProxyStudy(
        table, points.reset_index(drop=True), minimum_detectable_correlation(n_points), n_points,
        int((~known).sum()), int(corpus.max()) + 1, n_permutations, level,
    )  # fmt: skip


def _test(
    value: npt.NDArray[np.float64],
    rho: npt.NDArray[np.float64],
    corpus: npt.NDArray[np.int64],
    n_permutations: int,
    seed: np.random.SeedSequence,
) -> tuple[float, float, str]:
    """Correlation of ranks inside corpora, its permutation p, and why it is undefined."""
    if len(value) < 3:
        return math.nan, math.nan, f"{len(value)} point(s) have a value; at least 3 are needed"
    # Corpora in the order of their content, points in the order of their values: names and rows are irrelevant.
    content = sorted(
        (
            sorted(zip(value[corpus == k].tolist(), rho[corpus == k].tolist(), strict=True))
            for k in np.unique(corpus)
        ),
        key=lambda part: (len(part), part),
    )
    x = np.concatenate([_centred_ranks(np.array([a for a, _ in part])) for part in content])
    y = np.concatenate([_centred_ranks(np.array([b for _, b in part])) for part in content])
    scale = math.sqrt(float(x @ x) * float(y @ y))
    if scale == 0:
        constant = "the proxy" if not x.any() else "rho"
        return math.nan, math.nan, f"{constant} is the same for all points"
    observed = float(x @ y) / scale
    generator = np.random.default_rng(seed)
    extreme = 0
    step = max(1, _CHUNK // len(y))
    for start in range(0, n_permutations, step):
        shuffled = np.tile(y, (min(step, n_permutations - start), 1))
        place = 0
        for part in content:
            inside = slice(place, place + len(part))
            shuffled[:, inside] = generator.permuted(shuffled[:, inside], axis=1)
            place += len(part)
        extreme += int((np.abs(shuffled @ x) / scale >= abs(observed) - 1e-12).sum())
    return float(np.clip(observed, -1, 1)), (extreme + 1) / (n_permutations + 1), ""


def _centred_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    ranks = midranks(values)
    return np.asarray(ranks - (len(values) + 1) / 2)


def permutation_p(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    rng: np.random.Generator | int | None = None,
) -> float:
    """Two-sided permutation p-value of Spearman's rho, (k + 1) / (B + 1).

    Examples
    --------
    >>> permutation_p(range(9), range(9), n_permutations=999, rng=1)
    0.001
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return _test(x, y, np.zeros(len(x), dtype=np.int64), n_permutations, seed_of(rng))[1]


def holm(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Holm-adjusted p-values; undefined ones stay NaN and do not count as tests.

    Examples
    --------
    >>> holm([0.01, float("nan"), 0.04, 0.03]).round(2).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    known = ~np.isnan(p)
    if known.any():
        from statsmodels.stats.multitest import multipletests

        adjusted[known] = multipletests(p[known], method="holm")[1]
    return adjusted


def fisher_interval(r: float, n: int, *, level: float = DEFAULT_LEVEL) -> tuple[float, float]:
    """Interval of a Spearman correlation by Fisher's z with variance 1.06 / (n - 3); NaN below four points.

    At r = -1 or 1 the transform is infinite and the interval undefined.
    """
    from scipy.special import ndtri

    if math.isnan(r) or n < 4 or abs(r) >= 1:
        return math.nan, math.nan
    half = float(ndtri(0.5 + level / 2)) * math.sqrt(1.06 / (n - 3))
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def minimum_detectable_correlation(n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the Spearman correlation that n points show with the given power, two-sided.

    tanh((z_{1 - alpha/2} + z_power) sqrt(1.06 / (n - 3))); NaN below four points.

    Examples
    --------
    >>> round(minimum_detectable_correlation(12), 3)
    0.745
    """
    from scipy.special import ndtri

    if n < 4:
        return math.nan
    return math.tanh(float(ndtri(1 - alpha / 2) + ndtri(power)) * math.sqrt(1.06 / (n - 3)))
