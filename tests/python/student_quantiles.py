#!/usr/bin/env python3
"""The quantiles of Student's t by which sweeps give intervals, against published ones and against integrated densities.

  student_quantiles.py PATH/TO/experiments
"""
import math
import sys

sys.path.insert(0, sys.argv[1])
import sweep  # noqa: E402

# Two-sided 95%, from the table of the NIST handbook, 1.3.6.7.2.
PUBLISHED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
             11: 2.201, 12: 2.179, 19: 2.093, 20: 2.086, 29: 2.045, 30: 2.042, 60: 2.000, 100: 1.984}


def density(t, freedom):
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(log_scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def integrated(t, freedom, pieces=20000):
    """Simpson's rule from -t to t."""
    step = t / pieces
    values = [density(i * step, freedom) for i in range(pieces + 1)]
    return 2 * step / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))


if __name__ == "__main__":
    for freedom, expected in PUBLISHED.items():
        assert abs(sweep.student_quantile(freedom) - expected) < 6e-4, (freedom, sweep.student_quantile(freedom))
    for freedom in (1, 2, 3, 10, 11, 49, 1000):
        for probability in (0.5, 0.9, 0.95, 0.99):
            t = sweep.student_quantile(freedom, probability)
            assert abs(integrated(t, freedom) - probability) < 1e-7, (freedom, probability, t)
