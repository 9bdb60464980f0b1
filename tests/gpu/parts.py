"""The parts of the GPU check, in full or for a lease, by what they tell a second."""
from typing import Callable, NamedTuple

import checks
import measurements


class Part(NamedTuple):
    run: Callable  # (Machine, Report)
    needs_s: int   # what its first piece takes on an H100: in a lease it does not begin with less
    lease_s: int   # what it gets of a lease: some twice of what all of it takes
    is_benchmark: bool = False

    @property
    def name(self):
        return self.run.__name__

    @property
    def title(self):
        return " ".join(self.run.__doc__.split())


PARTS = (
    Part(measurements.first_steps, 20, 60),
    Part(checks.two_ranks, 30, 120),
    Part(checks.kernels, 30, 120),
    Part(measurements.speed, 25, 150, is_benchmark=True),
    Part(measurements.images, 25, 150, is_benchmark=True),
    Part(checks.precisions, 40, 180),
    Part(checks.sanitizer, 20, 150),
    # A lease of nine minutes seldom comes here.
    Part(checks.refusals, 10, 30),
    Part(measurements.ops, 30, 100, is_benchmark=True),
    Part(measurements.tuning, 60, 150, is_benchmark=True),
    Part(checks.bits, 60, 240),
    Part(checks.parity, 60, 240),
    Part(checks.ranks, 60, 480),
    Part(measurements.models, 60, 480, is_benchmark=True),
    Part(measurements.lanes, 30, 120, is_benchmark=True),
    Part(measurements.more_images, 60, 480, is_benchmark=True),
)
