#!/usr/bin/env python3
"""Writes runtime/tokenizer/unicode_corrections.h: where the classes of characters that Hugging
Face's `tokenizers` package goes by differ from those of utf8proc, code point by code point.

  unicode_corrections.py > runtime/tokenizer/unicode_corrections.h

Needs the package and libutf8proc. The package's parts follow Unicode of several years, so each
class is asked for through the part that uses it.
"""
import ctypes

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf "
              "Cs Co").split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LIBRARY = ctypes.CDLL("libutf8proc.so.2")
# The bits of CharClass in runtime/tokenizer/unicode.h.
(LETTER, NUMBER, SPACE, NUMERIC, PUNCTUATION, NONSPACING, MARK, CONTROL, WORD, INERT, UPPER,
 LOWER) = (1 << i for i in range(12))
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}
WORD_SYMBOLS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                *range(0x1F170, 0x1F18A), 0x200C, 0x200D}


def by_library(c):
    """The bits that unicode.cc gives a code point before the corrections."""
    category = CATEGORIES[LIBRARY.utf8proc_category(c)]
    bits = 0
    if category[0] == "L":
        bits |= LETTER | WORD
        bits |= LOWER if category != "Lu" and category != "Lt" else 0
        bits |= UPPER if category != "Ll" else 0
    if category[0] == "N":
        bits |= NUMBER | NUMERIC | (WORD if category != "No" else 0)
    if category[0] == "M":
        bits |= MARK | WORD | UPPER | LOWER | (NONSPACING if category == "Mn" else 0)
    if category[0] == "P" or chr(c) in "$+<=>^`|~":
        bits |= PUNCTUATION | (WORD if category == "Pc" else 0)
    if category in ("Cc", "Cf", "Co") and c not in (9, 10, 13):
        bits |= CONTROL
    return bits | (SPACE if c in SPACES else 0) | (WORD if c in WORD_SYMBOLS else 0)


def normalized_by_library(text, options):
    data, result = text.encode(), ctypes.c_void_p()
    LIBRARY.utf8proc_map.restype = ctypes.c_ssize_t
    LIBRARY.utf8proc_map.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t,
                                     ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
    size = LIBRARY.utf8proc_map(data, len(data), ctypes.byref(result), options)
    mapped = ctypes.string_at(result, size).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(result)
    return mapped


def is_inert(c):
    """Whether the package's normal forms leave a code point as it is where utf8proc's do not."""
    compose, decompose, compatible = 2 | 8, 2 | 16, 4
    for name, options in (("NFC", compose), ("NFD", decompose), ("NFKC", compose | compatible),
                          ("NFKD", decompose | compatible)):
        normalizer = getattr(normalizers, name)()
        for text in (chr(c), f"a{chr(c)}\u0323\u0301", f"a\u0301{chr(c)}"):
            if normalizer.normalize_str(text) != normalized_by_library(text, options):
                return True
    return False


def by_package():
    """A function that gives the bits of a code point as the package has them."""

    def matches(pattern):
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        return lambda c: split.pre_tokenize_str("\1" + chr(c)) == [("\1", (0, 1))]

    def is_split(splitter):
        return lambda c: len(splitter.pre_tokenize_str("a" + chr(c))) == 2

    def is_removed(normalizer):
        return lambda c: normalizer.normalize_str("a" + chr(c)) == "a"

    space = pre_tokenizers.WhitespaceSplit()
    word = pre_tokenizers.Whitespace()
    bert = normalizers.BertNormalizer
    clean = is_removed(bert(True, False, False, False))
    tests = {
        LETTER: matches(r"\p{L}"), NUMBER: matches(r"\p{N}"),
        SPACE: lambda c: space.pre_tokenize_str("a" + chr(c)) == [("a", (0, 1))],
        NUMERIC: is_split(pre_tokenizers.Digits(True)),
        PUNCTUATION: is_split(pre_tokenizers.Punctuation()),
        NONSPACING: is_removed(bert(False, False, True, False)),
        MARK: is_removed(normalizers.StripAccents()),
        CONTROL: lambda c: c not in (0, 0xFFFD) and clean(c),
        WORD: lambda c: word.pre_tokenize_str("a" + chr(c)) == [("a" + chr(c), (0, 2))],
        INERT: is_inert,
        UPPER: matches(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"),
        LOWER: matches(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"),
    }
    return lambda c: sum(bit for bit, test in tests.items() if test(c))


def runs(rows, follows):
    """Lists of consecutive rows, each of which follows the one before."""
    groups = []
    for row in rows:
        if groups and follows(groups[-1][-1], row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def printed(values):
    lines, line = [], "   "
    for value in values:
        if len(line) + len(value) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line])


def main():
    package = by_package()
    LIBRARY.utf8proc_unicode_version.restype = ctypes.c_char_p
    wrong = [(c, bits) for c, bits in ((c, package(c)) for c in CODE_POINTS)
             if bits != (by_library(c) | (CONTROL if c == 0 else 0)) and c != 0]
    classes = [f"{{0x{run[0][0]:X}, 0x{run[-1][0]:X}, 0x{run[0][1]:X}}}" for run in
               runs(wrong, lambda a, b: b[0] == a[0] + 1 and b[1] == a[1])]
    lower = normalizers.Lowercase()
    pairs = [(c, [ord(x) for x in lower.normalize_str(chr(c))]) for c in CODE_POINTS]
    pairs = [(c, to[0]) for c, to in pairs
             if len(to) == 1 and to[0] != LIBRARY.utf8proc_tolower(c)]
    mapped = [f"{{0x{run[0][0]:X}, 0x{run[-1][0]:X}, 0x{run[0][1]:X}}}" for run in
              runs(pairs, lambda a, b: b[0] == a[0] + 1 and b[1] == a[1] + 1)]
    version = LIBRARY.utf8proc_unicode_version().decode()
    print(f"""#pragma once
// The classes of characters for which Hugging Face's tokenizers differ from utf8proc with Unicode
// {version}. Generated by tests/tools/unicode_corrections.py.

#include <cstdint>

namespace lockstep::tokenizer {{

// Code points from first to last have exactly these bits of CharClass.
struct CorrectedClass {{
  uint32_t first, last;
  uint16_t classes;
}};

// The lower case of code points first to last are those that start at `lower`.
struct CorrectedLowercase {{
  uint32_t first, last, lower;
}};

// clang-format off
inline constexpr CorrectedClass kCorrectedClasses[] = {{
{printed(classes)}
}};

inline constexpr CorrectedLowercase kCorrectedLowercase[] = {{
{printed(mapped)}
}};
// clang-format on

}}  // namespace lockstep""")


if __name__ == "__main__":
    main()
