"""Measure rankgap beside its peers in one run: the same answers first, then interleaved times and peak memory.

    python scripts/benchmark.py                      # everything, some minutes; writes benchmarks/results.md
    python scripts/benchmark.py --quick              # small sizes, to see that it works
    python scripts/benchmark.py votes sweep          # some workloads
    python scripts/benchmark.py --scaling growth.png # how cost grows, with fitted exponents

A peer that cannot be imported is skipped with a line. Some pin versions that others exclude (arena-rank wants
one numpy): install all of them and rankgap into an environment of their own for the table of the README.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PEERS = ("choix", "evalica", "arena-rank", "networkx", "pandas", "numpy", "scipy", "pyarrow")
SAME = 1e-6


@dataclass(frozen=True)
class Contestant:
    """One way to do a workload.

    Attributes
    ----------
    name : str
    run : callable
        Does the work and returns the answer to compare, or None.
    scale : float
        The timed work times this is the workload (a peer that would take hours does a part of it).
    package : str
        What must be importable.
    """

    name: str
    run: Callable[[], Any]
    scale: float = 1.0
    package: str = ""
    note: str = ""


@dataclass
class Workload:
    """What is measured, who takes part (rankgap first), and how equal answers must be."""

    title: str
    target: str
    contestants: list[Contestant]
    tolerance: float = SAME
    notes: list[str] = field(default_factory=list)


@dataclass
class Row:
    """A line of the table."""

    workload: str
    target: str
    name: str
    seconds: float
    ratio: float
    megabytes: float
    difference: float
    note: str


# --- workloads ----------------------------------------------------------------------------------------------


def make_votes(n_votes: int, n_items: int) -> pd.DataFrame:
    """Votes between string labels, 10 % ties."""
    rng = np.random.default_rng(0)
    strength = rng.normal(size=n_items)
    first = rng.integers(0, n_items, n_votes)
    second = (first + rng.integers(1, n_items, n_votes)) % n_items
    wins = rng.random(n_votes) < 1 / (1 + np.exp(strength[second] - strength[first]))
    verdict = np.where(rng.random(n_votes) < 0.1, "tie", np.where(wins, "first", "second"))
    names = np.array([f"model-{k:03d}" for k in range(n_items)])
    return pd.DataFrame({"item_first": names[first], "item_second": names[second], "verdict": verdict})


def centred(values: Any) -> np.ndarray:
    """Strengths with mean 0."""
    array = np.asarray(values, dtype=float)
    return array - array.mean()


def of_evalica(votes: pd.DataFrame, **options: Any) -> np.ndarray:
    """Strengths by evalica, items in the order of their names."""
    import evalica

    outcome = {"first": evalica.Winner.X, "second": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    winners = votes["verdict"].map(outcome)
    result = evalica.bradley_terry(votes["item_first"], votes["item_second"], winners, **options)
    return centred(np.log(result.scores.sort_index()))


def arena_data(votes: pd.DataFrame) -> Any:
    """Votes as arena-rank's data set."""
    from arena_rank.utils.data_utils import PairDataset

    return PairDataset.from_pandas(
        votes,
        competitor_cols=["item_first", "item_second"],
        outcome_col="verdict",
        outcome_map={"first": 1.0, "second": 0.0, "tie": 0.5}.get,
    )


def of_arena(votes: pd.DataFrame) -> np.ndarray:
    """Strengths by arena-rank, with its sandwich standard errors."""
    from arena_rank.models.bradley_terry import BradleyTerry

    data = arena_data(votes)
    model = BradleyTerry(n_competitors=len(data.competitors), hessian_reg=0.0)
    result = model.compute_ratings_and_cis(data)
    order = np.argsort(np.array(data.competitors))
    return centred(np.asarray(result["ratings"])[order] / model.alpha)


def votes(quick: bool) -> Workload:
    """From a table of labels to strengths and standard errors."""
    from rank.bradley_terry import fit_bradley_terry
    from rank.tally import tally_verdicts
    from rank.verdicts import check_verdicts

    n_votes, n_items = (20_000, 30) if quick else (1_000_000, 150)
    table = make_votes(n_votes, n_items)

    def ours() -> np.ndarray:
        tally = tally_verdicts(check_verdicts(table, number_runs=True))
        fit = fit_bradley_terry(
            tally.item_i, tally.item_j, tally.counts.sum(axis=1), n_items=n_items, std_errors="observed"
        )
        assert fit.std_errors is not None
        return np.asarray(fit.strengths)

    return Workload(
        f"BT from a DataFrame of labels: {n_votes:,} votes, {n_items} items, 10 % ties, to strengths and standard errors",
        ">= 8x the fastest",
        [
            Contestant("rankgap", ours),
            Contestant(
                "evalica",
                lambda: of_evalica(table, tolerance=1e-9, limit=1000),
                package="evalica",
                note="strengths only",
            ),
            Contestant(
                "arena-rank", lambda: of_arena(table), package="arena_rank", note="after its compilation"
            ),
        ],
        tolerance=1e-4 if importlib.util.find_spec("arena_rank") else SAME,
        notes=["arena-rank stops at a gradient of 1e-9 per vote: its strengths are compared at 1e-4"],
    )


def bootstrap(quick: bool) -> Workload:
    """The same with 95 % intervals."""
    from rank.ranking import RankingOptions, rank_group
    from rank.tally import tally_verdicts
    from rank.verdicts import check_verdicts

    n_votes, n_items, n_resamples, part = (20_000, 30, 50, 5) if quick else (1_000_000, 150, 1_000, 5)
    table = make_votes(n_votes, n_items)

    def ours() -> np.ndarray:
        tally = tally_verdicts(check_verdicts(table, number_runs=True))
        ranking = rank_group(tally, options=RankingOptions(n_resamples=n_resamples), rng=1)
        return centred(ranking.items.sort_values("item")["strength"])

    def evalica_bootstrap() -> np.ndarray:
        import evalica

        outcome = {"first": evalica.Winner.X, "second": evalica.Winner.Y, "tie": evalica.Winner.Draw}
        result = evalica.bootstrap(
            evalica.bradley_terry,
            table["item_first"],
            table["item_second"],
            table["verdict"].map(outcome),
            n_resamples=part,
            bootstrap_method="percentile",
            random_state=1,
            tolerance=1e-9,
            limit=1000,
        )
        return centred(np.log(result.result.scores.sort_index()))

    def arena_bootstrap() -> np.ndarray:
        import jax
        from arena_rank.models.bradley_terry import BradleyTerry, fit_single_bootstrap_sample

        data = arena_data(table)
        model = BradleyTerry(n_competitors=len(data.competitors), hessian_reg=0.0)
        model.fit(data)
        total = data.counts.sum()
        drawn = jax.random.multinomial(
            jax.random.PRNGKey(1), int(total), data.counts / total, shape=(part, len(data.counts))
        )
        for weights in drawn.astype(float):  # what its worker processes do, one after the other
            fit_single_bootstrap_sample(weights, model, data)
        return centred(np.asarray(model.params["ratings"])[np.argsort(np.array(data.competitors))])

    scaled = f"{part} resamples, scaled"
    return Workload(
        f"the same with 95 % intervals from {n_resamples:,} bootstrap resamples",
        ">= 50x",
        [
            Contestant("rankgap", ours, note="resamples pairs with all their votes; rank intervals too"),
            Contestant("evalica", evalica_bootstrap, n_resamples / part, "evalica", scaled),
            Contestant("arena-rank", arena_bootstrap, n_resamples / part, "arena_rank", scaled),
        ],
        tolerance=1e-4 if importlib.util.find_spec("arena_rank") else SAME,
    )


def round_robin(n_items: int, n_fits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs, and counts (fits, M, 3) of ten votes per pair."""
    rng = np.random.default_rng(3)
    strength = rng.normal(size=n_items)
    i, j = np.triu_indices(n_items, 1)
    p = 1 / (1 + np.exp(strength[j] - strength[i]))
    wins = rng.binomial(10, p, size=(n_fits, len(i)))
    return i, j, np.stack([wins, 10 - wins, np.zeros_like(wins)], axis=-1)


def of_choix(i: np.ndarray, j: np.ndarray, counts: np.ndarray, n_items: int) -> np.ndarray:
    """Strengths by choix from a matrix of wins."""
    import choix

    wins = np.zeros((n_items, n_items))
    wins[i, j], wins[j, i] = counts[:, 0], counts[:, 1]
    return centred(choix.ilsr_pairwise_dense(wins, tol=1e-9, max_iter=1000))


def of_evalica_arrays(i: np.ndarray, j: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Strengths by evalica from weighted wins."""
    import evalica

    winners = [evalica.Winner.X] * len(i) + [evalica.Winner.Y] * len(i)
    weights = np.concatenate([counts[:, 0], counts[:, 1]]).astype(float)
    result = evalica.bradley_terry(
        np.concatenate([i, i]), np.concatenate([j, j]), winners, weights=weights, tolerance=1e-9, limit=10_000
    )
    return centred(np.log(result.scores.sort_index()))


def fit(quick: bool) -> Workload:
    """One fit from arrays."""
    from rank.bradley_terry import fit_bradley_terry

    n = 40 if quick else 200
    i, j, counts = round_robin(n, 1)
    return Workload(
        f"BT, {n} items round robin, one fit from arrays",
        ">= 3x",
        [
            Contestant(
                "rankgap", lambda: np.asarray(fit_bradley_terry(i, j, counts[0], std_errors="none").strengths)
            ),
            Contestant("choix", lambda: of_choix(i, j, counts[0], n), package="choix"),
            Contestant("evalica", lambda: of_evalica_arrays(i, j, counts[0]), package="evalica"),
        ],
    )


def batch(quick: bool) -> Workload:
    """Many fits from arrays."""
    from rank.bradley_terry import fit_bradley_terry

    n, n_fits, part = (40, 20, 5) if quick else (200, 1_000, 10)
    i, j, counts = round_robin(n, n_fits)

    def ours() -> np.ndarray:
        return np.asarray(fit_bradley_terry(i, j, counts, std_errors="none").strengths)[:part]

    scaled = f"{part} fits, scaled"
    return Workload(
        f"BT, {n} items round robin, {n_fits:,} fits from arrays",
        ">= 20x",
        [
            Contestant("rankgap", ours),
            Contestant(
                "choix",
                lambda: np.stack([of_choix(i, j, one, n) for one in counts[:part]]),
                n_fits / part,
                "choix",
                scaled,
            ),
            Contestant(
                "evalica",
                lambda: np.stack([of_evalica_arrays(i, j, one) for one in counts[:part]]),
                n_fits / part,
                "evalica",
                scaled,
            ),
        ],
    )


def sparse(quick: bool) -> Workload:
    """Many items, few comparisons of each."""
    from rank.bradley_terry import fit_bradley_terry

    n, m = (300, 3_000) if quick else (100_000, 1_000_000)
    rng = np.random.default_rng(4)
    strength = rng.normal(size=n)
    first = rng.integers(0, n, m - n)
    second = (first + rng.integers(1, n, m - n)) % n
    wins = rng.random(m - n) < 1 / (1 + np.exp(strength[second] - strength[first]))
    # A cycle of wins, so that the maximum exists.
    winner = np.concatenate([np.where(wins, first, second), np.arange(n)])
    loser = np.concatenate([np.where(wins, second, first), (np.arange(n) + 1) % n])
    counts = np.zeros((m, 3), dtype=np.int64)
    counts[:, 0] = 1
    contestants = [
        Contestant(
            "rankgap",
            lambda: np.asarray(
                fit_bradley_terry(winner, loser, counts, n_items=n, std_errors="none").strengths
            ),
        )
    ]
    notes = []
    if quick:

        def of_choix_mm() -> np.ndarray:
            import choix

            return centred(
                choix.mm_pairwise(n, list(zip(winner.tolist(), loser.tolist())), max_iter=100_000, tol=1e-10)
            )

        contestants.append(Contestant("choix (mm)", of_choix_mm, package="choix"))
    else:
        notes.append(
            f"choix and evalica hold a dense matrix of {n:,} x {n:,} ({8 * n * n / 1e9:,.0f} GB), so neither was run"
        )
    return Workload(
        f"BT, {n:,} items, {m:,} comparisons, sparse",
        "seconds, < 1 GB",
        contestants,
        tolerance=1e-5,
        notes=notes,
    )


def chain(quick: bool) -> Workload:
    """A chain of items, each of which beats the next 999 times in 1,000."""
    from rank.bradley_terry import fit_bradley_terry

    n = 10
    i, j = np.arange(n - 1), np.arange(1, n)
    counts = np.tile([999, 1, 0], (n - 1, 1))
    exact = centred(-np.arange(n) * np.log(999.0))

    def error(strengths: np.ndarray) -> np.ndarray:
        return np.array([np.abs(centred(strengths) - exact).max()])

    def of_choix_mm() -> np.ndarray:
        import choix

        data = [(k, k + 1) for k in range(n - 1)] * 999 + [(k + 1, k) for k in range(n - 1)]
        try:
            return error(choix.mm_pairwise(n, data, max_iter=1_000))
        except RuntimeError:  # did not converge
            return np.array([np.nan])

    def of_evalica_default() -> np.ndarray:
        import evalica

        winners = [evalica.Winner.X] * (n - 1) + [evalica.Winner.Y] * (n - 1)
        weights = np.repeat([999.0, 1.0], n - 1)
        pairs = [*i, *i], [*j, *j]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = evalica.bradley_terry(*pairs, winners, weights=weights, limit=10_000)
        return error(np.log(result.scores.sort_index().to_numpy()))

    def ours() -> np.ndarray:
        return error(np.asarray(fit_bradley_terry(i, j, counts, std_errors="none").strengths))

    return Workload(
        f"near-separable chain of {n} items (999 : 1 votes); the difference is the one to the exact answer",
        "< 0.1 s, exact",
        [
            Contestant("rankgap", ours),
            Contestant("choix (mm)", of_choix_mm, package="choix", note="1,000 iterations"),
            Contestant("evalica", of_evalica_default, package="evalica", note="at most 10,000 iterations"),
        ],
        tolerance=np.inf,
    )


def user_sweep(n_items: int, q_values: Sequence[float], seed: int, runs: int = 1) -> np.ndarray:
    """The experiment as one would write it with numpy, choix and scipy: rho only.

    With one run: one order, 40 % of the pairs wrong, and choix on the list of verdicts. With more: flips,
    unstable conditions, both orders and all runs, and choix on the matrix of wins, its fastest way.
    """
    import choix
    from scipy import stats

    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n_items)
    i, j = np.triu_indices(n_items, 1)
    m = len(i)
    gap = np.abs(theta[i] - theta[j])
    human = rng.random(m) < 1 / (1 + np.exp(theta[j] - theta[i]))
    u = stats.rankdata(gap) / (m + 1)

    def place(size: float, q: float, among: np.ndarray, rank: np.ndarray) -> np.ndarray:
        weight = (rank if q >= 0 else 1 - rank) ** (abs(q) / (1 - abs(q)))
        return rng.choice(among, round(size), replace=False, p=weight / weight.sum())

    found = []
    for q in q_values:
        if runs == 1:
            verdict = human.copy()
            verdict[place(0.4 * m, q, np.arange(m), u)] ^= True
            verdicts = zip(np.where(verdict, i, j).tolist(), np.where(verdict, j, i).tolist())
            strengths = choix.ilsr_pairwise(n_items, list(verdicts), alpha=0.01)
        else:
            flips = place(0.2 * m, -0.5, np.arange(m), u)
            decided = np.setdiff1d(np.arange(m), flips)
            modal = np.stack([human, human], axis=1)
            modal[place(0.3 * m, q, decided, u[decided])] ^= True
            modal[flips] = (rng.random(len(flips)) < 0.8)[:, None] ^ np.array([False, True])
            i_wins = np.repeat(modal[:, :, None], runs, axis=2)
            unstable = place(0.05 * 2 * m, -0.5, np.arange(2 * m), np.repeat(u, 2))
            i_wins.reshape(2 * m, runs)[unstable, : rng.integers(1, runs // 2 + 1)] ^= True
            won = i_wins.sum(axis=(1, 2))
            wins = np.zeros((n_items, n_items))
            wins[i, j], wins[j, i] = won, 2 * runs - won
            strengths = choix.ilsr_pairwise_dense(wins)
        found.append(stats.spearmanr(strengths, theta).statistic)
    return np.array(found)


def same_rho(n_items: int, q_values: Sequence[float]) -> None:
    """Refuse to go on if choix and scipy find another rho in the verdicts of our judges."""
    import choix
    from scipy import stats

    from simulate.sweep import first_repetition
    from simulate.sweep import sweep as run_sweep

    population = {"n_items": n_items}
    rows = run_sweep(q_values, population=population, rng=1, n_resamples=0).rows
    first = first_repetition(population=population, rng=1)
    for row in rows:
        answer = first.answer(row["q"])
        people, won = answer.population, answer.counts.sum(axis=1)
        wins = np.zeros((n_items, n_items))
        wins[people.item_i, people.item_j], wins[people.item_j, people.item_i] = won[:, 0], won[:, 1]
        strengths = np.round(choix.ilsr_pairwise_dense(wins, tol=1e-10), 7)  # equal scores tie
        rho = stats.spearmanr(strengths, people.theta).statistic
        if not abs(rho - row["spearman"]) <= SAME:
            raise SystemExit(f"sweep: at q {row['q']:g}, rho is {row['spearman']}, by choix and scipy {rho}")


def sweep(quick: bool) -> Workload:
    """q in five values x 1,000 repetitions, rho and T."""
    from simulate.sweep import sweep as run_sweep

    n_items, n_reps = (40, 20) if quick else (200, 1_000)
    q_values = (-0.8, -0.4, 0.0, 0.4, 0.8)
    with contextlib.suppress(ImportError):
        same_rho(n_items, q_values)

    def ours(n_jobs: int) -> None:
        run_sweep(q_values, n_reps=n_reps, population={"n_items": n_items}, rng=1, n_jobs=n_jobs)

    def loop(runs: int) -> None:
        user_sweep(n_items, q_values, 1, runs)

    return Workload(
        f"sweep: q in 5 values x {n_reps:,} repetitions, {n_items} items, all pairs, both orders, 5 runs: rho, tau, C, phi, A, T",
        ">= 100x on one core; >= 1.8x more on two",
        [
            Contestant("rankgap", lambda: ours(1)),
            Contestant("rankgap, 2 processes", lambda: ours(2)),
            Contestant(
                "a loop: numpy, choix (list of verdicts), scipy",
                lambda: loop(1),
                n_reps,
                "choix",
                "one repetition, scaled; one order and run, rho only",
            ),
            Contestant(
                "a loop: numpy, choix (matrix of wins), scipy",
                lambda: loop(5),
                n_reps,
                "choix",
                "one repetition, scaled; both orders, 5 runs, rho only",
            ),
        ],
        tolerance=np.inf,
        notes=[
            "before the times, rho of our judges is compared with that of choix and scipy on the same verdicts"
        ],
    )


def triads(quick: bool) -> Workload:
    """Classes of all triples of items."""
    from difficulty.triads import count_triads

    n, small = (100, 40) if quick else (2_000, 200)

    def verdicts(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(5)
        i, j = np.triu_indices(size, 1)
        return i, j, rng.choice(3, len(i), p=[0.45, 0.4, 0.15]).astype(np.int8)

    def counted(size: int) -> np.ndarray:
        i, j, verdict = verdicts(size)
        found = count_triads(i, j, verdict, n_items=size)
        return np.array([found.n_cyclic, found.n_mixed, found.n_inequality], dtype=float)

    def census() -> np.ndarray:
        import networkx

        i, j, verdict = verdicts(small)
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(small))
        graph.add_edges_from(zip(i[verdict == 0], j[verdict == 0]))
        graph.add_edges_from(zip(j[verdict == 1], i[verdict == 1]))
        found = networkx.triadic_census(graph)
        return np.array([found["030C"], found["021C"], found["012"]], dtype=float)

    large = counted(n)
    if not np.array_equal(counted(small), census()):
        raise SystemExit("triads: the classes differ from those of networkx")
    return Workload(
        f"triads, {n:,} items complete with ties ({n * (n - 1) * (n - 2) / 6:.2g} triads)",
        "<= 3 matrix products, O(n^2) memory",
        [
            Contestant("rankgap", lambda: np.zeros(0) if np.array_equal(counted(n), large) else None),
            Contestant("three products", lambda: products(n), note="numpy, single precision"),
            Contestant(
                "networkx",
                lambda: np.zeros(0) if len(census()) else None,
                (n / small) ** 3,
                "networkx",
                f"{small} items, scaled",
            ),
        ],
        tolerance=np.inf,
    )


def products(n: int) -> None:
    """Three matrix products of the size."""
    matrix = np.ones((n, n), dtype=np.float32)
    for _ in range(3):
        matrix @ matrix


def write_audit(path: Path, n_contexts: int, n_corpora: int) -> None:
    """A Parquet file of 6 judges x 5 formats x corpora x contexts x 10 pairs x 2 orders x 10 runs, and gold."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(6)
    low, high = np.triu_indices(5, 1)
    runs = 10
    shape = (n_contexts, len(low), 2, runs)
    strength = rng.normal(size=(n_corpora, 5))
    systems = np.array([f"system-{k}" for k in range(5)], dtype=object)
    index = np.indices(shape)
    first = np.where(index[2] == 0, low[index[1]], high[index[1]])
    second = np.where(index[2] == 0, high[index[1]], low[index[1]])
    writer = None
    for corpus in range(n_corpora):
        contexts = np.array([f"c{corpus}-{k}" for k in range(n_contexts)], dtype=object)
        for judge in range(6):
            for form in range(5):
                lean = (strength[corpus, low] - strength[corpus, high])[None, :, None, None]
                lean = lean + rng.normal(size=(n_contexts, len(low), 1, 1))
                lean = np.where(index[2] == 0, lean, -lean) + 0.3 * (judge - 2) + 0.3 * rng.normal(size=shape)
                verdict = np.where(
                    rng.random(shape) < 0.02, "tie", np.where(lean > 0, "first", "second")
                ).astype(object)
                table = pa.table(
                    {
                        "judge": pa.array([f"judge-{judge}"] * lean.size),
                        "dataset": pa.array([f"corpus-{corpus}"] * lean.size),
                        "format": pa.array([f"format-{form}"] * lean.size),
                        "context": pa.array(contexts[index[0].ravel()]),
                        "item_first": pa.array(systems[first.ravel()]),
                        "item_second": pa.array(systems[second.ravel()]),
                        "run": pa.array(index[3].ravel()),
                        "verdict": pa.array(verdict.ravel()),
                    }
                )
                writer = writer or parquet.ParquetWriter(path, table.schema)
                writer.write_table(table)
    assert writer is not None
    writer.close()
    pd.DataFrame(
        {
            "item": np.tile(systems, n_corpora),
            "dataset": np.repeat([f"corpus-{c}" for c in range(n_corpora)], 5),
            "score": strength.ravel(),
        }
    ).to_csv(path.with_suffix(".csv"), index=False)


def audit(quick: bool) -> Workload:
    """A whole audit with intervals beside reading and grouping the file."""
    from difficulty.study import StudyOptions, study_groups
    from rank.readers import read_gold
    from rank.streaming import read_tally

    n_contexts, n_corpora, n_resamples = (5, 2, 50) if quick else (417, 4, 2_000)
    folder = Path(tempfile.gettempdir()) / f"rankgap-benchmark-{n_contexts}-{n_corpora}"
    folder.mkdir(exist_ok=True)
    path = folder / "verdicts.parquet"
    if not path.with_suffix(".csv").exists():
        write_audit(path, n_contexts, n_corpora)
    n_rows = 6 * 5 * n_corpora * n_contexts * 200

    def ours(n_jobs: int) -> np.ndarray:
        tally = read_tally(path, n_jobs=1)
        gold = read_gold(path.with_suffix(".csv"))
        options = StudyOptions(n_resamples=n_resamples)
        studies = list(study_groups(tally, gold, options, rng=1, n_jobs=n_jobs))
        assert len(studies) == 30 * n_corpora
        return np.array([float(tally.counts.sum())])

    def grouped() -> np.ndarray:
        frame = pd.read_parquet(path)
        keys = ["judge", "dataset", "format", "context", "item_first", "item_second", "verdict"]
        return np.array([float(frame.groupby(keys, sort=False).size().sum())])

    return Workload(
        f"audit of {n_rows:,} verdict rows (Parquet; 6 judges x 5 formats x {n_corpora} corpora, 10 runs), {n_resamples:,} resamples",
        "<= 3x read + group, < 2 GB",
        [
            Contestant("rankgap", lambda: ours(1)),
            Contestant("rankgap, 2 processes", lambda: ours(2)),
            Contestant("rankgap, reading alone", lambda: np.array([float(read_tally(path).counts.sum())])),
            Contestant("pandas read + group-by", grouped),
        ],
    )


def start(quick: bool) -> Workload:
    """How soon a command answers."""

    def call(*arguments: str) -> None:
        command = [sys.executable, "-m", "simulate", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

    return Workload(
        "python -m simulate",
        "--help < 0.3 s; --q 0.5 < 1.5 s",
        [
            Contestant("rankgap --help", lambda: call("--help")),
            Contestant("rankgap --q 0.5", lambda: call("--q", "0.5")),
        ],
        tolerance=np.inf,
    )


WORKLOADS: dict[str, Callable[[bool], Workload]] = {
    "votes": votes,
    "bootstrap": bootstrap,
    "fit": fit,
    "batch": batch,
    "sparse": sparse,
    "chain": chain,
    "sweep": sweep,
    "triads": triads,
    "audit": audit,
    "start": start,
}


# --- measuring ----------------------------------------------------------------------------------------------


def measure(name: str, quick: bool, rounds: int) -> list[Row]:
    """Check that all give the same answer, then time them in turn."""
    workload = WORKLOADS[name](quick)
    present = []
    for contestant in workload.contestants:
        missing = _missing(contestant.package)
        if missing:
            print(f"{name}: {contestant.name} is skipped: {missing}", file=sys.stderr)
        else:
            present.append(contestant)
    differences = _differences(name, workload, present)
    times: dict[str, list[float]] = {contestant.name: [] for contestant in present}
    for _ in range(rounds):
        for contestant in present:
            if sum(times[contestant.name]) > 120:  # what takes minutes is not repeated
                continue
            times[contestant.name].append(_median_of_calls(contestant.run))
    base = statistics.median(times[present[0].name]) * present[0].scale
    rows = []
    for contestant in present:
        seconds = statistics.median(times[contestant.name]) * contestant.scale
        rows.append(
            Row(
                workload.title,
                workload.target,
                contestant.name,
                seconds,
                seconds / base,
                peak_memory(name, contestant.name, quick),
                differences.get(contestant.name, float("nan")),
                contestant.note,
            )
        )
        print(f"{name:10} {contestant.name:24} {seconds:10.4f} s {seconds / base:9.2f}x", file=sys.stderr)
    for note in workload.notes:
        print(f"{name:10} {note}", file=sys.stderr)
        rows[-1].note = "; ".join(filter(None, [rows[-1].note, note]))
    return rows


def _median_of_calls(run: Callable[[], Any]) -> float:
    """Median seconds of the calls in 0.2 s, at least one, after one that warms up; of what takes long, that one."""
    gc.collect()
    time.sleep(0.1)  # threads that the one before left running come to rest
    if (first := _timed(run)) > 5.0:
        return first
    seconds: list[float] = []
    while not seconds or (sum(seconds) < 0.2 and len(seconds) < 100):
        seconds.append(_timed(run))
    return statistics.median(seconds)


def measure_apart(name: str, quick: bool, rounds: int) -> list[Row]:
    """`measure` in a process of its own, which no other workload has left its memory and threads in."""
    command = [
        sys.executable,
        __file__,
        name,
        "--rows",
        "--rounds",
        str(rounds),
        *(["--quick"] if quick else []),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.returncode)
    return [Row(**row) for row in json.loads(done.stdout)]


def _missing(package: str) -> str:
    if not package:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(package)
    except Exception as error:  # noqa: BLE001 (whatever a peer's import raises)
        return f"it cannot be imported ({type(error).__name__}: {error})"
    return ""


def _differences(name: str, workload: Workload, present: list[Contestant]) -> dict[str, float]:
    """Largest difference to rankgap's answer; also the warm-up of everyone. Refuses other answers."""
    answers = {}
    for contestant in present:
        answers[contestant.name] = contestant.run()
    ours = answers[present[0].name]
    if not isinstance(ours, np.ndarray) or not ours.size:
        return {}
    if not np.isfinite(workload.tolerance):
        return {key: float(answer[0]) for key, answer in answers.items()}
    differences = {}
    for key, answer in answers.items():
        difference = float(np.abs(answer - ours).max())
        differences[key] = difference
        if not difference <= workload.tolerance:
            raise SystemExit(f"{name}: {key} gives another answer, off by {difference:.2g}")
    return differences


def peak_memory(name: str, contestant: str, quick: bool) -> float:
    """Peak memory of one contestant in a process of its own, in MB, imports and data included."""
    command = [sys.executable, __file__, "--one", name, contestant, *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return float(json.loads(done.stdout)) if done.returncode == 0 and done.stdout else float("nan")


def run_alone(name: str, contestant: str, quick: bool) -> None:
    """Run one contestant and print the peak memory of this process in MB."""
    chosen = {c.name: c for c in WORKLOADS[name](quick).contestants}[contestant]
    with contextlib.redirect_stdout(sys.stderr):
        chosen.run()
    print(_peak())


def _peak() -> float:
    # The system's own high-water mark: what getrusage says starts with the memory of the parent process.
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1e3
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


# --- scaling ------------------------------------------------------------------------------------------------


def scaling(path: Path, quick: bool) -> dict[str, float]:
    """Time what cost grows with, one size at a time; plot it and return the fitted exponents."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from difficulty.study import StudyOptions, study_groups
    from rank.bradley_terry import fit_bradley_terry
    from rank.gold import check_gold
    from rank.tally import tally_verdicts
    from rank.verdicts import check_verdicts

    def table(n_items: int, n_pairs: int, runs: int, judges: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        rng = np.random.default_rng(7)
        low, high = np.triu_indices(n_items, 1)
        chosen = rng.choice(len(low), min(n_pairs, len(low)), replace=False)
        theta = rng.normal(size=n_items)
        shape = (judges, len(chosen), 2, runs)
        judge, pair, order, run = (axis.ravel() for axis in np.indices(shape))
        a = np.where(order == 0, low[chosen][pair], high[chosen][pair])
        b = np.where(order == 0, high[chosen][pair], low[chosen][pair])
        wins = rng.random(len(a)) < 1 / (1 + np.exp(theta[b] - theta[a]))
        frame = pd.DataFrame({"judge": judge, "item_first": a, "item_second": b, "run": run})
        frame["verdict"] = np.where(wins, "first", "second")
        return frame, pd.DataFrame({"item": range(n_items), "score": theta})

    def audit_of(n_items: int, n_pairs: int, runs: int, judges: int, resamples: int) -> Callable[[], Any]:
        frame, gold = table(n_items, n_pairs, runs, judges)

        def work() -> None:
            tally = tally_verdicts(check_verdicts(frame))
            list(study_groups(tally, check_gold(gold), StudyOptions(n_resamples=resamples, alpha=0.1), rng=1))

        return work

    def fit_of(n_items: int) -> Callable[[], Any]:
        i, j, counts = round_robin(n_items, 1)
        return lambda: fit_bradley_terry(i, j, counts[0])

    k = 1 if quick else 4
    axes = {
        "items (BT fit, round robin)": ([50 * k, 100 * k, 200 * k, 400 * k], fit_of),
        "pairs": ([500 * k, 1_000 * k, 2_000 * k, 4_000 * k], lambda n: audit_of(200, n, 2, 1, 200)),
        "runs": ([2, 4, 8, 16], lambda n: audit_of(60, 400 * k, n, 1, 200)),
        "resamples": ([250 * k, 500 * k, 1_000 * k, 2_000 * k], lambda n: audit_of(60, 1_000, 2, 1, n)),
        "judges": ([1, 2, 4, 8], lambda n: audit_of(60, 400 * k, 2, n, 200)),
    }
    figure, panels = plt.subplots(1, len(axes), figsize=(3.1 * len(axes), 3.1), sharey=False)
    exponents = {}
    middles: list[float] = []
    reach = 1.0
    for panel, (label, (sizes, build)) in zip(panels, axes.items(), strict=True):
        seconds = []
        for size in sizes:
            work = build(size)
            work()
            seconds.append(min(_timed(work) for _ in range(3)))
        exponents[label] = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        panel.loglog(sizes, seconds, "o-")
        panel.set_title(f"{label}\nexponent {exponents[label]:.2f}", fontsize=9)
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=7)
        middles.append(float(np.sqrt(min(seconds) * max(seconds))))
        reach = max(reach, 1.3 * max(seconds) / middles[-1])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    for panel, middle in zip(panels, middles, strict=True):
        # The same number of decades in every panel, so that slopes can be compared by eye.
        panel.set_ylim(middle / reach, middle * reach)
    panels[0].set_ylabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    return exponents


def _timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


# --- the table ----------------------------------------------------------------------------------------------


def report(rows: list[Row], rounds: int) -> str:
    """The table as Markdown."""
    lines = [
        "# Benchmark",
        "",
        f"{_machine()}. Python {platform.python_version()}; {_versions()}. "
        f"Medians of {rounds} interleaved rounds after one that checks that all give the same answer, in each of which "
        "everyone warms up (if that takes less than 5 s) and is called until 0.2 s have passed; peak memory of a process of "
        "its own, imports and data included. `x`: time by that of the first line.",
        "",
        "| workload | target | who | time | x | peak memory | difference | |",
        "| :-- | :-- | :-- | --: | --: | --: | --: | :-- |",
    ]
    last = ""
    for row in rows:
        title, target = (row.workload, row.target) if row.workload != last else ("", "")
        last = row.workload
        difference = "" if np.isnan(row.difference) else f"{row.difference:.1e}"
        memory = "" if np.isnan(row.megabytes) else f"{row.megabytes:,.0f} MB"
        lines.append(
            f"| {title} | {target} | {row.name} | {_seconds(row.seconds)} | {row.ratio:.2g} | {memory} | {difference} | {row.note} |"
        )
    return "\n".join(lines) + "\n"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1e3 * value:.3g} ms"
    return f"{value:,.3g} s" if value < 100 else f"{value:,.0f} s"


def _machine() -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return f"{os.cpu_count()} cores, {model}, {platform.system()}"


def _versions() -> str:
    found = []
    for peer in PEERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{peer} {importlib.metadata.version(peer)}")
    return ", ".join(found)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default: 5)")
    parser.add_argument(
        "--output", type=Path, help="Markdown file (default: benchmarks/results.md, or - if quick)"
    )
    parser.add_argument(
        "--scaling", type=Path, metavar="PNG", help="plot how cost grows, instead of the table"
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; choose from {', '.join(WORKLOADS)}")
    if args.one:
        run_alone(*args.one, args.quick)
        return 0
    if args.scaling:
        for label, exponent in scaling(args.scaling, args.quick).items():
            print(f"{label}: cost grows as size^{exponent:.2f}")
        return 0
    if args.rows:
        with contextlib.redirect_stdout(sys.stderr):
            rows = measure(args.workloads[0], args.quick, args.rounds)
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    rows = [
        row for name in args.workloads or WORKLOADS for row in measure_apart(name, args.quick, args.rounds)
    ]
    text = report(rows, args.rounds)
    output = args.output or (None if args.quick or args.workloads else ROOT / "benchmarks" / "results.md")
    if output is None or str(output) == "-":
        print(text)
    else:
        output.parent.mkdir(exist_ok=True)
        output.write_text(text, encoding="utf-8")
        print(f"written to {output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
