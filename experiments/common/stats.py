"""Medians with intervals that assume nothing about how the samples are distributed."""

import math


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def quantile(values, share):
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def median_ranks(n, confidence=0.95):
    """Ranks (from 0) of the narrowest symmetric order-statistic interval of the median that holds
    it with at least this confidence, and the confidence that it has. The number of samples below
    the median is binomial with p = 1/2, whatever the distribution. For n < 6 no interval reaches
    95%: then it is the whole range, with what confidence that gives."""
    best = (0, n - 1, 1 - 2 * 0.5**n)
    for low in range(n // 2):
        # The interval misses when fewer than low + 1 samples lie on one side of the median.
        missed = 2 * sum(math.comb(n, k) for k in range(low + 1)) / 2**n
        if 1 - missed < confidence:
            break
        best = (low, n - 1 - low, 1 - missed)
    return best


def interval(values, confidence=0.95):
    """(median, low, high, confidence) of the samples."""
    ordered = sorted(values)
    low, high, reached = median_ranks(len(ordered), confidence)
    return median(ordered), ordered[low], ordered[high], reached


def geometric(first, factor, count):
    """`count` values from `first` to `first * factor`, each the same multiple of the one before."""
    return [first * factor ** (k / (count - 1)) for k in range(count)]
