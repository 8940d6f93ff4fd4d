"""Variance components against mean squares, a dense likelihood, statsmodels, and known truths."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses import gstudy
from analyses.gstudy import COMPONENTS, d_study, g_study, g_study_of_tally
from rank.exceptions import InputError
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts

TRUTH = np.array([0.5, 0.3, 0.25, 0.2, 0.3, 0.2, 0.25, 0.6])  # standard deviations


def grid(pairs, judges, formats, orders, runs):
    axes = np.meshgrid(*[np.arange(n) for n in (pairs, judges, formats, orders, runs)], indexing="ij")
    return [axis.ravel() for axis in axes[:4]]


def simulate(facets, rng, sd=TRUTH):
    """Gaussian responses with known components."""
    level = [facets[0], facets[1], facets[2], facets[3]]
    level += [facets[0] * 1000 + facets[k] for k in (1, 2, 3)] + [np.arange(facets[0].size)]
    y = np.zeros(facets[0].size)
    for codes, scale in zip(level, sd, strict=True):
        _, code = np.unique(codes, return_inverse=True)
        y += scale * rng.normal(size=code.max() + 1)[code]
    return y


def unbalanced(rng, shape=(8, 3, 3, 2, 2), share=0.7):
    facets = grid(*shape)
    keep = rng.random(facets[0].size) < share
    keep[:2] = True
    facets = [facet[keep] for facet in facets]
    return facets, simulate(facets, rng)


def structures(facets):
    """Dense covariance structures K of the eight components."""
    pair = facets[0] * 1000
    level = [facets[0], *facets[1:], pair + facets[1], pair + facets[2], pair + facets[3]]
    return [(code[:, None] == code).astype(float) for code in level] + [np.eye(facets[0].size)]


def dense_criterion(theta, kernels, y):
    """-2 restricted log-likelihood, written down with n x n matrices."""
    v = sum(t * k for t, k in zip(theta, kernels, strict=True))
    one = np.ones(y.size)
    inverse = np.linalg.inv(v)
    information = one @ inverse @ one
    p = inverse - np.outer(inverse @ one, one @ inverse) / information
    return np.linalg.slogdet(v)[1] + math.log(information) + y @ p @ y


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_likelihood_and_gradient_equal_the_dense_ones(seed):
    rng = np.random.default_rng(seed)
    facets, y = unbalanced(rng)
    data = gstudy._data_iv(*facets, y, None, "none")
    likelihood = gstudy._likelihood(data, list(range(8)))
    theta = rng.uniform(0.05, 1, size=8)
    if seed == 2:
        theta[[0, 3, 5]] = 0.0
    value, gradient, mean = likelihood.evaluate(theta)
    kernels = structures(facets)
    np.testing.assert_allclose(value, dense_criterion(theta, kernels, y), rtol=1e-10)
    for k in range(8):
        step = 1e-5 * np.eye(8)[k]
        numeric = (
            dense_criterion(theta + step, kernels, y) - dense_criterion(theta - step, kernels, y)
        ) / 2e-5
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-5, atol=1e-6)
    weight = np.linalg.solve(sum(t * k for t, k in zip(theta, kernels, strict=True)), np.ones(y.size))
    np.testing.assert_allclose(mean + data.mean, weight @ y / weight.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("shape", "runs"), [((12, 4, 3, 2), 2), ((10, 3, 1, 2), 3), ((15, 1, 4, 1), 2), ((9, 2, 2, 2), 1)]
)
def test_balanced_tables_equal_mean_square_estimators_from_statsmodels(shape, runs):
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    rng = np.random.default_rng(sum(shape) + 3)
    facets = grid(*shape, runs)
    y = simulate(facets, rng)
    names = ["pair", "judge", "format", "order"]
    frame = pd.DataFrame(dict(zip(names, facets, strict=True))).assign(y=y)
    free = [name for name, n in zip(names, shape, strict=True) if n > 1]
    terms = [f"C({name})" for name in free] + [f"C(pair):C({name})" for name in free[1:]]
    table = anova_lm(smf.ols("y ~ " + " + ".join(terms), frame).fit())
    ms = table["mean_sq"]
    size = dict(zip(names, shape, strict=True))
    n = y.size
    expected = {"residual": ms["Residual"]}
    for name in free[1:]:
        cross = ms[f"C(pair):C({name})"]
        expected[f"pair:{name}"] = (cross - ms["Residual"]) / (n / (size["pair"] * size[name]))
        expected[name] = (ms[f"C({name})"] - cross) / (n / size[name])
    rest = sum(ms[f"C(pair):C({name})"] - ms["Residual"] for name in free[1:]) + ms["Residual"]
    expected["pair"] = (ms["C(pair)"] - rest) / (n / size["pair"])
    found = g_study(*facets, y)
    assert found.balanced
    for k, name in enumerate(COMPONENTS):
        np.testing.assert_allclose(found.anova[k], expected.get(name, math.nan), rtol=1e-8)
    if min(expected.values()) >= 0:
        assert found.method == "anova"
        np.testing.assert_array_equal(found.variance, found.anova)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_optimiser_reaches_the_closed_form_of_a_balanced_table(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    facets = grid(20, 6, 5, 3, 2)
    y = simulate(facets, rng)
    closed = g_study(*facets, y)
    assert closed.method == "anova"
    monkeypatch.setattr(gstudy, "_anova", lambda data, kept, level: np.full(8, -1.0))
    searched = g_study(*facets, y)
    assert searched.method == "reml"
    assert searched.converged
    np.testing.assert_allclose(searched.variance, closed.variance, rtol=1e-6)
    np.testing.assert_allclose(searched.log_likelihood, closed.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 4])
def test_unbalanced_table_equals_statsmodels_mixedlm(seed):
    import warnings

    import statsmodels.formula.api as smf

    rng = np.random.default_rng(seed)
    facets = grid(12, 4, 1, 2, 2)
    keep = rng.random(facets[0].size) < 0.8
    facets = [facet[keep] for facet in facets]
    y = simulate(facets, rng, np.array([0.8, 0.6, 0, 0.5, 0.6, 0, 0.5, 0.5]))
    frame = pd.DataFrame(dict(zip(["pair", "judge", "format", "order"], facets, strict=True))).assign(
        y=y, all=1
    )
    parts = {
        "pair": "0 + C(pair)",
        "judge": "0 + C(judge)",
        "order": "0 + C(order)",
        "pair:judge": "0 + C(pair):C(judge)",
        "pair:order": "0 + C(pair):C(order)",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels comments on its own optimiser
        other = smf.mixedlm("y ~ 1", frame, groups="all", re_formula="0", vc_formula=parts).fit(
            reml=True, method=["lbfgs", "powell"]
        )
    found = g_study(*facets, y)
    assert found.converged
    theirs = dict(zip(other.model.exog_vc.names, other.vcomp, strict=True))
    for name, value in theirs.items():
        np.testing.assert_allclose(found.variance[COMPONENTS.index(name)], value, rtol=5e-3, atol=2e-4)
    np.testing.assert_allclose(found.variance[-1], other.scale, rtol=2e-3)
    np.testing.assert_allclose(found.mean, other.params["Intercept"], atol=1e-3)
    theta = np.array([theirs.get(name, 0.0) for name in COMPONENTS[:-1]] + [other.scale])
    mine = np.where(np.isnan(found.variance), 0.0, found.variance)
    kernels = structures(facets)
    assert dense_criterion(mine, kernels, y) <= dense_criterion(theta, kernels, y) + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_bound_solutions_satisfy_the_optimality_conditions(seed):
    """Zero components: the likelihood must not rise inwards. Others: it must be level (dense derivatives)."""
    rng = np.random.default_rng(seed)
    facets, _ = unbalanced(rng)
    y = simulate(facets, rng, np.array([0.5, 0, 0, 0, 0, 0.0, 0.3, 1.0]))
    found = g_study(*facets, y)
    assert found.converged
    assert (found.variance >= 0).all()
    assert (found.variance == 0).any()
    kernels = structures(facets)
    v = sum(t * k for t, k in zip(found.variance, kernels, strict=True))
    one = np.ones(y.size)
    inverse = np.linalg.inv(v)
    p = inverse - np.outer(inverse @ one, one @ inverse) / (one @ inverse @ one)
    for t, k in zip(found.variance, kernels, strict=True):
        gradient = np.trace(p @ k) - y @ p @ k @ p @ y
        if t > 0:
            assert abs(gradient) * t < 1e-4
        else:
            assert gradient > -1e-6


def test_balanced_table_shows_the_negative_estimate_next_to_the_constrained_one():
    rng = np.random.default_rng(7)
    facets = grid(15, 3, 3, 2, 1)
    y = simulate(facets, rng, np.array([0.5, 0, 0, 0, 0, 0, 0, 1.0]))
    found = g_study(*facets, y)
    negative = found.anova < 0
    assert negative.any()
    assert found.method == "reml"
    assert (found.variance[negative] == 0).all()
    assert np.isnan(found.std_error[negative]).all()
    np.testing.assert_allclose(found.percent.sum(), 100)


@st.composite
def small_tables(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = [
        draw(st.integers(2, 6)),
        *(draw(st.integers(1, 3)) for _ in range(2)),
        draw(st.integers(1, 2)),
        2,
    ]
    facets, y = unbalanced(rng, shape, draw(st.sampled_from([0.5, 0.9, 1.1])))
    if draw(st.booleans()):
        y = (y > y.mean()).astype(float)
    return facets, y, rng


@settings(deadline=None, max_examples=60)
@given(small_tables())
def test_shares_sum_to_100_and_names_order_and_direction_do_not_matter(table):
    facets, y, rng = table
    found = g_study(*facets, y)
    assert found.converged
    assert (found.variance[~np.isnan(found.variance)] >= 0).all()
    if np.ptp(y) > 0:
        np.testing.assert_allclose(np.nansum(found.percent), 100)
    else:
        assert np.isnan(found.percent).all()
    shuffled = rng.permutation(y.size)
    renamed = [rng.permutation(1000)[facet][shuffled] for facet in facets]
    other = g_study(*renamed, 1 - y[shuffled])
    # Without a residual the likelihood is unbounded, and what remains is only as sharp as rounding allows.
    near, small = (1e-6, 2e-6) if found.variance[-1] > 0 else (1e-4, 1e-4)
    np.testing.assert_allclose(other.variance, found.variance, rtol=near, atol=small * np.var(y))
    np.testing.assert_allclose(other.anova, found.anova, atol=1e-9)
    np.testing.assert_array_equal(np.isnan(other.variance), np.isnan(found.variance))


def test_components_scale_with_the_square_of_the_response():
    facets, y = unbalanced(np.random.default_rng(5))
    np.testing.assert_allclose(
        g_study(*facets, 1000 * y + 7).variance, 1e6 * g_study(*facets, y).variance, rtol=1e-5
    )


def test_counts_are_rows_that_were_never_expanded():
    rng = np.random.default_rng(6)
    facets, y = unbalanced(rng)
    y = (y > 0).astype(float)
    count = rng.integers(0, 5, y.size)
    found = g_study(*facets, y, count=count)
    expanded = g_study(*(np.repeat(facet, count) for facet in facets), np.repeat(y, count))
    np.testing.assert_allclose(found.variance, expanded.variance, rtol=1e-6, atol=1e-12)
    assert found.n_verdicts == expanded.n_verdicts == count.sum()


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.1, 0.75])
def test_known_components_are_recovered_within_their_standard_errors(share):
    rng = np.random.default_rng(11)
    sizes = (40, 8, 6, 4, 2)
    estimates, errors = [], []
    for _ in range(40):
        facets, y = unbalanced(rng, sizes, share)
        found = g_study(*facets, y)
        assert found.converged
        estimates.append(found.variance)
        errors.append(found.std_error)
    estimates, errors = np.array(estimates), np.array(errors)
    spread = estimates.std(axis=0, ddof=1)
    bias = estimates.mean(axis=0) - TRUTH**2
    assert (np.abs(bias) < 3.5 * spread / math.sqrt(len(estimates))).all()
    many = [0, 4, 5, 6, 7]  # components with enough levels for the normal approximation
    typical = np.sqrt(np.nanmean(errors[:, many] ** 2, axis=0))
    np.testing.assert_allclose(typical, spread[many], rtol=0.35)


def test_one_level_facets_drop_out_with_a_note():
    rng = np.random.default_rng(8)
    facets = grid(30, 3, 1, 1, 2)
    found = g_study(*facets, simulate(facets, rng))
    assert np.isnan(found.variance[[2, 3, 5, 6]]).all()
    assert found.reason[2] == "only one format in this table"
    assert any("one order only" in note for note in found.notes)
    np.testing.assert_allclose(np.nansum(found.percent), 100)


def test_one_verdict_per_cell_leaves_the_highest_interaction_in_the_residual():
    rng = np.random.default_rng(9)
    facets = grid(40, 1, 1, 2, 1)
    found = g_study(*facets, simulate(facets, rng))
    assert math.isnan(found.variance[6])
    assert found.reason[6] == "pair:order cannot be told apart from the residual in this table"
    assert found.variance[-1] > 0


def test_two_facets_that_always_change_together_are_reported():
    rng = np.random.default_rng(10)
    pair, judge, _, order = grid(20, 3, 1, 2, 2)
    found = g_study(pair, judge, judge, order, simulate([pair, judge, judge, order], rng))
    assert found.reason[2] == "format cannot be told apart from judge in this table"
    assert found.reason[5] == "pair:format cannot be told apart from pair:judge in this table"
    assert not np.isnan(found.variance[[0, 1, 3, 4, 6, 7]]).any()


@pytest.mark.parametrize(
    "facets",
    [
        ([0, 0], [0, 0], [0, 0], [0, 1]),
        ([0] * 4, [0, 1, 0, 1], [0] * 4, [0, 0, 1, 1]),
        ([0, 1], [0] * 2, [0] * 2, [0] * 2),
    ],
)
def test_tables_too_small_for_most_components_still_have_a_residual(facets):
    y = np.arange(len(facets[0])) % 3 == 0
    found = g_study(*facets, y)
    assert found.variance[-1] > 0
    for k in range(7):
        assert math.isnan(found.variance[k]) == bool(found.reason[k])
    np.testing.assert_allclose(np.nansum(found.percent), 100)


def test_constant_verdicts_have_zero_components_and_undefined_shares():
    facets = grid(4, 2, 2, 2, 2)
    found = g_study(*facets, np.ones(facets[0].size))
    assert np.nansum(found.variance) == 0
    assert np.isnan(found.percent).all()
    assert any("all verdicts are equal" in note for note in found.notes)
    assert math.isnan(d_study(found, n_judges=2, n_formats=1, n_orders=1, n_runs=1).generalizability[0])


@pytest.mark.parametrize("share", [1.1, 0.8])
def test_a_perfect_judge_has_nothing_but_a_pair_component(share):
    rng = np.random.default_rng(12)
    facets, _ = unbalanced(rng, (20, 3, 3, 2, 2), share)
    found = g_study(*facets, facets[0] % 2)
    np.testing.assert_allclose(found.percent[0], 100, atol=1e-3)
    assert found.converged
    assert any("no residual variance" in note for note in found.notes)


def test_a_judge_that_always_answers_first_has_nothing_but_order():
    facets = grid(20, 3, 3, 2, 2)
    found = g_study(*facets, facets[3])
    np.testing.assert_allclose(found.percent[3], 100, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [0], [0], [0], [1.0]), "at least two"),
        (([0, 1], [0], [0, 0], [0, 0], [1.0, 0.0]), "length"),
        (([0, 1], [0, 0], [0, 0], [0, 0], [1.0, math.inf]), "finite"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        g_study(*arguments)


# --- tally layer ---


def make_tally(rng, judges=("a", "b"), formats=("x", "y", "z"), contexts=10, extra=()):
    labels = list(product(judges, formats, *([extra] if extra else [])))
    columns = ["judge", "format", *(["temperature"] if extra else [])]
    rows = list(product(range(len(labels)), range(contexts)))
    counts = rng.integers(0, 4, size=(len(rows), 2, 5)) * [
        1,
        1,
        1,
        1,
        0,
    ]  # single calls: no stated merged results
    return Tally(
        groups=pd.DataFrame(labels, columns=columns),
        contexts=pd.DataFrame({"dataset": "", "context": [str(c) for c in range(contexts)]}),
        items=np.array(["p", "q"], dtype=object),
        group=np.array([g for g, _ in rows]),
        context=np.array([c for _, c in rows]),
        item_i=np.zeros(len(rows), dtype=np.int64),
        item_j=np.ones(len(rows), dtype=np.int64),
        counts=counts,
        has_context=True,
        notes=(),
    )


@pytest.mark.parametrize(("ties", "tie_value"), [("half", 0.5), ("drop", math.nan)])
def test_a_tally_equals_its_calls_row_by_row(ties, tie_value):
    tally = make_tally(np.random.default_rng(1))
    values = [1.0, 0.0, tie_value, math.nan, tie_value]
    rows = []
    for row, order, outcome in product(range(tally.group.size), range(2), range(5)):
        group = tally.groups.iloc[tally.group[row]]
        call = (tally.context[row], group["judge"], group["format"], order, values[outcome])
        rows += [call] * tally.counts[row, order, outcome]
    pair, judge, format_, order, y = (np.array(column) for column in zip(*rows, strict=True))
    # Every call in both directions: the same pair seen from its other item.
    turned = [np.concatenate(two) for two in ((pair, 1000 + pair), (order, 1 - order), (y, 1 - y))]
    expected = g_study(turned[0], np.tile(judge, 2), np.tile(format_, 2), turned[1], turned[2])
    found = g_study_of_tally(tally, ties=ties)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.std_error, expected.std_error * np.sqrt(2), rtol=1e-4)
    assert 2 * found.n_invalid == expected.n_invalid == 2 * np.isnan(y).sum()
    assert (found.n_pairs, found.n_judges, found.n_formats, found.n_orders) == (10, 2, 3, 2)
    assert any("ties" in note for note in found.notes)
    assert found.to_frame().shape == (8, 6)


def test_any_group_column_can_be_the_format_and_the_others_are_named():
    tally = make_tally(np.random.default_rng(2), extra=("0.0", "0.7"))
    found = g_study_of_tally(tally, format="temperature")
    assert found.n_formats == 2
    assert any(note.startswith("format differ") for note in found.notes)
    assert g_study_of_tally(tally, format="nothing").n_formats == 1


def test_stated_merged_results_are_refused_because_they_hide_the_orders():
    tally = make_tally(np.random.default_rng(4))
    tally.counts[0, 0, 4] = 1
    with pytest.raises(InputError, match="give the single calls"):
        g_study_of_tally(tally)


def test_unknown_tie_policy_is_refused():
    with pytest.raises(InputError, match="half, drop"):
        g_study_of_tally(make_tally(np.random.default_rng(3)), ties="keep")


def disguised(frame, rng, *, mirrored=False):
    """The same calls: items and groups renamed, rows shuffled; mirrored: every call with its slots exchanged."""
    frame = frame.sample(frac=1, random_state=int(rng.integers(1000))).reset_index(drop=True)
    items = sorted({*frame["item_first"], *frame["item_second"]})
    new = dict(zip(items, [f"n{k:04d}" for k in rng.permutation(len(items))], strict=True))
    frame = frame.assign(item_first=frame["item_first"].map(new), item_second=frame["item_second"].map(new))
    if "winner" in frame:
        frame["winner"] = frame["winner"].map(lambda name: new.get(name, name))
    for column in {"judge", "format", "context"} & set(frame.columns):
        levels = frame[column].unique()
        codes = [f"l{k:04d}" for k in rng.permutation(len(levels))]
        frame[column] = frame[column].map(dict(zip(levels, codes, strict=True)))
    if mirrored:
        frame = frame.rename(columns={"item_first": "item_second", "item_second": "item_first"})
        if "verdict" in frame:
            turned = {"first": "second", "second": "first"}
            frame["verdict"] = frame["verdict"].map(lambda said: turned.get(said, said))
    return frame


def same_study(found, expected):
    assert found.converged
    assert expected.converged
    scale = np.nansum(expected.variance)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(found.percent, expected.percent, atol=1e-4)
    np.testing.assert_allclose(found.std_error, expected.std_error, rtol=1e-4, atol=1e-6 * scale)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)


@pytest.mark.parametrize("name", ["mtbench_repeats.csv", "prd_vicuna80.csv"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_names_slots_and_row_order_change_no_number_of_a_real_table(shared_data, name, mirrored):
    frame = pd.read_csv(shared_data / name, dtype=str, keep_default_na=False)
    frame = frame[[c for c in frame if not c.startswith("score_")]]  # stated beside the verdict, slot by slot
    expected = g_study_of_tally(tally_verdicts(check_verdicts(frame)))
    rng = np.random.default_rng(len(name))
    for _ in range(2):
        other = disguised(frame, rng, mirrored=mirrored)
        same_study(g_study_of_tally(tally_verdicts(check_verdicts(other))), expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_names_and_slots_change_no_number_of_a_drawn_table(seed, mirrored):
    rng = np.random.default_rng(seed)
    rows = [
        (judge, form, context, *(pair[::-1] if order else pair), run, rng.choice(["first", "second", "second", "tie"]))
        for judge in "uvw"[: rng.integers(1, 4)]
        for form in "xy"[: rng.integers(1, 3)]
        for context in range(rng.integers(1, 4))
        for pair in (("a", "b"), ("a", "c"), ("b", "c"))
        for order in (0, 1)
        for run in range(2)
        if rng.random() < 0.8
    ]  # fmt: skip
    columns = ["judge", "format", "context", "item_first", "item_second", "run", "verdict"]
    frame = pd.DataFrame(rows, columns=columns).astype(str)
    if len(frame) < 4:
        return
    expected = g_study_of_tally(tally_verdicts(check_verdicts(frame)), std_errors="none")
    other = disguised(frame, rng, mirrored=mirrored)
    found = g_study_of_tally(tally_verdicts(check_verdicts(other)), std_errors="none")
    # Without a residual the likelihood is unbounded, and only as sharp as rounding allows.
    atol = (1e-6 if expected.variance[-1] > 0 else 1e-4) * max(np.nansum(expected.variance), 1e-9)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-5, atol=atol)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6 if expected.variance[-1] > 0 else 1e-3)


def test_a_judge_that_is_right_and_stable_has_all_its_variance_between_pairs_whatever_items_are_called():
    def study(rows):
        frame = pd.DataFrame(rows, columns=["judge", "context", "item_first", "item_second", "verdict"])
        return g_study_of_tally(tally_verdicts(check_verdicts(frame)))

    # z always wins, in both orders, for two judges: the pair component is (1 - 1/2)^2 about the draw.
    rows = [
        (judge, str(k), *pair, "first" if pair[0] == "z" else "second")
        for judge in "jk"
        for k in range(40)
        for pair in (("a", "z"), ("z", "a"))
    ]
    found = study(rows)
    assert found.mean == pytest.approx(0.5, abs=1e-9)
    assert found.variance[COMPONENTS.index("pair")] == pytest.approx(0.25, rel=0.05)
    # Always the first slot: no pair component, all of it with the order.
    slot = study([(judge, context, a, b, "first") for judge, context, a, b, _ in rows])
    assert slot.variance[COMPONENTS.index("pair")] == pytest.approx(0.0, abs=1e-6)
    assert slot.variance[COMPONENTS.index("order")] > 0.2


def test_facets_whose_levels_never_cross_are_called_confounded_and_not_projected():
    rng = np.random.default_rng(21)
    pair, judge, _, order = grid(30, 4, 1, 2, 2)
    only_one = (judge == 3).astype(int)  # judge 3 alone has the second format
    study = g_study(pair, judge, only_one, order, simulate([pair, judge, only_one, order], rng))
    assert study.confounded == ("format",)
    note = next(note for note in study.notes if note.startswith("CONFOUNDED"))
    assert "each judge occurs with one format only" in note
    plan = d_study(study, n_judges=[1, 2], n_formats=[1, 2], n_orders=1, n_runs=1)
    assert np.isnan(plan.generalizability[plan.n_formats == 2]).all()
    assert not np.isnan(plan.generalizability[plan.n_formats == 1]).any()
    both = g_study(pair, judge, judge, order, simulate([pair, judge, judge, order], rng))
    assert both.confounded == ("judge", "format")
    # Two judges share two formats, the others have one of their own: warned of, but some contrasts are clean.
    own = np.where(judge < 2, pair % 2, judge)
    partly = g_study(pair, judge, own, order, simulate([pair, judge, own, order], rng))
    assert partly.confounded == ()
    assert any("CONFOUNDED: judge and format fall into 3 sets" in note for note in partly.notes)
    facets = grid(10, 3, 2, 2, 1)
    assert not any("CONFOUNDED" in note for note in g_study(*facets, simulate(facets, rng)).notes)


# --- D-study ---


def known_study(variance):
    facets = grid(4, 2, 2, 2, 2)
    base = g_study(*facets, simulate(facets, np.random.default_rng(0)))
    return gstudy.GStudy(**{**vars(base), "variance": np.asarray(variance, dtype=float)})


def test_d_study_follows_the_published_formulas():
    study = known_study([0.4, 0.05, 0.03, 0.02, 0.1, 0.08, 0.06, 0.3])
    plan = d_study(study, n_judges=3, n_formats=2, n_orders=2, n_runs=5)
    relative = 0.1 / 3 + 0.08 / 2 + 0.06 / 2 + 0.3 / 60
    absolute = relative + 0.05 / 3 + 0.03 / 2 + 0.02 / 2
    np.testing.assert_allclose(plan.generalizability, 0.4 / (0.4 + relative))
    np.testing.assert_allclose(plan.dependability, 0.4 / (0.4 + absolute))
    assert plan.n_calls.tolist() == [60]


def test_runs_alone_follow_spearman_brown():
    study = known_study([0.4, 0, 0, 0, 0, 0, 0, 0.3])
    plan = d_study(study, n_judges=1, n_formats=1, n_orders=1, n_runs=[1, 2, 7])
    one = plan.generalizability[0]
    np.testing.assert_allclose(plan.generalizability, [k * one / (1 + (k - 1) * one) for k in (1, 2, 7)])


@pytest.mark.slow
def test_generalizability_is_the_squared_correlation_of_design_means_with_the_pair_effects():
    rng = np.random.default_rng(3)
    n_pairs, design = 40_000, (2, 3, 2, 2)
    sd = TRUTH
    pair = sd[0] * rng.normal(size=n_pairs)
    mean = pair.copy()
    for scale, n in zip(sd[4:7], design, strict=False):
        mean += scale * rng.normal(size=(n_pairs, n)).mean(axis=1)
    mean += sd[7] * rng.normal(size=(n_pairs, math.prod(design))).mean(axis=1)
    plan = d_study(known_study(sd**2), n_judges=2, n_formats=3, n_orders=2, n_runs=2)
    np.testing.assert_allclose(np.corrcoef(pair, mean)[0, 1] ** 2, plan.generalizability[0], atol=0.01)


@pytest.mark.parametrize("kind", ["generalizability", "dependability"])
def test_cheapest_design_is_the_one_an_exhaustive_look_finds(kind):
    study = known_study([0.4, 0.05, 0.03, 0.02, 0.1, 0.08, 0.06, 0.3])
    plan = d_study(study, target=0.8, kind=kind)
    value = getattr(plan, kind)
    reached = [
        (calls, -v, k) for k, (calls, v) in enumerate(zip(plan.n_calls, value, strict=True)) if v >= 0.8
    ]
    assert plan.cheapest == min(reached)[2]
    assert (plan.dependability <= plan.generalizability).all()
    none = d_study(study, target=0.999, kind=kind)
    assert none.cheapest is None
    assert "no design" in none.notes[-1]


def test_facets_that_were_not_varied_cannot_be_projected():
    facets = grid(30, 3, 1, 2, 2)
    study = g_study(*facets, simulate(facets, np.random.default_rng(13)))
    plan = d_study(study, n_judges=[1, 2], n_formats=[1, 2], n_orders=1, n_runs=1)
    assert np.isnan(plan.generalizability[plan.n_formats == 2]).all()
    assert np.isfinite(plan.generalizability[plan.n_formats == 1]).all()
    assert any("one format only" in note for note in plan.notes)
    assert plan.to_frame().shape == (4, 7)


@pytest.mark.parametrize("arguments", [{"n_judges": 0}, {"n_runs": 1.5}, {"target": 1.0}, {"kind": "phi"}])
def test_impossible_designs_are_refused(arguments):
    with pytest.raises(InputError, match="d-study"):
        d_study(known_study(np.ones(8)), **arguments)
