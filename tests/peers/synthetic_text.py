"""Samples of data.synthetic for encoders of text, as runtime/data/text/synthetic_text.cc makes them.

A second hand at the same formulas, so that a network of PyTorch can be given the same samples.
"""
import math

import numpy

LENGTHS, LABELS, WORDS, HIDING, MEANING = range(16, 21)  # streams
SYNTHETIC = 5 << 24  # RngPurpose
HIDDEN = 0x24924925
MASK32 = 0xFFFFFFFF


def philox_word(seed, purpose, i):
    """Word i of the stream (Philox 4x32-10)."""
    block = i >> 2
    c = [block & MASK32, (block >> 32) ^ purpose, 0, 0]
    key = [seed & MASK32, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & MASK32, (p0 >> 32) ^ c[3] ^ key[1], p0 & MASK32]
        key = [(key[0] + 0x9E3779B9) & MASK32, (key[1] + 0xBB67AE85) & MASK32]
    return c[i & 3]


def bounded(word, bound):
    return word * bound >> 32


class SyntheticText:
    """task: masked_tokens, sequence_classes, sequence_values or token_classes."""

    def __init__(self, task, context, vocabulary, segments, outputs, seed=1):
        self.task, self.context, self.vocabulary = task, context, vocabulary
        self.segments, self.outputs, self.seed = segments, outputs, seed

    def draw(self, stream, i):
        return philox_word(self.seed, SYNTHETIC | stream, i)

    def below(self, stream, i, bound):
        return bounded(self.draw(stream, i), bound)

    def tokens(self, row, length, label):
        of_class = self.task == "sequence_classes" and self.outputs <= self.vocabulary
        hides = self.task == "masked_tokens" and self.vocabulary > 1
        words = self.vocabulary - 1 if hides else self.vocabulary
        factor = words * 5 // 8 + 1
        while math.gcd(factor, words) != 1:
            factor += 1
        tokens, token = numpy.zeros(self.context, numpy.int64), 0
        for t in range(length):
            word = self.draw(WORDS, row * self.context + t)
            if of_class and word & 1:
                multiples = (self.vocabulary - label + self.outputs - 1) // self.outputs
                token = label + self.outputs * bounded(word, multiples)
            elif t == 0 or word & 7 == 0 or of_class:
                token = bounded(word, words)
            else:
                token = (factor * token + 7) % words
            tokens[t] = token
        return tokens

    def sample(self, row):
        """Rows (4, T): tokens, documents, positions, segments; and the target."""
        time = self.context
        length = 1 + self.below(LENGTHS, 2 * row, time)
        second = (self.below(LENGTHS, 2 * row + 1, length + 1) if self.segments > 1 else length)
        label = self.below(LABELS, row, self.outputs) if self.outputs else 0
        tokens = self.tokens(row, length, label)
        at = numpy.arange(time)
        inside = at < length
        target = numpy.full(time, -1)
        if self.task == "masked_tokens":
            for t in range(length):
                if self.draw(HIDING, row * time + t) < HIDDEN:
                    target[t], tokens[t] = tokens[t], self.vocabulary - 1
        elif self.task == "token_classes":
            for t in range(length):
                target[t] = self.below(MEANING, int(tokens[t]), self.outputs)
        elif self.task == "sequence_values":
            counts = [sum(self.draw(MEANING, o * self.vocabulary + int(token)) & 1
                          for token in tokens[:length]) for o in range(self.outputs)]
            target = numpy.array([2 * numpy.float32(n) / numpy.float32(length) - 1
                                  for n in counts], numpy.float32)
        else:
            target = label
        rows = numpy.stack([tokens, numpy.where(inside, 0, -1), numpy.where(inside, at, 0),
                            numpy.where(inside & (at >= second), 1, 0)])
        return rows, target

    def samples(self, count):
        """(count, 4, T) and the targets."""
        all_of = [self.sample(row) for row in range(count)]
        return numpy.stack([s[0] for s in all_of]), numpy.stack([s[1] for s in all_of])
