/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Talks with a model: chat.wasm [MODEL]. Each line of standard input is what the user says, and the answer appears as
 * it is written. The conversation is a session of the host's: a line costs what is new in it. */
#include "guest.h"

#include <unistd.h>

static char const program[] = "chat";
static char const options[] =
    "{\"session\": \"chat\", \"chat_template\": \"auto\", \"temperature\": 0.8, \"top_k\": 40, \"top_p\": 0.95}";

/* Answers one line. The exit code, 0 to go on. */
static int answer(wasi_nn_context context, char const* line, uint32_t size, guest_bytes* piece) {
  uint32_t code = guest_set_text(context, WASI_NN_INPUT_PROMPT, line, size);
  if (code) return guest_failed(program, "what you said", code, &context);
  while ((code = wasi_nn_compute_single(context)) == WASI_NN_SUCCESS) {
    code = guest_get(context, WASI_NN_OUTPUT_TEXT, 1, piece);
    if (code) return guest_failed(program, "a piece of the answer", code, &context);
    fwrite(piece->data, 1, piece->size, stdout);
    if (fflush(stdout) != 0) {
      fputs("chat: the answer cannot be written\n", stderr);
      return 1;
    }
  }
  fputs("\n", stdout);
  fflush(stdout);
  if (code == WASI_NN_CONTEXT_FULL || code == WASI_NN_PROMPT_TOO_LONG) {
    fputs("chat: the conversation fills the model's context. Begin anew\n", stderr);
    return 1;
  }
  if (code != WASI_NN_END_OF_SEQUENCE) return guest_failed(program, "compute_single", code, &context);
  code = wasi_nn_fini_single(context);
  return code ? guest_failed(program, "fini_single", code, &context) : 0;
}

int main(int argc, char** argv) {
  if (argc > 2) {
    fputs("chat: at most a model: chat.wasm [MODEL]\n", stderr);
    return 2;
  }
  char const* const model = argc > 1 ? argv[1] : "default";
  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  uint32_t code = wasi_nn_load_by_name(model, (uint32_t)strlen(model), &graph);
  if (code) return guest_failed(program, model, code, 0);
  code = wasi_nn_init_execution_context(graph, &context);
  if (code) return guest_failed(program, "a context", code, 0);
  code = guest_set_text(context, WASI_NN_INPUT_OPTIONS, options, sizeof options - 1);
  if (code) return guest_failed(program, "the options", code, &context);

  int const asks = isatty(0);
  char* line = 0;
  size_t room = 0;
  guest_bytes piece = {0, 0, 0};
  int result = 0;
  while (result == 0) {
    if (asks) fputs("> ", stderr);
    ssize_t size = getline(&line, &room, stdin);
    if (size < 0) break;
    while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r')) --size;
    if (size > 0) result = answer(context, line, (uint32_t)size, &piece);
  }
  free(line);
  free(piece.data);
  wasi_nn_finalize_execution_context(context);
  wasi_nn_unload(graph);
  return result;
}
