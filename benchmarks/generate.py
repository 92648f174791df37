#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times a model from a GGUF file, this library beside llama.cpp, in one run.

  --model FILE     the GGUF file
  --llama PYTHON   an interpreter that has llama-cpp-python, built from source for this processor (pip install
                   llama-cpp-python); without it this library is measured alone, which is said
  --threads N      of each contender (default: all processors)
  --rounds N       passes in which contenders take turns (default 5); the median counts

First the ids of texts and 64 tokens that follow, drawn greedily, are compared: of the model's weights in F32, where they
must be the same, then of the file itself. Where weights are quantised, activations are rounded to 8 bits, and what
differs in the last bit of a sum is soon a whole step of such a rounding: how often llama.cpp agrees with itself when its
hidden state is moved by 1e-7 is printed beside it. Then a prompt of 512 tokens, 128 single tokens, and 64 tokens of 8
sequences at once; load time, peak memory, and what share of the memory's read rate in this run the single tokens reach.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get('TUTTI_BUILD', ROOT / 'build'))
TEXTS = ['The capital of France is', 'Once upon a time', 'def fibonacci(n):', 'The three laws of thermodynamics are',
         'Dear Sir or Madam,', 'Water boils at', 'In 1969, Neil Armstrong', 'The history of Rome begins', 'import numpy as np\n',
         'She opened the door and']
RIVAL = r'''
import ctypes, resource, sys, time
import llama_cpp
import numpy
from llama_cpp import Llama
begin = time.perf_counter()
threads = int(sys.argv[2])
model = Llama(sys.argv[1], n_ctx=8 * 1024, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512, n_seq_max=8,
              verbose=False) if 'n_seq_max' in Llama.__init__.__code__.co_varnames else \
        Llama(sys.argv[1], n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
print('loaded', time.perf_counter() - begin, flush=True)
if len(sys.argv) > 3:
    width, layers = llama_cpp.llama_model_n_embd(model.model), llama_cpp.llama_model_n_layer(model.model)
    moved = (numpy.random.default_rng(1).standard_normal(width * layers) * float(sys.argv[3])).astype(numpy.float32)
    if llama_cpp.llama_set_adapter_cvec(model.ctx, moved.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), moved.size, width, 1,
                                        layers) != 0:
        sys.exit('the hidden state cannot be moved')
vocabulary = model.n_vocab()
several = None
def batch(sequences, count):
    """Seconds of `count` tokens of each of several sequences, a token of all of them a call."""
    global several
    if several is None:
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = 1024 * sequences, 512, 512, sequences
        options.n_threads = options.n_threads_batch = threads
        several = llama_cpp.llama_init_from_model(model.model, options)
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(several), True)
    call = llama_cpp.llama_batch_init(sequences, 0, 1)
    call.n_tokens = sequences
    given = [tokens(count, s) for s in range(sequences)]
    begin = time.perf_counter()
    for i in range(count):
        for s in range(sequences):
            call.token[s], call.pos[s] = given[s][i], i
            call.n_seq_id[s], call.seq_id[s][0], call.logits[s] = 1, s, True
        if llama_cpp.llama_decode(several, call) != 0:
            sys.exit('llama_decode failed')
    seconds = time.perf_counter() - begin
    llama_cpp.llama_batch_free(call)
    return seconds
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
    elif command == 'batch':
        print(batch(*values), flush=True)
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


def own_contender(model, threads):
    return Contender('tutti', [BUILD / 'benchmarks/generate_speed', model, str(threads)])


def llama_contender(python, model, threads, *moved):
    return Contender('llama.cpp', [python, '-c', RIVAL, model, str(threads), *moved])


def drawn(contender):
    """For each text its ids and the tokens that follow."""
    answers = [contender.ask(f'text 64 {len(text.encode())}', text.encode()).split('|') for text in TEXTS]
    return [(ids.split(), tokens.split()) for ids, tokens in answers]


def alike(label, ours, theirs):
    """Prints how many of the texts are the same; whether all are."""
    apart = []
    for text, (ids, tokens), (other_ids, other_tokens) in zip(TEXTS, ours, theirs):
        if ids != other_ids:
            sys.exit(f'bench generate: the ids of {text!r} differ')
        apart += [i for i, (a, b) in enumerate(zip(tokens, other_tokens)) if a != b][:1]
    behind = f'; the others part behind {", ".join(str(i) for i in apart)} tokens' if apart else ''
    print(f'{label}: {len(TEXTS) - len(apart)} of {len(TEXTS)} greedy texts of 64 tokens the same{behind}', flush=True)
    return not apart


def compare_texts(arguments, own, llama):
    with tempfile.TemporaryDirectory() as folder:
        exact = os.path.join(folder, 'f32.gguf')
        subprocess.run([BUILD / 'examples/convert', '--from', arguments.model, '--to', exact, '--type', 'f32'], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pair = [own_contender(exact, arguments.threads), llama_contender(arguments.llama, exact, arguments.threads)]
        same = alike('weights in F32', *(drawn(contender) for contender in pair))
        for contender in pair:
            contender.end()
    if not same:
        sys.exit('bench generate: where nothing is rounded to 8 bits, greedy texts must be the same')
    theirs = drawn(llama)
    alike('the file itself', drawn(own), theirs)
    moved = llama_contender(arguments.llama, arguments.model, arguments.threads, '1e-7')
    alike('llama.cpp and itself, moved by 1e-7', drawn(moved), theirs)
    moved.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', required=True)
    parser.add_argument('--llama')
    parser.add_argument('--threads', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--rounds', type=int, default=5)
    arguments = parser.parse_args()
    subprocess.run(['ninja', '-C', BUILD, 'benchmarks/generate_speed', 'examples/convert'], check=True, stdout=sys.stderr)
    own = own_contender(arguments.model, arguments.threads)
    contenders = [own]
    if arguments.llama:
        contenders.append(llama_contender(arguments.llama, arguments.model, arguments.threads))
        compare_texts(arguments, *contenders)
    else:
        print('SKIPPED: llama.cpp, there is no --llama PYTHON')
    compared = len(contenders) > 1

    rows = {'prefill 512': ('prefill 512', 512), 'decode 128': ('decode 128', 128), 'batch 8': ('batch 8 64', 8 * 64)}
    seconds = {(row, c.name): [] for row in rows for c in contenders}
    for _ in range(arguments.rounds):
        for row, (command, _) in rows.items():
            for contender in contenders:
                seconds[row, contender.name].append(float(contender.ask(command)))
    print(f'{"":14}' + ''.join(f'{c.name + ", tokens/s":>24}' for c in contenders) + ('        ratio' if compared else ''))
    for row, (_, count) in rows.items():
        rates = [count / statistics.median(seconds[row, c.name]) for c in contenders]
        print(f'{row:14}' + ''.join(f'{rate:24.1f}' for rate in rates) + (f'{rates[0] / rates[1]:13.2f}' if compared else ''))
    decode = 128 / statistics.median(seconds['decode 128', 'tutti'])
    print(f'8 sequences at once: {8 * 64 / statistics.median(seconds["batch 8", "tutti"]) / decode:.2f} of one')
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
