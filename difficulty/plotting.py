"""Pictures of difficulty: what a judge does on close and on far pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
import matplotlib.text
import numpy as np

from difficulty.study import GroupStudy
from rank.exceptions import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = {"swap_consistency": "swap consistency (1 - phi)", "accuracy": "accuracy A"}
_MOST_GROUPS = 10


def plot_buckets(
    studies: Sequence[GroupStudy], metric: str = "swap_consistency", *, ax: Axes | None = None
) -> Axes:
    """Draw one metric by gap bucket, a line per group with its intervals.

    Parameters
    ----------
    studies : sequence of GroupStudy
        Groups without buckets are skipped; more than ten are refused.
    metric : str
        A key of `difficulty.reliability.METRICS`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        Where no group has buckets, or there are too many to tell apart.
    """
    shown = [study for study in studies if study.profile.buckets is not None]
    if not shown:
        reasons = sorted({study.profile.reason for study in studies})
        raise InputError(f"there are no gap buckets to draw: {'; '.join(reasons)}")
    if len(shown) > _MOST_GROUPS:
        raise InputError(f"{len(shown)} groups are too many for one picture; choose fewer with --by")
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(5, 4), layout="constrained").add_subplot()
    most = max(len(study.profile.buckets.names) for study in shown if study.profile.buckets)
    colours = matplotlib.colormaps["tab10"].colors  # type: ignore[attr-defined]
    for index, study in enumerate(shown):
        table, buckets = study.profile.by_bucket, study.profile.buckets
        if table is None or buckets is None:
            continue
        n = len(buckets.names)
        x = np.linspace(0, most - 1, n) + (index - (len(shown) - 1) / 2) * 0.08
        y, low, high = table.estimate[metric], table.low[metric], table.high[metric]
        ax.errorbar(
            x, y, yerr=np.stack([y - low, high - y]), fmt="o-", color=colours[index], capsize=3, label=study.name, linewidth=1.5
        )  # fmt: skip
        if study.profile.reference is not None:
            expected = getattr(study.profile.reference, f"expected_{metric}", None)
            if expected is not None:
                label = "calibrated judge" if index == 0 else None
                ax.plot(x, expected[:-1], "--", color=colours[index], linewidth=1, label=label)
    names = next(
        study.profile.buckets.names
        for study in shown
        if study.profile.buckets and len(study.profile.buckets.names) == most
    )
    ax.set_xticks(range(most), names)
    ax.set_xlabel("bucket of the gold gap")
    ax.set_ylabel(_PANELS.get(metric, metric.replace("_", " ")))
    ax.set_ylim(0, 1.02)
    ax.grid(axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def save_bucket_plot(studies: Sequence[GroupStudy], path: str) -> None:
    """Write swap consistency and accuracy by gap bucket to a picture file (format from the suffix)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, metric in zip(axes, _PANELS, strict=True):
        plot_buckets(studies, metric, ax=ax)
    handles, labels = axes[0].get_legend_handles_labels()
    if len(labels) > 1 or studies[0].labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), frameon=False)
    level = f"{studies[0].options.level:.0%}"
    figure.suptitle(f"Close against far pairs (bars: {level} intervals)", fontsize=11)
    save_figure(figure, path)


def save_figure(figure: matplotlib.figure.Figure, path: str) -> None:
    """Write a figure, or refuse with the formats that are possible."""
    suffix = str(path).rsplit(".", 1)[-1].lower() if "." in str(path) else ""
    formats = figure.canvas.get_supported_filetypes()
    if suffix not in formats:
        raise InputError(
            f"{path}: pictures can be written as {', '.join(sorted(formats))}; give the file one of these suffixes"
        )
    for text in figure.findobj(matplotlib.text.Text):
        if "$" in text.get_text():  # a name, not a formula
            text.set_parse_math(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name another file") from None
