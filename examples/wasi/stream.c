/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes a text piece by piece, as soon as there is a piece: stream.wasm [MODEL [PROMPT]]. Without a prompt, standard
 * input is the prompt. */
#include "guest.h"

static char const program[] = "stream";

/* All of standard input. Whether it could be read and fits. */
static int read_all(guest_bytes* out) {
  for (;;) {
    if (!guest_reserve(out, out->size + 4096)) return 0;
    size_t const count = fread(out->data + out->size, 1, out->capacity - 1 - out->size, stdin);
    out->size += (uint32_t)count;
    if (count == 0) return !ferror(stdin);
    if (out->size > 16u << 20) return 0;
  }
}

int main(int argc, char** argv) {
  if (argc > 3) {
    fputs("stream: at most a model and a prompt: stream.wasm [MODEL [PROMPT]]\n", stderr);
    return 2;
  }
  char const* const model = argc > 1 ? argv[1] : "default";
  guest_bytes input = {0, 0, 0};
  char const* prompt = argc > 2 ? argv[2] : 0;
  uint32_t size = prompt ? (uint32_t)strlen(prompt) : 0;
  if (!prompt) {
    if (!read_all(&input)) {
      fputs("stream: standard input cannot be read, or has more than 16 MiB\n", stderr);
      return 1;
    }
    prompt = (char const*)input.data;
    size = input.size;
  }
  if (size == 0) {
    fputs("stream: the prompt is empty. Give one as the second argument or on standard input\n", stderr);
    return 2;
  }

  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  uint32_t code = wasi_nn_load_by_name(model, (uint32_t)strlen(model), &graph);
  if (code) return guest_failed(program, model, code, 0);
  code = wasi_nn_init_execution_context(graph, &context);
  if (code) return guest_failed(program, "a context", code, 0);
  code = guest_set_text(context, WASI_NN_INPUT_PROMPT, prompt, size);
  if (code) return guest_failed(program, "the prompt", code, &context);

  guest_bytes piece = {0, 0, 0};
  while ((code = wasi_nn_compute_single(context)) == WASI_NN_SUCCESS) {
    code = guest_get(context, WASI_NN_OUTPUT_TEXT, 1, &piece);
    if (code) return guest_failed(program, "a piece of the text", code, &context);
    fwrite(piece.data, 1, piece.size, stdout);
    if (fflush(stdout) != 0) {
      fputs("stream: the text cannot be written\n", stderr);
      return 1;
    }
  }
  fputs("\n", stdout);
  /* A full context ends the text too; it is said, and no failure. */
  if (code == WASI_NN_CONTEXT_FULL) fputs("stream: the model's context is full\n", stderr);
  else if (code != WASI_NN_END_OF_SEQUENCE) return guest_failed(program, "compute_single", code, &context);
  code = wasi_nn_fini_single(context);
  if (code) return guest_failed(program, "fini_single", code, &context);
  free(piece.data);
  free(input.data);
  wasi_nn_finalize_execution_context(context);
  wasi_nn_unload(graph);
  return fflush(stdout) != 0;
}
