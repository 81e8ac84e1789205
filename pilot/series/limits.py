"""The limits of the series rules, each with its source.

"healthy steps" are the step losses of 18 public pre-training runs (157,000 steps, noise 1 to 6 % of
the loss, residuals white but heavy-tailed, kurtosis 6 to 15). A *sigma* is the robust standard
deviation of the loss' own step noise (``level``), a *unit* the level that percentages refer to.
"""

from __future__ import annotations

TINY, HUGE = 1e-30, 1e30  # numbers beyond are taken as these: no overflow, no division by zero

# --- level and noise (level.py)
RECENT = 16  # records in the median that stands for the present level
NOISE_WINDOW = 256  # differences in the noise estimate
MIN_RECORDS = 8  # before that only the rule of the start; faults of a trial began at steps 2 to 31
WINSOR_SIGMA = 3.0  # a record enters the level at most this far above it
NOISE_FLOOR = 2e-3  # of the unit: a constant series must not make every digit an outlier
UNIT_FLOOR = 0.25  # of the first level: near zero, percentages refer to this part of the start

# --- spikes (spikes.py)
SPIKE_SIGMA = 6.0  # healthy steps exceed it 8 to 47 times in 10,000: a note
SHORT_HISTORY = 8.0  # the limit x 1 + this / records: 12 at 8 records, 9 at 16, 6.1 at 500
SPIKE_FRAC = 0.03  # and at least this part of the unit
HUGE_LIMITS = 3.0  # x the limit, 100 % of the unit, worse than the start: one record matters
WORSE_THAN_START = 1.25  # x the first level: no ordinary sample is so much worse than untrained
PAIR_CHANCE = 1e-4  # of two such records next to each other at the run's own rate
HIGH_SIGMA = 4.0  # a record of an open event counts as high above this
EVENT_WINDOW = 8  # records in which the high ones are counted
CALM_RUN = 3  # records in a row, not high, that end a spike
BACK_SIGMA = 1.0  # above the level, the median of 8 records is back: its error is 0.44
BACK_FRAC = 0.05  # of the unit, the same
JUDGE_AFTER = 64  # records without calm after which a spike never recovers
WATCH = 256  # records after which a late recovery is no longer looked for
CHANCE = 1e-5  # of so many high records at the run's own rate: above it they are its noise

# --- shifts (shift.py)
CUSUM_LAG = 16  # records between the reference and now
CUSUM_REFERENCE = 96  # records in the reference
CUSUM_START = 48  # records in the reference before it judges
QUICK_DRIFT, QUICK_CAP = 0.75, 3.0  # sigma: at least five records alarm, no single one can
QUICK_LIMIT = 11.0  # largest sum on healthy steps: 10.1
BURST_DRIFT, BURST_CAP = 1.75, 4.0  # sigma: bursts of four records and more
BURST_LIMIT = 6.9  # above 3 x (4 - 1.75): three records cannot; largest sum on healthy steps: 5.3
BURST_RATE = 0.05  # of the records above 4 sigma: bursts are the noise of such a run; healthy 0.012
STEADY_DRIFT, STEADY_CAP = 0.4, 2.0  # sigma: small shifts that last; at least nine records
STEADY_LIMIT = 14.0  # largest sum on healthy steps: 12.7
SHIFT_AFTER = 64  # records after the alarm at which a shift is confirmed or gone
SHIFT_FRAC = 0.02  # of the unit: smaller shifts are nobody's business
LARGE_FRAC = 0.10  # of the unit: a shift this large that stays is damage, not drift

# --- the first records (early.py)
EARLY_RECORDS = 64  # after them no event of the start is opened
EARLY_START = 16  # a rise that begins later is slow divergence, and not one where a spike is open
LATE_HOLD = 8  # smoothed records in a row, for those
LATE_POWER = 1.5  # of the ratio for those: the reference is the lowest of many medians by then
EARLY_RATIO = 1.5  # start-up transients of one record reach 1.8; damage in public logs 1.6 to 37
EARLY_SMOOTH = 4  # records in the median
EARLY_HOLD = 3  # smoothed records in a row
EARLY_SHORT = 3.0  # the noise x 1 + this / differences: an estimate from five is loose
START_INTERVALS = 16  # a log that begins later is a window out of a run: excerpts start in hundreds
EARLY_SIGMA = 5.0  # of the first records' own noise (ln): a low first record is no damage

# --- few records (few.py, fewnorms.py)
FEW_MAX = 23  # records; longer series have ``regret``
FEW_AFTER = 4  # records after the jump, at least
FEW_RATIO, FEW_END = 1.8, 2.0  # x the level before: each record, and the last ones; see EARLY_RATIO
FEW_ALONE = 3.0  # x, both, with one record before: it may be a single batch, the others averages
FEW_SIGMA = 4.0  # of the noise (ln): by chance in 1 of 2,000 runs with 40 % noise
FEW_RISE = 1.5  # last third x first: so few records are too short to call healthy
FEW_NORMS = (6, 19)  # grad norms; above GRAD_MIN their own median judges
FEW_NORMS_RATIO = 20.0  # x the median of the others: twice GRAD_RATIO, the median is loose
FEW_NORMS_GROWTH = 10.0  # last third x first

# --- a loss without a level (objective.py, gradnorm.py, zero.py)
POLICY_RECORDS, POLICY_SHARE = 3, 0.10  # records at or below 0: half of those of a policy loss are
POLICY_START = 16  # first records in which zeros count: nothing is learned to 0.0000 so fast
HELD = 5  # grad norms in a row above GRAD_RATIO: a policy's single pops are its noise
HELD_ZEROS = 64  # records of loss 0 and gradient 0: a few batches of equal rewards are normal
ALL_ZEROS = 16  # the same from the first record on

# --- non-finite and dead (nonfinite.py, zero.py)
SKIP_FRAC = 0.02  # of the records: gradient overflows an fp16 scaler is expected to skip
SKIP_COUNT = 4  # so many are always allowed: 2 of 9 in a healthy excerpt
SKIP_RUN = 5  # in a row, after the first finite one: no scaler in balance does that
FIRST_SKIPS = 20  # before the first finite gradient: a scale of 2^32 takes about so many halvings
SKIP_MOVED = 2  # records without an update while the learning rate moves: no scaler skips them
PLAUSIBLE = 1e4  # x the largest loss before: nothing that a run comes back with after a NaN
HUGE_START = 50.0  # nats: four times ln of the largest vocabularies (250,000): no loss but overflow
LEAD_MIN, LEAD_RATIO = 2, 2.0  # records before a jump; x their median: the loss before a NaN
DEAD_RUN = 3  # records in a row of loss 0 without a gradient
ABRUPT_FRAC = 0.05  # of the first level: a loss that falls to 0.0 from above it did not learn to

# --- grad norm (gradnorm.py)
GRAD_WINDOW = 64  # grad norms in the median
GRAD_MIN = 16  # before it judges
GRAD_RATIO = 10.0  # x the median; alone on 84 of 25,700 points of runs that were fine
GRAD_RISE = 2.0  # x the record before, twice in a row, and above GRAD_REACTION
GRAD_REACTION = 4.0  # x the median: above the band
GRAD_REACH = 8  # records in which the loss must react
GRAD_CHANCE = 0.05  # expected coincidences of the two by the run's own rates: below it, a reaction
REACT_FRAC = 0.20  # of the unit: what the loss must rise with it; BLOOM-176B 120 %
GRAD_TINY = 1e-6  # of the largest median so far: below it ratios mean nothing

# --- trends (slow.py, gradtrend.py)
BLOCK = 32  # records in a block median
BLOCKS = 24  # blocks in the window
TREND_Z = 3.3  # Mann-Kendall; largest on healthy steps with the rise below: 2.2
TREND_FRAC = 0.015  # of the unit, over the window
SHORT_BLOCKS, SHORT_FRAC = 16, 0.03  # a shorter window, for faster rises; largest Z there: 2.75
STAIR_FRAC = 0.03  # of the unit between two blocks: the edge of an epoch
REGRET_MIN, REGRET_MAX, REGRET_BLOCKS = 24, 768, 8  # records, records, blocks (regret.py)
REGRET_FRAC, REGRET_ERRORS = 0.25, 6.0  # of the unit; standard errors
GRAD_BLOCK, GRAD_BLOCKS = 16, 8
GRAD_GROWTH = 2.0  # the grad norm doubles over the window while the loss does not fall

# --- whole series (progress.py, validations.py, state.py)
MIN_SERIES = 8  # records of loss, or validations x 2: fewer are too short to call healthy
SAME_RECORDS = 8  # bit-identical losses in a row: other batches cannot give the same loss
SAME_DIGITS = 4  # significant digits that the log must show for it
PROGRESS_RECORDS = 30  # before "no progress" can be said
PROGRESS_ERRORS = 2.0  # standard errors
PROGRESS_FRAC = 0.10  # of the level: a larger fall may still hide in the noise
WORSE_FRAC = 0.05  # of the lowest validation: runs called fine rise 1.7 %, over-fitted ones 12 %
RISEN_FRAC = 0.10  # of the lowest: for a note where there are too few validations for the above
WORSE_SIGMA = 3.0  # of the validation's own noise
FLAT_FRAC = 0.01  # of the first validation: less is no improvement
FALL_FRAC = 0.05  # of the training loss: that it must have fallen meanwhile
