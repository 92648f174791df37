#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times the encoding of text, this library beside tiktoken and Hugging Face's tokenizers, on one core, in one run.

  --python PYTHON  an interpreter that has tiktoken and tokenizers (pip install tiktoken tokenizers); a rival that is not
                   there is left out, loudly
  --ranks FILE     tiktoken's rank file, with --pre NAME (cl100k, llama-bpe, qwen2, gpt-2)
  --json FILE      the tokenizer.json of the same vocabulary, for Hugging Face's tokenizers
  --text FILE ...  texts (default: this repository's own sources and pages)

Texts are cut into documents of about 100 kB. The ids of every document must agree before anything is timed; contenders
then take turns, and the median of the passes counts. --verify-only stops behind the comparison: with texts of many
scripts and random bytes, seeded, it is the check that the ids are those of the rivals.
"""
import argparse
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get('TUTTI_BUILD', ROOT / 'build'))
RIVAL = r'''
import base64, json, os, struct, sys, time
os.environ['RAYON_NUM_THREADS'] = '1'
os.environ['TOKENIZERS_PARALLELISM'] = 'false'
kind, file, pattern, repeat, only = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
data, texts, at = open(only, 'rb').read(), [], 0
while at < len(data):
    size, = struct.unpack_from('<I', data, at)
    texts.append(data[at + 4:at + 4 + size].decode())
    at += 4 + size
if kind == 'tiktoken':
    import tiktoken
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(file, 'rb') if line.strip())}
    encode = tiktoken.Encoding('x', pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary
else:
    import tokenizers
    model = tokenizers.Tokenizer.from_file(file)
    model.encode_special_tokens = True
    encode = lambda text: model.encode(text, add_special_tokens=False).ids
for text in texts:
    ids = encode(text)
    sys.stdout.buffer.write(struct.pack(f'<I{len(ids)}i', len(ids), *ids))
for _ in range(repeat):
    begin = time.perf_counter()
    for text in texts:
        encode(text)
    print(time.perf_counter() - begin, file=sys.stderr)
'''
PATTERNS = {
    'gpt-2': r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    'llama-bpe': r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    'qwen2': r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    'cl100k': r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
              r"|\s*[\r\n]|\s+(?!\S)|\s"}


def documents(paths):
    text = ''.join(pathlib.Path(path).read_text(errors='replace') for path in paths)
    return [text[at:at + 100_000] for at in range(0, len(text), 100_000)]


def mixed(seed, count):
    """Short texts: pieces of many scripts, marks, spaces and random bytes."""
    draw = random.Random(seed)
    parts = ["don't WE'LL it's", 'Быстрая лиса', '快速的狐狸。', '素早い茶色', '빠른 갈색', 'الثعلب البني', 'השועל', 'तेज़ भूरी',
             'ภาษาไทย', 'Γρήγορη', '😀👩‍👩‍👧 🇩🇪', 'e\u0301a\u0308', '1234567 ٣٤٥ ½', ' \t\r\n\n  x', '!!!--->> {}', "ſ 'ſ K",
             '\u00a0\u2003\u3000\u200b', '<|endoftext|>']
    texts = []
    for number in range(count):
        if number % 3 == 0:
            data = bytes(draw.randrange(256) for _ in range(draw.randint(1, 80)))
            texts.append(data.decode(errors='replace'))
        else:
            texts.append(''.join(draw.choice(parts)[draw.randint(0, 2):] + draw.choice(['', ' ', '\n', '  ', '7'])
                                 for _ in range(draw.randint(1, 12))))
    return texts + [' ' * 3000, '\n' * 2000, 'ab' * 3000, '-' * 4000]


def run(command, packed, by_file):
    result = subprocess.run(command, input=None if by_file else packed, capture_output=True)
    if result.returncode != 0:
        return None, result.stderr.decode(errors='replace').strip().splitlines()[-1:]
    return result.stdout, [float(line.split()[0]) for line in result.stderr.decode().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--ranks')
    parser.add_argument('--json')
    parser.add_argument('--pre', default='cl100k', choices=sorted(PATTERNS))
    parser.add_argument('--text', nargs='*')
    parser.add_argument('--turns', type=int, default=3)
    parser.add_argument('--verify-only', action='store_true')
    arguments = parser.parse_args()
    if not arguments.ranks and not arguments.json:
        print('SKIPPED: no vocabulary. Give --ranks FILE (of tiktoken) or --json FILE (tokenizer.json)')
        return
    if subprocess.run(['ninja', '-C', str(BUILD), 'benchmarks/tokenizer_encode'], stdout=subprocess.DEVNULL).returncode:
        sys.exit('tokenizer.py: tokenizer_encode was not built')
    paths = arguments.text or sorted(map(str, [*ROOT.glob('docs/**/*.md'), *ROOT.glob('include/**/*.hpp'),
                                               *ROOT.glob('tests/**/*.cpp')]))
    texts = documents(paths)
    if arguments.verify_only:
        texts += mixed(1, 6000)
    packed = b''.join(struct.pack('<I', len(data)) + data for data in (text.encode() for text in texts))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    repeat = 0 if arguments.verify_only else 5
    tool = str(BUILD / 'benchmarks/tokenizer_encode')
    with tempfile.NamedTemporaryFile() as file:
        file.write(packed)
        file.flush()
        rival = lambda kind, path: [arguments.python, '-c', RIVAL, kind, path, PATTERNS[arguments.pre], str(repeat), file.name]
        rows = {}
        if arguments.ranks:
            rows['tutti'] = [tool, 'ranks', arguments.ranks, '--pre', arguments.pre, '--repeat', str(repeat)]
            rows['tiktoken'] = rival('tiktoken', arguments.ranks)
        if arguments.json:
            rows['tutti, tokenizer.json'] = [tool, 'json', arguments.json, '--repeat', str(repeat)]
            rows['tokenizers'] = rival('tokenizers', arguments.json)
        seconds, first = {name: [] for name in rows}, None
        for turn in range(1 if arguments.verify_only else arguments.turns):
            for name, command in list(rows.items()):
                ids, times = run(command, packed, not name.startswith('tutti'))
                if ids is None:
                    if name.startswith('tutti'):
                        sys.exit(f'tokenizer.py: {name} failed: {times}')
                    print(f'SKIPPED: {name}: {times}')
                    del rows[name]
                    continue
                if first is not None and ids != first:
                    sys.exit(f'tokenizer.py: the ids of {name} differ from those of {next(iter(rows))}')
                first = ids
                seconds[name] += times
    said = f'the same ids from {", ".join(rows)}'
    if all(name.startswith('tutti') for name in rows):
        said = 'no rival was there, so that ids were compared with nobody else\'s'
    print(f'{len(texts)} texts, {megabytes:.1f} MB: {said}')
    if arguments.verify_only:
        return
    base = statistics.median(seconds[next(iter(rows))])
    for name in rows:
        median = statistics.median(seconds[name])
        print(f'{name:24} {megabytes / median:8.1f} MB/s   {median / base:6.2f}x the time of the first row')


main()
