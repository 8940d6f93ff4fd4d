"""Simulated judges: exact shares, exact placement, errors that say what is impossible."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rank.exceptions import InputError
from simulate.judges import JudgeSettings, place, place_errors, prepare_judge, simulate_judge
from simulate.population import draw_population, percentile_rank

SHARE = st.floats(0, 1)
PLACEMENT = st.sampled_from([-1.0, -0.9, -0.5, 0.0, 0.3, 0.9, 1.0])


@st.composite
def judge_settings(draw):
    flip_rate = draw(SHARE)
    low, high = flip_rate / 2, 1 - flip_rate / 2
    runs = draw(st.integers(1, 6))
    return JudgeSettings(
        agreement=low + draw(SHARE) * (high - low),
        flip_rate=flip_rate,
        flip_q=draw(PLACEMENT),
        primacy=draw(SHARE),
        repeatability=draw(SHARE) if runs >= 3 else 1.0,
        noise_q=draw(PLACEMENT),
        runs=runs,
        scheme=draw(st.sampled_from(["weight", "spread", "mixture"])),
    )


def measured(judge):
    """Measure shares from the counts alone, written as SPEC section 2 says it."""
    people, counts = judge.population, judge.counts
    winner = np.where(people.human_i, 0, 1)
    modal = counts[..., :2].argmax(axis=-1)
    tied = counts[..., 0] == counts[..., 1]
    unanimous = (counts[..., :2] == 0).any(axis=-1)
    flips = modal[:, 0] != modal[:, 1]
    right = modal == winner[:, None]
    lean_first = modal[:, 0] == 0
    return {
        "tied": int(tied.sum()),
        "repeatability": unanimous.mean(),
        "flip_rate": flips.mean(),
        "accuracy": right.mean(),
        "decisive": right[~flips].mean() if (~flips).any() else np.nan,
        "undecided": right[flips].mean() if flips.any() else np.nan,
        "n_primacy": int(lean_first[flips].sum()),
        "flips": flips,
    }


@settings(max_examples=150, deadline=None)
@given(asked=judge_settings(), n=st.integers(2, 14), q=PLACEMENT, seed=st.integers(0, 2**32 - 1))
def test_asked_shares_are_measured_exactly_to_one_pair_or_condition(asked, n, q, seed):
    people = draw_population(n, rng=seed)
    m = people.n_pairs
    if asked.scheme == "spread":
        q = abs(q)
    try:
        judge = simulate_judge(people, q, settings=asked, rng=seed)
    except InputError:
        assert asked.scheme == "mixture"  # nothing else can be impossible; which mixtures are is tested below
        return
    got = measured(judge)
    half = 0.5 + 1e-6
    assert got["tied"] == 0
    assert abs(got["flip_rate"] - asked.flip_rate) * m <= half
    # Accuracy counts in steps of one pair, around the half step that an odd number of flips leaves.
    assert abs(got["accuracy"] - asked.agreement) * m <= half
    assert abs(got["repeatability"] - asked.repeatability) * 2 * m <= half
    n_flips = int(judge.undecided.sum())
    assert got["n_primacy"] == round(asked.primacy * n_flips)
    assert (got["flips"] == judge.undecided).all()
    assert not (judge.errors & judge.undecided).any()
    assert judge.errors.sum() == asked.n_errors(m)
    assert (judge.counts.sum(axis=-1) == asked.runs).all()
    assert (judge.counts[judge.unstable][:, :2].min(axis=-1) >= 1).all()
    # T = C (A - phi q_u) = C (1 - phi) A_dec, with q_u = 1/2 on forced binary verdicts.
    if n_flips:
        assert got["undecided"] == 0.5
    right_and_fair = got["accuracy"] - got["flip_rate"] / 2
    if n_flips < m:
        assert right_and_fair == pytest.approx((1 - got["flip_rate"]) * got["decisive"], abs=1e-12)


@pytest.mark.parametrize("scheme", ["weight", "spread", "mixture"])
def test_default_request_gives_the_textbook_trustworthy_rate(scheme):
    judge = simulate_judge(draw_population(200, rng=3), 0.5, settings=JudgeSettings(scheme=scheme), rng=4)
    got = measured(judge)
    assert (got["repeatability"], got["flip_rate"], got["accuracy"]) == (0.95, 0.2, 0.6)
    assert got["repeatability"] * (got["accuracy"] - got["flip_rate"] / 2) == pytest.approx(0.475, abs=1e-12)


def test_always_first_judge_has_accuracy_one_half_and_full_primacy():
    asked = JudgeSettings(agreement=0.5, flip_rate=1.0, primacy=1.0, repeatability=1.0)
    got = measured(simulate_judge(draw_population(20, rng=1), 0.5, settings=asked, rng=1))
    assert (got["repeatability"], got["flip_rate"], got["accuracy"]) == (1.0, 1.0, 0.5)
    assert got["n_primacy"] == 190


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agreement": 0.95}, r"agreement 0.95 is above the ceiling 1 - flip_rate/2 = 0.9"),
        ({"agreement": 0.4, "flip_rate": 0.9}, r"agreement 0.4 is below the floor flip_rate/2 = 0.45"),
        ({"runs": 2}, "at least 3 runs"),
        ({"runs": 0, "repeatability": 1.0}, "runs must be"),
        ({"primacy": 1.2}, "primacy must be a share"),
        ({"agreement": float("nan")}, "agreement must be a share"),
        ({"flip_q": -2.0}, "flip_q must be between"),
        ({"scheme": "fancy"}, "scheme must be one of weight, spread, mixture"),
        ({"judge": "fancy"}, "judge must be one of"),
        ({"k_close": -1.0}, "k_close must be"),
    ],
)
def test_impossible_requests_are_refused_with_their_numbers(changes, message):
    with pytest.raises(InputError, match=message):
        JudgeSettings(**changes)


def test_requests_on_the_ceiling_and_on_the_floor_are_possible():
    people = draw_population(9, rng=0)
    for flip_rate in (0.0, 0.1, 0.3, 1.0):
        for agreement in (flip_rate / 2, 1 - flip_rate / 2):
            asked = JudgeSettings(agreement=agreement, flip_rate=flip_rate)
            judge = simulate_judge(people, 0.0, settings=asked, rng=0)
            assert judge.errors.sum() in (0, people.n_pairs - judge.undecided.sum())


def log_exponential(rng, *shape):
    return np.log(rng.standard_exponential(shape))


def test_extreme_placement_takes_exactly_the_closest_or_farthest_pairs():
    rng = np.random.default_rng(5)
    gap = rng.random(101)
    rank = percentile_rank(gap)
    keys = log_exponential(rng, 101)
    order = np.argsort(gap)
    for size in (0, 1, 37, 101):
        assert set(place(size, 1.0, gap_rank=rank, keys=keys)) == set(order[101 - size :])
        assert set(place(size, -1.0, gap_rank=rank, keys=keys)) == set(order[:size])


def test_extreme_placement_skips_barred_pairs():
    rank = percentile_rank(np.arange(10.0))
    barred = np.arange(10) >= 8
    chosen = place(3, 1.0, gap_rank=rank, keys=log_exponential(np.random.default_rng(0), 10), barred=barred)
    assert set(chosen) == {5, 6, 7}


@pytest.mark.parametrize("q", [-1.0, 1.0])
def test_equal_gaps_at_the_border_are_broken_at_random(q):
    rng = np.random.default_rng(8)
    gap = np.repeat([1.0, 2.0, 3.0], 4)
    rank = percentile_rank(gap)
    times = np.zeros(12)
    for _ in range(3000):
        times[place(6, q, gap_rank=rank, keys=log_exponential(rng, 12))] += 1
    sure = slice(0, 4) if q < 0 else slice(8, 12)
    assert (times[sure] == 3000).all()
    assert times[[0, 11][q < 0]] == 0
    assert np.abs(times[4:8] / 3000 - 0.5).max() < 0.05


def successive_sampling(weights, size):
    """Probability of every subset under drawing one by one with probability proportional to weight."""
    subsets = {}
    for sequence in permutations(range(len(weights)), size):
        probability, left = 1.0, weights.sum()
        for item in sequence:
            probability *= weights[item] / left
            left -= weights[item]
        key = frozenset(sequence)
        subsets[key] = subsets.get(key, 0.0) + probability
    return subsets


@pytest.mark.parametrize("q", [-0.7, -0.3, 0.0, 0.5, 0.8])
def test_placement_agrees_with_enumerated_successive_sampling(q):
    """Chi-square against the probabilities of all C(6, 3) = 20 subsets."""
    rng = np.random.default_rng(11)
    rank = percentile_rank(np.array([0.3, 2.0, 0.1, 0.9, 1.4, 0.5]))
    weights = (rank if q >= 0 else 1 - rank) ** (abs(q) / (1 - abs(q)))
    expected = successive_sampling(weights, 3)
    draws = 20_000
    seen = dict.fromkeys(expected, 0)
    for keys in log_exponential(rng, draws, 6):
        seen[frozenset(place(3, q, gap_rank=rank, keys=keys).tolist())] += 1
    rare = [key for key, p in expected.items() if p * draws < 5]
    cells = [(seen[key], expected[key] * draws) for key in expected if key not in rare]
    if rare:
        cells.append((sum(seen[key] for key in rare), sum(expected[key] for key in rare) * draws))
    chi_square = sum((o - e) ** 2 / max(e, 1e-9) for o, e in cells)
    assert chi_square < 43.8  # 99.9 % point of 19 degrees of freedom


def test_spread_agrees_with_enumerated_two_step_sampling():
    """round(q k) uniform first, then weight 2^(-3 gap) among the rest: all C(5, 3) = 10 subsets."""
    rng = np.random.default_rng(12)
    gap = np.array([0.05, 0.2, 0.6, 1.1, 0.4])
    weights = 2.0 ** (-3.0 * gap)
    expected: dict[frozenset, float] = {}
    for first in range(5):
        rest = [pair for pair in range(5) if pair != first]
        for subset, probability in successive_sampling(weights[rest], 2).items():
            key = frozenset({first, *(rest[index] for index in subset)})
            expected[key] = expected.get(key, 0.0) + probability / 5
    draws = 20_000
    seen = dict.fromkeys(expected, 0)
    for _ in range(draws):
        chosen = place_errors(
            3,
            0.4,
            scheme="spread",
            gap_rank=percentile_rank(gap),
            gap=gap,
            keys=log_exponential(rng, 2, 5),
            barred=np.zeros(5, dtype=bool),
        )
        seen[frozenset(chosen.tolist())] += 1
    chi_square = sum((seen[key] - p * draws) ** 2 / (p * draws) for key, p in expected.items())
    assert chi_square < 27.9  # 99.9 % point of 9 degrees of freedom


@settings(max_examples=100, deadline=None)
@given(
    q=st.floats(-1, 1),
    size=st.integers(0, 40),
    scale=st.sampled_from([1e-9, 1.0, 1e6]),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize("scheme", ["weight", "spread", "mixture"])
def test_placed_sets_have_the_asked_size_whatever_the_gaps(scheme, q, size, scale, seed):
    rng = np.random.default_rng(seed)
    gap = rng.exponential(size=60) * scale
    barred = rng.permutation(60) < 20
    chosen = []
    try:
        chosen = place_errors(
            size,
            abs(q) if scheme == "spread" else q,
            scheme=scheme,
            gap_rank=percentile_rank(gap),
            gap=gap,
            keys=log_exponential(rng, 2, 60),
            barred=barred,
        )
    except InputError:
        half = np.argsort(gap)[:30] if q < 0 else np.argsort(gap)[30:]
        assert scheme == "mixture"
        assert round(abs(q) * size) > (~barred[half]).sum()
        return
    assert len(set(chosen.tolist())) == size
    assert not barred[chosen].any()


def test_spread_of_zero_stays_near_ties_and_spread_of_one_is_uniform():
    people = draw_population(100, rng=6)
    means = {}
    for q in (0.0, 0.5, 1.0):
        judge = simulate_judge(people, q, settings=JudgeSettings(scheme="spread", flip_rate=0.0), rng=7)
        means[q] = people.gap[judge.errors].mean()
    assert means[0.0] < 0.6 * people.gap.mean()
    assert means[0.0] < means[0.5] < means[1.0]
    assert means[1.0] == pytest.approx(people.gap.mean(), rel=0.05)


@pytest.mark.parametrize("q", [-1.0, -0.6, 0.6, 1.0])
def test_mixture_has_the_asked_share_in_its_half(q):
    """At least round(|q| k) errors in the half, and of the rest about half by chance."""
    people = draw_population(100, rng=6)
    asked = JudgeSettings(scheme="mixture", flip_rate=0.0, agreement=0.8)
    judge = simulate_judge(people, q, settings=asked, rng=7)
    k = asked.n_errors(people.n_pairs)
    inside = judge.errors & ((people.gap_rank > 0.5) if q > 0 else (people.gap_rank < 0.5))
    forced = round(abs(q) * k)
    assert inside.sum() >= forced
    # What is left of the half after the forced ones, as a share of all pairs that are left.
    left = (people.n_pairs / 2 - forced) / (people.n_pairs - forced)
    assert inside.sum() == pytest.approx(forced + left * (k - forced), abs=4 * np.sqrt(k))


def test_mixture_that_does_not_fit_into_its_half_is_refused():
    people = draw_population(50, rng=6)
    with pytest.raises(InputError, match="farther half, which has only 6.. decided pairs"):
        simulate_judge(
            people, 1.0, settings=JudgeSettings(scheme="mixture", flip_rate=0.0, agreement=0.3), rng=1
        )


def test_spread_refuses_negative_q_and_weight_refuses_more_than_one():
    people = draw_population(10, rng=6)
    with pytest.raises(InputError, match="between 0"):
        simulate_judge(people, -0.1, settings=JudgeSettings(scheme="spread"), rng=1)
    with pytest.raises(InputError, match="between -1"):
        simulate_judge(people, 1.01, rng=1)


def test_blind_zone_has_twice_the_errors_and_the_agreement_in_expectation():
    people = draw_population(200, rng=6)
    asked = JudgeSettings(judge="blind-zone", flip_rate=0.1)
    k = asked.n_errors(people.n_pairs)
    accuracy = []
    for seed in range(20):
        judge = simulate_judge(people, 0.2, settings=asked, rng=seed)
        assert judge.placed.sum() == 2 * k
        assert not (judge.placed & judge.undecided).any()
        assert not (judge.errors & ~judge.placed).any()
        got = measured(judge)
        assert got["flip_rate"] == 0.1
        accuracy.append(got["accuracy"])
    # Binomial(2k, 1/2) errors out of m pairs.
    sd = np.sqrt(2 * k * 0.25) / people.n_pairs
    assert np.std(accuracy) > 0
    assert abs(np.mean(accuracy) - 0.6) < 4 * sd / np.sqrt(20)


def test_blind_zone_without_room_is_refused():
    with pytest.raises(InputError, match="raise the agreement"):
        simulate_judge(
            draw_population(20, rng=6),
            settings=JudgeSettings(judge="blind-zone", flip_rate=0.0, agreement=0.4),
            rng=1,
        )


def test_noise_and_flips_follow_their_own_placement():
    people = draw_population(100, rng=2)
    far = np.stack([people.gap_rank] * 2, axis=1)
    for q, compare in ((-0.8, np.less), (0.8, np.greater)):
        judge = simulate_judge(people, 0.0, settings=JudgeSettings(flip_q=q, noise_q=q, flip_rate=0.1), rng=3)
        assert compare(people.gap_rank[judge.undecided].mean(), 0.5 + 0.2 * np.sign(q))
        assert compare(far[judge.unstable].mean(), 0.5 + 0.2 * np.sign(q))


def test_dissenting_runs_are_uniform_between_one_and_the_largest_minority():
    asked = JudgeSettings(runs=8, repeatability=0.0)
    judge = simulate_judge(draw_population(100, rng=2), 0.0, settings=asked, rng=3)
    minority = judge.counts[..., :2].min(axis=-1).ravel()
    number, times = np.unique(minority, return_counts=True)
    assert number.tolist() == [1, 2, 3]
    assert np.abs(times / len(minority) - 1 / 3).max() < 0.02


def test_judges_of_one_preparation_differ_in_decided_pairs_only():
    """Common random numbers: flips and noise are the same for every q, in whatever order q is asked."""
    prepared = prepare_judge(draw_population(40, rng=1), rng=2)
    one, two = prepared.answer(0.3), prepared.answer(-0.9)
    assert (one.undecided == two.undecided).all()
    assert (one.unstable == two.unstable).all()
    assert (one.wins_i[one.undecided] == two.wins_i[one.undecided]).all()
    assert (one.errors != two.errors).any()
    assert (prepared.answer(0.3).counts == one.counts).all()


def test_one_setting_leaves_the_other_draws_alone():
    people = draw_population(40, rng=1)
    one = simulate_judge(people, 0.3, settings=JudgeSettings(flip_rate=0.0), rng=2)
    two = simulate_judge(people, 0.3, settings=JudgeSettings(flip_rate=0.0, repeatability=1.0, runs=1), rng=2)
    assert (one.errors == two.errors).all()


def test_same_seed_same_judge_other_seed_other_judge():
    people = draw_population(40, rng=1)
    one, same, other = (simulate_judge(people, 0.3, rng=seed) for seed in (1, 1, 2))
    assert (one.counts == same.counts).all()
    assert (one.counts != other.counts).any()


def test_verdict_table_counts_back_to_the_tally():
    verdicts = pytest.importorskip("rank.verdicts")
    from rank.tally import tally_verdicts

    judge = simulate_judge(draw_population(12, pairs_per_item=5, rng=1), 0.3, rng=1)
    frame = judge.to_frame()
    assert list(frame.columns) == ["judge", "item_first", "item_second", "run", "verdict"]
    assert len(frame) == 2 * 5 * judge.population.n_pairs
    tally, direct = tally_verdicts(verdicts.check_verdicts(frame)), judge.to_tally()
    assert (tally.counts == direct.counts).all()
    assert (tally.items[tally.item_i] == direct.items[direct.item_i]).all()
    assert (tally.items[tally.item_j] == direct.items[direct.item_j]).all()
    assert tally.groups.equals(direct.groups)
    # Which runs dissent is arranged at random, not all in the last run.
    first_run = frame[frame.run == 0]
    assert len(first_run) == 2 * judge.population.n_pairs


def test_gold_frames_align_with_the_tally():
    judge = simulate_judge(draw_population(12, rng=1), 0.3, rng=1)
    people, tally = judge.population, judge.to_tally()
    latent, human = judge.to_gold().align(tally), judge.to_human_gold().align(tally)
    assert np.allclose(latent.gap, people.gap)
    assert (latent.winner == np.where(people.theta[people.item_i] > people.theta[people.item_j], 0, 1)).all()
    assert (human.winner == np.where(people.human_i, 0, 1)).all()
    assert np.allclose(human.gap, people.gap)
