#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times a model from a GGUF file, this library beside llama.cpp, in one run.

  --model FILE     the GGUF file
  --llama PYTHON   an interpreter that has llama-cpp-python, built from source for this processor (pip install
                   llama-cpp-python); without it this library is measured alone, which is said
  --threads N      of each contender (default: all processors)
  --rounds N       passes in which contenders take turns (default 5); the median counts

First the ids of texts and 64 tokens that follow, drawn greedily, are compared. Then a prompt of 512 tokens, 128 single
tokens, and 64 tokens of 8 sequences at once; load time, peak memory, and what share of the memory's read rate in this
run the single tokens reach.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get('TUTTI_BUILD', ROOT / 'build'))
TEXTS = ['The capital of France is', 'Once upon a time', 'def fibonacci(n):', 'The three laws of thermodynamics are',
         'Dear Sir or Madam,']
RIVAL = r'''
import resource, sys, time
import llama_cpp
from llama_cpp import Llama
begin = time.perf_counter()
threads = int(sys.argv[2])
model = Llama(sys.argv[1], n_ctx=8 * 1024, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512, n_seq_max=8,
              verbose=False) if 'n_seq_max' in Llama.__init__.__code__.co_varnames else \
        Llama(sys.argv[1], n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
print('loaded', time.perf_counter() - begin, flush=True)
vocabulary = model.n_vocab()
def tokens(count, seed):
    return [(1000 + i * 7 + seed * 131) % vocabulary for i in range(count)]
stdin = sys.stdin.buffer
while line := stdin.readline().split():
    command, values = line[0].decode(), [int(word) for word in line[1:]]
    if command == 'text':
        ids = model.tokenize(stdin.read(values[1]), add_bos=False)
        stdin.readline()
        drawn = []
        model.reset()
        for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
            drawn.append(token)
            if len(drawn) == values[0]:
                break
        print(*ids, '|', *drawn, flush=True)
    elif command == 'prefill':
        model.reset()
        given = tokens(values[0], 0)
        begin = time.perf_counter()
        model.eval(given)
        print(time.perf_counter() - begin, flush=True)
    elif command == 'decode':
        model.reset()
        begin = time.perf_counter()
        for i in range(values[0]):
            model.eval(tokens(1, i))
        print(time.perf_counter() - begin, flush=True)
    elif command == 'memory':
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
    else:
        break
'''


class Contender:
    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.loaded = self.line().split()

    def line(self):
        text = self.process.stdout.readline().decode()
        if not text:
            sys.exit(f'bench generate: {self.name} ended with code {self.process.wait()}')
        return text.strip()

    def ask(self, command, data=b''):
        self.process.stdin.write(command.encode() + b'\n' + data + (b'\n' if data else b''))
        self.process.stdin.flush()
        return self.line()

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', required=True)
    parser.add_argument('--llama')
    parser.add_argument('--threads', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--rounds', type=int, default=5)
    arguments = parser.parse_args()
    subprocess.run(['ninja', '-C', BUILD, 'benchmarks/generate_speed'], check=True, stdout=sys.stderr)
    own = Contender('tutti', [BUILD / 'benchmarks/generate_speed', arguments.model, str(arguments.threads)])
    contenders = [own]
    if arguments.llama:
        contenders.append(Contender('llama.cpp', [arguments.llama, '-c', RIVAL, arguments.model, str(arguments.threads)]))
    else:
        print('SKIPPED: llama.cpp, there is no --llama PYTHON')

    same = total = 0
    for text in TEXTS:
        answers = [c.ask(f'text 64 {len(text.encode())}', text.encode()).split('|') for c in contenders]
        for (ids, drawn) in answers[1:]:
            if ids.split() != answers[0][0].split():
                sys.exit(f'bench generate: the ids of {text!r} differ')
            total += 1
            first = next((i for i, (a, b) in enumerate(zip(answers[0][1].split(), drawn.split())) if a != b), None)
            same += first is None
            if first is not None:
                print(f'{text!r}: greedy tokens differ from the {first + 1}. on')
    if total:
        print(f'greedy texts of 64 tokens: {same} of {total} the same')

    rows = {'prefill 512': ('prefill 512', 512), 'decode 128': ('decode 128', 128)}
    seconds = {(row, c.name): [] for row in rows for c in contenders}
    batch = []
    for _ in range(arguments.rounds):
        for row, (command, _) in rows.items():
            for contender in contenders:
                seconds[row, contender.name].append(float(contender.ask(command)))
        batch.append(float(own.ask('batch 8 64')))
    print(f'{"":14}' + ''.join(f'{c.name + ", tokens/s":>24}' for c in contenders) + ('        ratio' if total else ''))
    for row, (_, count) in rows.items():
        rates = [count / statistics.median(seconds[row, c.name]) for c in contenders]
        print(f'{row:14}' + ''.join(f'{rate:24.1f}' for rate in rates) + (f'{rates[0] / rates[1]:13.2f}' if total else ''))
    decode = 128 / statistics.median(seconds['decode 128', 'tutti'])
    together = 8 * 64 / statistics.median(batch)
    print(f'{"batch 8":14}{together:24.1f}   {together / decode:.2f} of a single sequence')
    read = float(own.ask('read'))
    weights = float(own.loaded[2])
    print(f'read rate {read / 1e9:.1f} GB/s; single tokens read {weights * decode / 1e9:.1f} GB/s of weights: '
          f'{100 * weights * decode / read:.0f} %')
    for contender in contenders:
        print(f'{contender.name}: loaded in {float(contender.loaded[1]):.2f} s, peak memory '
              f'{float(contender.ask("memory")) / 1e6:.0f} MB')
        contender.end()


if __name__ == '__main__':
    main()
