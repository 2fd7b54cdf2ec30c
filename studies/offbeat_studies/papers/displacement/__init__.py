"""Displacement per upload: does one number stand for the algorithm?

The plan. ``uploads.toml`` has its numbers and claims; both were committed before the runs that they judge.

**Words.** c is the displacement per upload: how far one upload moves the model in all, under constant drift, in units
of ‖Δ‖; D = c ‖Δ‖, with ‖Δ‖ measured at the initial model and in units of ‖Δ‖ at the reference step size. τ_u is the
delay in uploads: the other uploads between a client's download and its upload, M − 1 for M clients at work, plus the
wait in a buffer or window, (K − 1)/2. x = D τ_u.

**H1.** Near the best D the uploads to a target depend on the algorithm only through D and τ_u.

- Equivalence: FedBuff and FedFa with deltas have the same c and τ_u. For each K and M the ratio of their uploads is
  within 0.9 … 1.1, as the mean over the right branch.
- Prediction: a curve, log(uploads / τ_u) as a cubic in log x whose coefficients are linear in log τ_u, is fitted
  without a group of settings and predicts it. For each M the ratio of measured to predicted uploads is within 0.8 …
  1.25. The groups: FedBuff; FedFa; FedAsync; FedFa with params; all settings with K = 20; FedBuff with a fifth of the
  reference step size, which tests the factor ‖Δ‖.

**H2.** The best D scales as 1/τ_u: over FedBuff and FedFa with all K and M the power is within −1.2 … −0.8.

**Right branch.** Far left of the best D uploads fall as 1/D for any algorithm, which is trivial. So the tests use the
values of D from the best one to twice it. The best is the value with the lowest mean log uploads of the tuning seeds,
for FedBuff and FedFa of one K and M together. FedAsync and FedFa with params have x < 1 whatever their settings,
so they have no such branch; they are judged at their values with x ≥ 0.35, half of what the pilot found best.

**Seeds.** Seeds 0 to 4 tune: they choose the best D and fit the curves. Seeds 20 to 39 judge. In a prediction each of
these has a level of its own, the mean deviation from the curve of all settings with the same M that the curve was
fitted to, on their right branches. For H2 the best D of a seed is the lowest point of a parabola in log D through the
values within a factor of 2 √2 of the tuned best.

**Censored runs.** A run that does not reach the target within the budget has at least the budget. Fits use that by
maximum likelihood, tests by ``offbeat.statistics.hypothesis_tests.bounded_test``.

**Refuted by** an interval of a ratio or a power outside its range. Neither supported nor refuted is open. Outside the
study: arrival bias (visits have equal lengths up to 10 %, clients are drawn at random) and adaptive server steps.

**First study.** Seeds 10 to 19 with a third of the budget, and a sign test where a run was censored. It contradicted
the prediction of FedAsync at M = 5 and 10 and decided nothing else; at M = 20 a seventh of the runs on the right
branches were censored. So the budget and the number of seeds grew. The claims and their ranges did not change.

**Pilot.** Seeds 100 to 102, FedBuff with K = 5 at M = 5 and 20: the best x is between 0.4 and 1.6. It set the values of
x, and none of its seeds is used again.

The world is small and has its own loop, so that all seeds of a setting train in one batch; the algorithms are the
library's objects.
"""
