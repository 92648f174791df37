/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Writes mt19937.txt from llm.c's generator. Recorded with glibc 2.36:
 *   gcc -O2 -I LLM_C/llmc record_mt19937.c -lm -o record && ./record > mt19937.txt
 * A line is: kind, seed, size, FNV-1a hash of the bits of all values, the draw after them, the first values' bits.
 * PyTorch 1.13 gives the same lines for uniforms, and for normals from 16 elements on, when ATEN_CPU_CAPABILITY=default
 * keeps it from its vector approximations of logarithm and sine.
 */
#include <rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_line(char const* kind, unsigned seed, int size, float const* values, mt19937_state* state) {
  unsigned long long hash = 14695981039346656037ull;
  for (int i = 0; i < 4 * size; ++i) hash = (hash ^ ((unsigned char const*)values)[i]) * 1099511628211ull;
  printf("%s %u %d %016llx %u", kind, seed, size, hash, randint32(state));
  for (int i = 0; i < size && i < 20; ++i) {
    unsigned bits;
    memcpy(&bits, values + i, 4);
    printf(" %08x", bits);
  }
  printf("\n");
}

int main(void) {
  int const sizes[] = {1, 2, 5, 15, 16, 17, 31, 32, 100, 1000};
  unsigned const seeds[] = {0, 42, 4294967295u};
  static float values[1000];
  static int order[1000];
  for (int s = 0; s < 3; ++s)
    for (int k = 0; k < 10; ++k) {
      mt19937_state state;
      int const size = sizes[k];
      manual_seed(&state, seeds[s]);
      normal_(values, size, 0.0f, 0.02f, &state);
      print_line("normal", seeds[s], size, values, &state);
      manual_seed(&state, seeds[s]);
      normal_(values, size, 0.25f, 3.0f, &state);
      print_line("shifted", seeds[s], size, values, &state);
      manual_seed(&state, seeds[s]);
      uniform_(values, size, -1.5f, 2.25f, &state);
      print_line("uniform", seeds[s], size, values, &state);
      manual_seed(&state, seeds[s]);
      init_identity_permutation(order, size);
      random_permutation(order, size, &state);
      for (int i = 0; i < size; ++i) values[i] = (float)order[i];
      print_line("shuffle", seeds[s], size, values, &state);
    }
  return 0;
}
