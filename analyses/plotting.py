"""Pictures of the studies; each takes a result, not data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import matplotlib
import numpy as np

from difficulty.plotting import save_figure
from rank.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

    from analyses.audit import Audit
    from analyses.proxies import ProxyStudy

_MOST_NAMES = 24
_MOST_BARS = 60
_MARKERS = "osD^v"
_APART = 7.0  # points
_METRIC_NAMES = {"trustworthy_rate": "T", "trustworthy_rate_upper": "T at most"}


def _new_axes(width: float = 6.5, height: float = 4.8) -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def _colours(n: int) -> list[tuple[float, float, float]]:
    palette = matplotlib.colormaps["tab10"].colors  # type: ignore[attr-defined]
    return [palette[k % len(palette)] for k in range(n)]


def _shifted(ax: Axes, points: float) -> Transform:
    """Data coordinates, moved up by some points."""
    from matplotlib.transforms import offset_copy

    return offset_copy(ax.transData, fig=ax.get_figure(root=True), y=points, units="points")


def _tidy(ax: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    ax.grid(axis=grid, alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plot_audit(audit: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw rho against T, a labelled point with its intervals per group.

    Parameters
    ----------
    audit : Audit
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        Where no group has both T (or its upper bound) and rho.
    """
    t, rho = audit.trustworthy, "spearman"
    shown = audit.rows[audit.rows[t].notna() & audit.rows[rho].notna()].sort_values(t, ascending=False)
    if shown.empty:
        raise InputError("there is no picture of T against rho: no group has both; item gold gives rho")
    ax = _new_axes(8.5, 4.8) if ax is None else ax
    columns = ([] if audit.compared == "group" else ["judge"]) + list(audit.strata)
    if audit.compared == "group":
        names = [f"{name}" for name in shown.iloc[:, : audit.n_labels].astype(str).agg(" / ".join, axis=1)]
    else:
        varying = [name for name in columns if audit.rows[name].nunique() > 1] or columns[:1]
        names = [" / ".join(map(str, row)) for row in shown[varying].to_numpy()]
    named = len(shown) <= _MOST_NAMES
    bars = [
        np.stack([shown[m] - shown[f"{m}_low"], shown[f"{m}_high"] - shown[m]]).clip(min=0) for m in (t, rho)
    ]
    # Groups with the same rho are drawn one below the other, a few points apart, or their bars would coincide.
    value = shown[rho].round(9)
    place, size = value.groupby(value).cumcount(), value.groupby(value).transform("size")
    shift = _APART * ((size - 1) / 2 - place).to_numpy()
    for k, colour in enumerate(_colours(len(shown))):
        ax.errorbar(
            shown[t].iloc[k], shown[rho].iloc[k], xerr=bars[0][:, [k]], yerr=bars[1][:, [k]],
            fmt=_MARKERS[k // 10 % len(_MARKERS)], color=colour, capsize=2, elinewidth=0.9, markersize=5, alpha=0.85,
            label=names[k] if named else None, transform=_shifted(ax, shift[k]),
        )  # fmt: skip
    # Shifted artists do not move the limits by themselves.
    for metric, margin, set_limits in ((t, 0.05, ax.set_xlim), (rho, 0.18, ax.set_ylim)):
        ends = shown[[metric, f"{metric}_low", f"{metric}_high"]].to_numpy(dtype=float)
        low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
        room = margin * max(high - low, 0.1)
        set_limits(low - room, high + room)
    ax.set_yticks([tick for tick in ax.get_yticks() if ax.get_ylim()[0] <= tick <= 1 + 1e-9])
    if shift.any():
        ax.set_ylabel("rho with the gold ranking (equal values set apart)")
    else:
        ax.set_ylabel("rho with the gold ranking")
    if named:
        ax.legend(
            title="in the order of T", loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8,
            title_fontsize=8, frameon=False,
        )  # fmt: skip
    ax.set_xlabel(
        "trustworthy rate T" if t == "trustworthy_rate" else "T at most (perfect repeatability assumed)"
    )
    ax.set_title("Trustworthy rate and recovered ranking, with intervals", fontsize=11)
    _tidy(ax)
    return ax


def save_plot(ax: Axes, path: str) -> None:
    """Write the picture that holds an axes (format from the suffix)."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    save_figure(figure, path)


def plot_dispersion(
    dispersion: pd.DataFrame,
    *,
    role: str = "format",
    metric: str = "trustworthy_rate",
    ax: Axes | None = None,
) -> Axes:
    """Draw the range of a metric over formats, a bar from min to max per judge and dataset.

    Parameters
    ----------
    dispersion : DataFrame
        From `analyses.cells.format_dispersion`.
    role, metric : str
        Names for the axes.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        Where no dispersion is defined, or there are too many rows to tell apart.
    """
    shown = dispersion[dispersion["dispersion"].notna()].sort_values("dispersion", kind="stable")
    if shown.empty:
        raise InputError(f"there is no dispersion to draw: no cell has two {role}s")
    if len(shown) > _MOST_BARS:
        raise InputError(f"{len(shown)} rows are too many for one picture; choose fewer with --by")
    labels = list(dispersion.columns[: list(dispersion.columns).index("n_formats")])
    varying = [name for name in labels if shown[name].nunique() > 1] or labels[:1]
    names = [" / ".join(map(str, row)) or "all" for row in shown[varying].to_numpy()]
    if ax is None:
        ax = _new_axes(6.5 + 0.065 * max(map(len, names)), 1.4 + 0.3 * len(shown))
    y = np.arange(len(shown))
    low, high = shown["min"].to_numpy(dtype=float), shown["max"].to_numpy(dtype=float)
    ax.hlines(y, low, high, color="tab:blue", linewidth=2)
    ax.plot(low, y, "o", color="tab:blue", markersize=4)
    ax.plot(high, y, "o", color="tab:blue", markersize=4)
    for k, (worst, best) in enumerate(zip(shown["format_min"], shown["format_max"], strict=True)):
        ax.annotate(
            _short(worst), (low[k], y[k]), xytext=(-5, 0), textcoords="offset points", ha="right", va="center",
            fontsize=7,
        )  # fmt: skip
        ax.annotate(
            _short(best), (high[k], y[k]), xytext=(5, 0), textcoords="offset points", ha="left", va="center", fontsize=7
        )  # fmt: skip
    ax.set_yticks(y, names, fontsize=8)
    # Room for the names at either end, so that they stay clear of the labels of the axis.
    start, end = min(0.0, float(low.min())), max(1.0, float(high.max()))
    width = 0.017 * (end - start)
    for k in range(len(shown)):
        start = min(start, low[k] - width * (1 + len(_short(shown["format_min"].iloc[k]))))
        end = max(end, high[k] + width * (1 + len(_short(shown["format_max"].iloc[k]))))
    ax.set_xlim(start, end)
    ax.set_xticks([tick for tick in np.linspace(-1, 1, 11).round(1) if min(0.0, low.min()) - 0.1 < tick])
    words = _METRIC_NAMES.get(metric, metric.replace("_", " "))
    ax.set_xlabel(words)
    ax.set_title(f"{words} when only the {role} changes", fontsize=11)
    _tidy(ax, "x")
    return ax


def _short(text: str, most: int = 18) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def plot_proxy(study: ProxyStudy, proxy: str, *, ax: Axes | None = None) -> Axes:
    """Draw rho against one proxy, a point per judge and corpus, a colour per corpus.

    Parameters
    ----------
    study : ProxyStudy
    proxy : str
        A proxy of the study.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    from analyses.proxies import OPTIONAL_PROXIES, PROXIES

    ax = _new_axes(4.5, 3.8) if ax is None else ax
    points = study.points[study.points["spearman"].notna() & study.points[proxy].notna()]
    corpora = sorted(points["dataset"].astype(str).unique()) if "dataset" in points else [""]
    for corpus, colour in zip(corpora, _colours(len(corpora)), strict=True):
        part = points[points["dataset"].astype(str) == corpus] if "dataset" in points else points
        ax.plot(
            part[proxy], part["spearman"], _MARKERS[corpora.index(corpus) % len(_MARKERS)], color=colour, alpha=0.85,
            markersize=5, label=corpus or None,
        )  # fmt: skip
    row = study.table[study.table["proxy"] == proxy].iloc[0]
    words = {**PROXIES, **OPTIONAL_PROXIES}.get(proxy, proxy)
    if row["spearman"] == row["spearman"]:
        p = "p < 0.001" if row["p_holm"] < 0.001 else f"p = {row['p_holm']:.3f}"
        ax.set_title(f"{row['spearman']:+.2f}, Holm {p}", fontsize=10)
    else:
        ax.set_title("undefined", fontsize=10)
    ax.set_xlabel(words, fontsize=9)
    ax.set_ylabel("rho", fontsize=9)
    ax.tick_params(labelsize=8)
    _tidy(ax)
    return ax


def save_proxy_plot(study: ProxyStudy, path: str) -> None:
    """Write a picture with one panel per proxy (format from the suffix)."""
    from matplotlib.figure import Figure

    names = list(study.table["proxy"])
    n_columns = min(3, len(names))
    n_rows = -(-len(names) // n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 3.1 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    for ax, name in zip(axes, names):
        plot_proxy(study, name, ax=ax)
    for ax in axes[len(names) :]:
        ax.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False, fontsize=9
        )
    figure.suptitle(f"Spearman correlation of each proxy with rho ({study.n_points} points)", fontsize=11)
    save_figure(figure, path)
