#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes include/tutti/data/unicode_tables.hpp: which characters are letters, digits, marks and spaces, and how they
compose. The tables are those of Unicode 16.0.0, from the package unicodedata2 16.0.0 (`pip install unicodedata2==16.0.0`);
Python's own unicodedata serves where it has that version. Without an argument the file is written, --check compares."""
import argparse
import pathlib
import sys

VERSION = '16.0.0'
TARGET = pathlib.Path(__file__).resolve().parent.parent / 'include/tutti/data/unicode_tables.hpp'


def database():
    try:
        import unicodedata2 as unicode
    except ImportError:
        import unicodedata as unicode
    if unicode.unidata_version != VERSION:
        sys.exit(f'make_unicode_tables.py needs Unicode {VERSION} and has {unicode.unidata_version}. '
                 f'Install the package: pip install unicodedata2=={VERSION}')
    return unicode


def varint(value):
    """Digits of base 64 in printable characters; all but the last of a number are marked by bit 5."""
    alphabet = [chr(code) for code in range(ord('#'), 128) if chr(code) not in '?\\']
    text = ''
    while value >= 32:
        text += alphabet[32 + value % 32]
        value //= 32
    return text + alphabet[value]


def ranges_of(unicode, wanted):
    """Lengths of runs: outside, inside, outside, ... from code point 0 on."""
    text, inside, since = '', False, 0
    for code in range(0x110000):
        if (unicode.category(chr(code))[0] in wanted) != inside:
            text += varint(code - since)
            inside, since = not inside, code
    return text + (varint(0x110000 - since) if inside else '')


def composition(unicode):
    """Canonical mappings: distance to the code point before, then 1 + first, then second or 0."""
    text, before = '', 0
    for code in range(0x110000):
        mapping = unicode.decomposition(chr(code))
        if not mapping or mapping.startswith('<'):
            continue
        parts = [int(part, 16) for part in mapping.split()]
        text += varint(code - before) + varint(parts[0]) + varint(parts[1] if len(parts) == 2 else 0)
        # A character that does not come back (singletons aside: they have no second part) is excluded from composing.
        if len(parts) == 2:
            excluded = unicode.normalize('NFC', chr(parts[0]) + chr(parts[1])) != chr(code)
            text += varint(1 if excluded else 0)
        before = code
    return text


def combining(unicode):
    """Runs of equal combining class: distance from the end of the last run, length, class."""
    text, end, code = '', 0, 0
    while code < 0x110000:
        kind = unicode.combining(chr(code))
        if kind == 0:
            code += 1
            continue
        begin = code
        while unicode.combining(chr(code)) == kind:
            code += 1
        text += varint(begin - end) + varint(code - begin) + varint(kind)
        end = code
    return text


def quoted(name, comment, text):
    lines = [text[i:i + 114] for i in range(0, len(text), 114)]
    return f'/// {comment}\ninline constexpr std::string_view {name} =\n' + '\n'.join(
        f'    "{line}"' for line in lines) + ';\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--check', action='store_true', help='compare the file instead of writing it')
    arguments = parser.parse_args()
    unicode = database()
    text = f'''// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tables of Unicode {VERSION}, packed. Written by scripts/make_unicode_tables.py; do not edit.

#include <string_view>

namespace tutti::data::detail {{

'''
    text += quoted('packed_letters', 'General category L: lengths of runs, outside and inside in turn.',
                   ranges_of(unicode, 'L'))
    text += quoted('packed_numbers', 'General category N, alike.', ranges_of(unicode, 'N'))
    text += quoted('packed_combining', 'Canonical combining classes: gap, length and class of each run.',
                   combining(unicode))
    text += quoted('packed_decompositions', 'Canonical mappings: gap, first, second or 0; of two parts, 1 if excluded.',
                   composition(unicode))
    text += '\n}  // namespace tutti::data::detail\n'
    if arguments.check:
        sys.exit(0 if TARGET.read_text() == text else f'{TARGET} is not what this script writes. Run it again')
    TARGET.write_text(text)


main()
