"""Pictures of simulated judges: rho falls while T stands still, twins, and what calls buy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rank.exceptions import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simulate.planning import Plan
    from simulate.sweep import Sweep
    from simulate.twins import Twins

_RHO, _T, _HUMAN = "#1f4e79", "#c55a11", "#7f7f7f"
_CLOSE, _FAR = _RHO, _T

#: Bars of the picture of twins: tenths of the pairs by gap.
_TENTHS = 10


def plot_sweep(rows: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw rho against q with its band, T beside it, and the human ranking as the attainable reference.

    Parameters
    ----------
    rows : sequence of mappings
        Rows of a `simulate.sweep.Sweep`. Where T is undefined (one run), its upper bound A - phi/2 is drawn.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        When there is no row.
    """
    if not rows:
        raise InputError("there is no row to draw")
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6, 4.2), layout="constrained").add_subplot()
    ordered = sorted(rows, key=lambda row: float(row["q"]))

    def values(name: str) -> np.ndarray:
        return np.array([row[name] for row in ordered], dtype=float)

    q, rho, trusted = values("q"), values("spearman"), values("trustworthy_rate")
    low, high = values("spearman_low"), values("spearman_high")
    label = "T"
    if np.isnan(trusted).all():
        trusted, label = values("trustworthy_rate_upper"), "T at most (one run: A - phi/2)"
    if len(q) > 1:
        ax.fill_between(q, low, high, color=_RHO, alpha=0.18, linewidth=0)
    else:
        ax.errorbar(q, rho, yerr=[rho - low, high - rho], color=_RHO, capsize=4)
    ax.axhline(
        float(np.mean(values("human_spearman"))),
        color=_HUMAN,
        linestyle=":",
        linewidth=1.5,
        label="human votes against theta",
    )
    ax.plot(q, rho, "o-", color=_RHO, linewidth=2, label="rho of the judge")
    ax.plot(q, trusted, "s--", color=_T, linewidth=2, markersize=5, label=label)
    ax.axhline(0, color="black", linewidth=0.6)
    bottom = min(0.0, float(np.nanmin([*low, *rho, *trusted, 0.0])))
    ax.set_ylim(bottom * 1.08 if bottom < 0 else 0.0, 1.05)
    if len(q) <= 9:
        ax.set_xticks(q, [f"{value:g}" for value in q])
    ax.set_xlabel("q: where errors fall")
    ax.set_ylabel("rank correlation rho, rate T")
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="best")
    return ax


def save_sweep_plot(result: Sweep, path: str) -> None:
    """Write a sweep to a picture file (format from the suffix)."""
    from matplotlib.figure import Figure

    from difficulty.plotting import save_figure
    from simulate.judges import SCALES

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = plot_sweep(result.rows, ax=figure.add_subplot())
    asked = result.settings
    ax.set_xlabel(f"q: where errors fall ({SCALES[asked['scheme']]})")
    row = result.rows[0]
    rates = f"phi = {row['flip_rate']:.2f}, A = {row['accuracy']:.2f}"
    if asked["runs"] >= 2:
        rates = f"C = {row['repeatability']:.2f}, {rates}"
    ax.set_title(f"Judges with {rates} ({asked['n_items']} items, {asked['n_pairs']:,} pairs)", fontsize=10.5)
    save_figure(figure, path)


def plot_twin_errors(twins: Twins, *, ax: Axes | None = None) -> Axes:
    """Draw which share of the pairs each twin gets wrong, and which flip in both, by tenth of the gap.

    Parameters
    ----------
    twins : Twins
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax)
    people = twins.population
    tenth = np.minimum((people.gap_rank * _TENTHS).astype(int), _TENTHS - 1)
    number = np.maximum(np.bincount(tenth, minlength=_TENTHS), 1)

    def share(marked: np.ndarray) -> np.ndarray:
        return np.bincount(tenth, marked, _TENTHS) / number

    x = np.arange(_TENTHS)
    ax.bar(x, share(twins.close.undecided), color="#d0d0d0", width=0.85, label="flips (both twins)")
    for answer, colour, marker in ((twins.close, _CLOSE, "o"), (twins.far, _FAR, "s")):
        label = f"errors at q = {answer.q:g}"
        ax.plot(x, share(answer.errors), marker + "-", color=colour, linewidth=2, markersize=5, label=label)
    ax.set_ylim(0, 1.34)
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.set_xticks([0, _TENTHS - 1], ["closest tenth", "farthest tenth"])
    ax.set_xlabel("pairs by gold gap")
    ax.set_ylabel("share of the pairs")
    ax.legend(frameon=False, fontsize=8.5, loc="upper center")
    return _plain(ax)


def plot_twin_ranks(twins: Twins, *, ax: Axes | None = None) -> Axes:
    """Draw the rank that each twin gives an item against its gold rank (1 is the best).

    Parameters
    ----------
    twins : Twins
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    from rank.recovery import midranks
    from simulate.twins import judged_values

    ax = _axes(ax)
    gold = midranks(-twins.population.theta)
    n = len(gold)
    ax.plot([1, n], [1, n], color="black", linewidth=0.8, linestyle=":")
    size = float(np.clip(2400 / n, 5, 40))
    for answer, row, colour, marker in (
        (twins.far, twins.rows[1], _FAR, "s"), (twins.close, twins.rows[0], _CLOSE, "o"),
    ):  # fmt: skip
        label = f"q = {answer.q:g}: rho = {row['spearman']:.2f}"
        rank = midranks(-judged_values(answer))
        ax.scatter(gold, rank, s=size, color=colour, marker=marker, alpha=0.65, linewidths=0, label=label)
    ax.set_xlabel("gold rank")
    ax.set_ylabel("rank by the judge")
    ax.set_xlim(0.5 - 0.02 * n, n * 1.02 + 0.5)
    # Room for the legend above the points.
    ax.set_ylim(0.5 - 0.02 * n, n * 1.22)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8.5, loc="upper center", ncols=2,
              columnspacing=1, handletextpad=0.2)  # fmt: skip
    return _plain(ax)


def plot_twin_rates(twins: Twins, *, ax: Axes | None = None) -> Axes:
    """Draw C, phi, A and T of both twins, which are equal, beside rho, which is not.

    Parameters
    ----------
    twins : Twins
        With one run, C is left out and T is its upper bound.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax)
    names = {
        "repeatability": "C",
        "flip_rate": "phi",
        "accuracy": "A",
        "trustworthy_rate": "T",
        "spearman": "rho",
    }
    if twins.settings["runs"] < 2:
        names = {
            "flip_rate": "phi",
            "accuracy": "A",
            "trustworthy_rate_upper": "T at\nmost",
            "spearman": "rho",
        }
    x = np.arange(len(names), dtype=float)
    x[-1] += 0.35
    ax.axhline(0, color="black", linewidth=0.6)
    values = np.array([[row[name] for name in names] for row in twins.rows], dtype=float)
    for row, height, colour, side in zip(twins.rows, values, (_CLOSE, _FAR), (-0.21, 0.21)):
        ax.bar(x + side, height, width=0.4, color=colour, label=f"q = {row['q']:g}")
    # One number for a rate that both share, two for rho.
    marks = [(place, value, f"{value:.3f}") for place, value in zip(x[:-1], values[0])]
    marks += [(x[-1] + side, value, f"{value:.2f}") for side, value in zip((-0.21, 0.21), values[:, -1])]
    for place, value, text in marks:
        if value == value:
            up = value >= 0
            ax.annotate(
                text, (place, value), (0, 2 if up else -2), textcoords="offset points", ha="center",
                va="bottom" if up else "top", fontsize=9,
            )  # fmt: skip
    ax.axvline(float(x[-2:].mean()), color="black", linewidth=0.6, linestyle=":")
    ax.set_xticks(x, list(names.values()))
    lowest = min(0.0, float(np.nanmin([row["spearman"] for row in twins.rows] + [0.0])))
    ax.set_ylim(lowest * 1.15 - (0.06 if lowest < 0 else 0), 1.1)
    ax.set_ylabel("rate, rank correlation")
    return _plain(ax)


def save_twins_plot(twins: Twins, path: str) -> None:
    """Write where errors fall, both rankings and the rates to one picture file (format from the suffix)."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from difficulty.plotting import save_figure

    figure = Figure(figsize=(12.2, 4.0), layout=ConstrainedLayoutEngine(w_pad=0.12))
    axes = figure.subplots(1, 3, width_ratios=[1.05, 1.1, 1.15])
    plot_twin_errors(twins, ax=axes[0]).set_title("The errors fall on other pairs,", fontsize=10.5)
    plot_twin_ranks(twins, ax=axes[1]).set_title("so the rankings differ,", fontsize=10.5)
    plot_twin_rates(twins, ax=axes[2]).set_title("but only rho shows it", fontsize=10.5)
    save_figure(figure, path)


def plot_plan(plan: Plan, *, ax: Axes | None = None) -> Axes:
    """Draw rho against the number of calls, a line per number of orders and runs, with target and chosen design.

    Parameters
    ----------
    plan : Plan
        Points are means over repetitions; the whisker reaches down to the rho that is reached with the asked
        probability, so that a design does what is asked when its whisker ends above the line of the target. Hollow
        points have more contexts than the file that was resampled.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    import matplotlib

    ax = _axes(ax)
    runs = sorted({row["runs"] for row in plan.rows})
    contexts = plan.settings.get("n_contexts", np.inf)
    shades = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.8, len(runs)))
    for orders, line, marker in ((1, ":", "o"), (2, "-", "s")):
        for number, colour in zip(runs, shades):
            rows = [row for row in plan.rows if row["orders"] == orders and row["runs"] == number]
            if not rows:
                continue
            calls, rho, least = (
                np.array([row[name] for row in rows], dtype=float)
                for name in ("calls", "spearman", "spearman_assured")
            )
            label = (
                f"{'both orders' if orders == 2 else 'one order'}, {number} run{'s' if number > 1 else ''}"
            )
            ax.plot(calls, rho, line, marker=marker, color=colour, markersize=4, linewidth=1.5, label=label)
            beyond = np.array([row.get("n_contexts", 0) > contexts for row in rows])
            ax.plot(
                calls[beyond], rho[beyond], marker, color=colour, markersize=4.5, markerfacecolor="white", linestyle="none",
                zorder=4,
            )  # fmt: skip
            ax.vlines(calls, np.fmin(least, rho), rho, color=colour, linewidth=1, alpha=0.7)
    target, probability = plan.settings["target"], plan.settings["probability"]
    ax.axhline(target, color=_T, linewidth=1.2, linestyle="--", label=f"target {target:g}")
    if plan.chosen:
        row = plan.chosen
        ax.plot(
            [row["calls"]], [row["spearman"]], "*", color=_T, markersize=17, markeredgecolor="white", zorder=5,
            linestyle="none", label=f"cheapest: {row['calls']:,} calls",
        )  # fmt: skip
    if any(row.get("n_contexts", 0) > contexts for row in plan.rows):
        ax.plot(
            [], [], "o", color=_HUMAN, markersize=4.5, markerfacecolor="white", label=f"hollow: more than {contexts} contexts"
        )  # fmt: skip
    _plain_log(ax, [row["calls"] for row in plan.rows])
    ax.set_xlabel("calls = pairs x orders x runs")
    ax.set_ylabel(f"rho: mean, and what is reached with probability {probability:g}")
    seen = [value for r in plan.rows for value in (r["spearman_assured"], r["spearman"]) if value == value]
    ax.set_ylim(min([target, *seen]) - 0.05, 1.02)
    ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _plain(ax)


def _plain_log(ax: Axes, values: Sequence[float]) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2 and 5 times powers of ten (the powers over long ranges)."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = max(min(values), 1), max(values)
    steps = (1.0,) if high / low > 3e3 else (1.0, 2.0, 5.0) if high / low > 8 else tuple(np.arange(1.0, 10.0))
    ax.xaxis.set_major_locator(LogLocator(base=10.0, subs=steps, numticks=50))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def save_plan_plot(plan: Plan, path: str) -> None:
    """Write rho against calls to a picture file (format from the suffix)."""
    from matplotlib.figure import Figure

    from difficulty.plotting import save_figure

    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    asked = plan.settings
    ax = plot_plan(plan, ax=figure.add_subplot())
    if "n_contexts" in asked:
        title = (
            f"What calls buy: {asked['label']}\n{asked['n_items']} items, contexts drawn from the {asked['n_contexts']:,} of "
            "the file"
        )
    else:
        rates = f"phi = {asked['flip_rate']:.2f}, A = {asked['agreement']:.2f}, q = {asked['q']:.2g}"
        if asked["runs"] >= 2:
            rates = f"C = {asked['repeatability']:.2f}, {rates}"
        title = f"What calls buy from a judge with {rates} ({asked['n_items']} items)"
    ax.set_title(title, fontsize=10.5)
    save_figure(figure, path)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(5, 4), layout="constrained").add_subplot()


def _plain(ax: Axes) -> Axes:
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
