# SPDX-License-Identifier: Apache-2.0
"""The verdict of the study of AdamW: paired differences from the plain optimizer with fp32, and their standard
errors."""

import statistics
from collections.abc import Sequence

from lab.study.arms import FACTORS, FINER, PARTS, TUNED_ON, Arm, all_arms
from lab.study.variances import Frozen
from lab.study.verdict import markdown

MISSING = object()  # marks a missing run; None marks a run that diverged
FLOOR = {"nats": 0.02, "%": 0.3}  # within noise: the sum of |mean| and two standard errors stays below


def unit(arm: Arm) -> str:
    return "%" if arm.model == "convnet" else "nats"


class Study:
    def __init__(self, details: dict):
        self.share = details["share"]
        self.scores: dict[str, dict[int, float | None]] = {}
        self.sent: dict[str, float] = {}
        self.seconds: dict[str, list[float]] = {}
        for run in details["runs"]:
            self.scores.setdefault(run["arm"], {})[run["seed"]] = run["score"]
            self.sent[run["arm"]] = run["bytes_per_step"] / run["values"]
            self.seconds.setdefault(run["arm"], []).append(run["seconds"])

    def tuning(self, arm: Arm) -> list[tuple[Arm, int]]:
        """Returns the runs that determine the arm's own rate, as far as they are known: finer rates follow from the
        coarse ones."""
        out = [(arm.at(f), TUNED_ON[0]) for f in FACTORS]
        coarse = self.highest(arm, FACTORS, TUNED_ON[:1])
        if coarse is not None:
            out += [(arm.at(coarse * f), seed) for f in FINER for seed in TUNED_ON]
        return list(dict.fromkeys(out))

    def best(self, arm: Arm) -> float | None:
        """Returns the factor of the arm's best rate on the tuning seeds, from the finer grid if that ran; None if a
        factor is missing."""
        coarse = self.highest(arm, FACTORS, TUNED_ON[:1])
        if coarse is None:
            return None
        finer = self.highest(arm, [coarse * f for f in FINER], TUNED_ON)
        return coarse if finer is None else finer

    def highest(self, arm: Arm, factors: Sequence[float], seeds: Sequence[int]) -> float | None:
        tried = {f: [self.scores.get(arm.at(f).name, {}).get(seed, MISSING) for seed in seeds] for f in factors}
        if any(MISSING in scores for scores in tried.values()):
            return None
        known = {f: statistics.fmean(scores) for f, scores in tried.items() if None not in scores}
        return max(known, key=known.__getitem__, default=None)

    def differences(self, arm: Arm, reference: Arm) -> list[float | None]:
        """Returns the differences seed by seed; None for a seed whose run diverged."""
        mine, plain = (self.scores.get(a.name, {}) for a in (arm, reference))
        seeds = [s for s in sorted(mine) if s in plain and s not in TUNED_ON and plain[s] is not None]
        return [None if mine[s] is None else mine[s] - plain[s] for s in seeds]

    def found(self, arm: Arm, reference: Arm) -> tuple[float, float] | None:
        """Returns the mean difference, and two standard errors of it. None if a run diverged, or with fewer than two
        seeds."""
        known = self.differences(arm, reference)
        if len(known) < 2 or None in known:
            return None
        return statistics.fmean(known), 2 * statistics.stdev(known) / len(known) ** 0.5

    def near(self, arm: Arm, reference: Arm) -> bool | None:
        known = self.differences(arm, reference)
        if None in known:
            return False
        found = self.found(arm, reference)
        return None if found is None else abs(found[0]) + found[1] < FLOOR[unit(arm)]


def row(study: Study, arm: Arm, reference: Arm, last: str) -> list[str]:
    known, found = study.differences(arm, reference), study.found(arm, reference)
    shown = "diverged" if None in known else f"{known[0]:+.3f}" if len(known) == 1 else ""
    if found is not None:
        shown = f"{found[0]:+.3f} ± {found[1]:.3f}"
    near = study.near(arm, reference)
    verdict = {True: "within noise", False: "no" if not found or found[0] < 0 else "better", None: ""}[near]
    if near is False and found is not None and abs(found[0]) <= found[1]:
        verdict = "not told apart, nor within noise"
    if arm.control:
        verdict = (
            "control: falls short, as it must"
            if near is False
            else "**control that did not fall short**"
            if near
            else ""
        )
    smaller = study.sent[reference.name] / study.sent[arm.name]
    return [arm.model, arm.optimizer, f"`{arm.codec}`", f"1/{smaller:.3g}", str(len(known)), shown, verdict, last]


HEAD = ["model", "optimizer", "codec", "fp32's bytes", "seeds", "difference", "verdict"]


def table(study: Study) -> str:
    """Returns the table at the rate that suits fp32."""
    rows = []
    for arm in all_arms():
        reference = arm.reference()
        if arm.name in study.sent and reference.name in study.sent and arm != reference:
            rate = "half the rate" if arm.factor != 1 else ""
            rows.append(row(study, arm, reference, rate))
    return markdown([*HEAD, ""], rows, 0)


def tuned(study: Study) -> str:
    """Returns the table with each arm at its own best rate."""
    rows = []
    for arm in all_arms():
        best, own = study.best(arm), study.best(arm.reference())
        if best is None or own is None or arm.control or arm == arm.reference():
            continue
        mine, reference = arm.at(best), arm.reference().at(own)
        if mine.name in study.sent and reference.name in study.sent:
            rows.append(row(study, mine, reference, f"{best:g}, fp32 {own:g}"))
    return markdown([*HEAD, "rates"], rows, 0) if rows else "Not run yet.\n"


def references(study: Study) -> str:
    rows = []
    for arm in all_arms():
        if arm == arm.reference() and arm.name in study.scores:
            known = [v for s, v in study.scores[arm.name].items() if v is not None and s not in TUNED_ON]
            if known:
                deviation = f"{statistics.stdev(known):.3f}" if len(known) > 1 else ""
                shown = (
                    f"{statistics.fmean(known):.2f} %" if unit(arm) == "%" else f"{-statistics.fmean(known):.3f} nats"
                )
                rows.append([arm.part(study.share).about, shown, deviation, str(len(known))])
    return markdown(["reference", "fp32", "deviation between seeds", "seeds"], rows, 0)


def times(study: Study) -> str:
    """Returns the duration of the parts, from the available runs: minutes of one core for one seed."""
    rows = []
    for name, part in PARTS.items():
        ran = [arm for arm in part if arm.name in study.seconds]
        if ran:
            minutes = sum(statistics.median(study.seconds[arm.name]) for arm in ran) / 60
            rows.append([name, f"{len(ran)} of {len(part)}", f"{minutes:.1f}"])
    return markdown(["part", "arms that ran", "minutes of one core per seed"], rows, 0)


PAGE = """# What AdamW and SGD lose with few bits

{ranks} ranks in one process, strategy {strategy}; rates rise over a tenth of the steps and fall to zero. `AdamW` and
`SGD 0.9` are torch's with gradients from the codec; *tithe's AdamW* is `tithe.torch.optim.AdamW`, whose exchange of
parts is in the bytes. `AdamW frozen` divides by squares of its first {frozen} steps, `growing` by those of steps that
grow rarer, `local` by ((W - 1) m^2 + mean of g^2) / W (`lab/study/variances.py`); all three learn these squares
exactly, and that is in the bytes. A codec with a semicolon: what follows is for the tensors it names. Seeds are
paired: the same first values and the same data in the same order. Differences are in nats per byte or word, and in
points of accuracy (convnet); below 0 is worse; after the ± stand two standard errors. *Within noise*: |mean| and two
standard errors are together below {floor[nats]} nats or {floor[%]} points.

`{command}` on {machine}; commits {commits}.
{data}.
Made from `study_adam.json` by `lab/study/adam_verdict.py`.

## The reference

{references}
## At the rate that suits fp32

{table}
## Each at its own rate

Of {factors} times that rate, what is best on a seed that is not compared; then, where that was run, of {finer} times
this, what is best on two such seeds.

{tuned}
## What it takes

{times}"""


def page(details: dict) -> str:
    study = Study(details)
    commits = ", ".join(dict.fromkeys(run["commit"] for run in details["runs"]))
    factors, finer = (", ".join(f"{f:g}" for f in some) for some in (FACTORS, FINER))
    tables = {f.__name__: f(study) for f in (references, table, tuned, times)}
    return PAGE.format(
        **details, commits=commits, factors=factors, finer=finer, floor=FLOOR, frozen=Frozen.FIRST, **tables
    )
