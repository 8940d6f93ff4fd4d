"""Pictures of sweeps: rho falls while T stands still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rank.exceptions import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simulate.sweep import Sweep

_RHO, _T, _HUMAN = "#1f4e79", "#c55a11", "#7f7f7f"


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

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = plot_sweep(result.rows, ax=figure.add_subplot())
    asked = result.settings
    ends = {
        "weight": "q: where errors fall (-1 close pairs, 0 anywhere, 1 far pairs)",
        "spread": "q: where errors fall (0 near ties, 1 anywhere)",
        "mixture": "q: where errors fall (-1 closer half, 0 anywhere, 1 farther half)",
    }
    ax.set_xlabel(ends[asked["scheme"]])
    row = result.rows[0]
    rates = f"phi = {row['flip_rate']:.2f}, A = {row['accuracy']:.2f}"
    if asked["runs"] >= 2:
        rates = f"C = {row['repeatability']:.2f}, {rates}"
    ax.set_title(f"Judges with {rates} ({asked['n_items']} items, {asked['n_pairs']:,} pairs)", fontsize=10.5)
    save_figure(figure, path)
