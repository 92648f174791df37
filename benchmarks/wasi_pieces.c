/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Asks for an answer piece by piece and prints it when it is complete, so that wasi.py times the calls for the pieces
 * and not the runtime's standard output: wasi_pieces.wasm MODEL PROMPT */
#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  char const* const program = "wasi_pieces";
  if (argc != 3) return 2;
  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  uint32_t code = wasi_nn_load_by_name(argv[1], (uint32_t)strlen(argv[1]), &graph);
  if (code) return guest_failed(program, argv[1], code, 0);
  code = wasi_nn_init_execution_context(graph, &context);
  if (code) return guest_failed(program, "a context", code, 0);
  code = guest_set_text(context, WASI_NN_INPUT_PROMPT, argv[2], (uint32_t)strlen(argv[2]));
  if (code) return guest_failed(program, "the prompt", code, &context);
  size_t const room = 1 << 20;
  char* const text = malloc(room);
  size_t size = 0;
  if (!text) return 1;
  guest_bytes piece = {0, 0, 0};
  while ((code = wasi_nn_compute_single(context)) == WASI_NN_SUCCESS) {
    code = guest_get(context, WASI_NN_OUTPUT_TEXT, 1, &piece);
    if (code) return guest_failed(program, "a piece of the text", code, &context);
    if (piece.size > room - size) return 1;
    memcpy(text + size, piece.data, piece.size);
    size += piece.size;
  }
  if (code != WASI_NN_END_OF_SEQUENCE && code != WASI_NN_CONTEXT_FULL)
    return guest_failed(program, "compute_single", code, &context);
  wasi_nn_fini_single(context);
  return fwrite(text, 1, size, stdout) != size || fflush(stdout) != 0;
}
