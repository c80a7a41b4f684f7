"""ROUGE from its definitions, by brute force, for texts of small letters without stems.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, sections 2 and 3; matches over
sentences are clipped by the words of both texts, and of several longest common subsequences the
one is taken that ROUGE-1.5.5 takes.
"""

import functools
import itertools


def joined(sentences):
    return list(itertools.chain(*sentences))


def grams(words, n):
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def matches(summary, reference):
    """How many of one list can be crossed out in the other, one for one."""
    left, number = list(reference), 0
    for gram in summary:
        if gram in left:
            left.remove(gram)
            number += 1
    return number


def longest(reference, summary):
    """The places in the reference of a longest common subsequence."""

    @functools.cache
    def places(i, j):
        if not i or not j:
            return ()
        if reference[i - 1] == summary[j - 1]:
            return (*places(i - 1, j - 1), i - 1)
        up, left = places(i - 1, j), places(i, j - 1)
        return up if len(up) >= len(left) else left

    return places(len(reference), len(summary))


def union_matches(summaries, references):
    """Over sentences: words of the references in a subsequence common with any of a summary."""
    left = [joined(summaries), joined(references)]
    number = 0
    for reference in references:
        union = {place for summary in summaries for place in longest(reference, summary)}
        for place in sorted(union):
            if all(reference[place] in words for words in left):
                number += 1
                for words in left:
                    words.remove(reference[place])
    return number


def percent(found, in_summary, in_references):
    precision = found / in_summary if in_summary else 0
    recall = found / in_references if in_references else 0
    f1 = 2 * precision * recall / (precision + recall) if found else 0
    return 100 * precision, 100 * recall, 100 * f1


def rouge(summary, references):
    """Of sentences of words: rouge1, rouge2 and rougeL, each precision, recall and F1."""
    flat, results = joined(summary), {}
    for name, n in (("rouge1", 1), ("rouge2", 2)):
        pairs = [(grams(flat, n), grams(joined(reference), n)) for reference in references]
        results[name] = percent(
            sum(matches(*pair) for pair in pairs),
            sum(len(pair[0]) for pair in pairs),
            sum(len(pair[1]) for pair in pairs),
        )
    results["rougeL"] = percent(
        sum(union_matches(summary, reference) for reference in references),
        len(flat) * len(references),
        sum(len(joined(reference)) for reference in references),
    )
    return results
