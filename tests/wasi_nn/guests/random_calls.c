/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Calls a host of wasi_ephemeral_nn in random order with numbers, ranges and texts that are right or wrong, and asks
 * three things: every code is one of the interface's; no byte outside a buffer is written; afterwards a new context
 * still writes what one wrote before.
 *
 *   random_calls.wasm SEED COUNT [MODEL]
 *
 * Pointers stay in the guest's memory, so any host can be asked.
 */
#include "guest.h"

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)((state * 2685821657736338717u) >> 33) % below;
}

enum { most_handles = 8, guard = 64, most_capacity = 600 };

/* Numbers that the host gave, also those that are not valid any more. */
typedef struct handles {
  uint32_t values[most_handles];
  uint32_t count;
} handles;

/* With more than that, one is given back: each costs the host memory. */
static void keep(handles* of, uint32_t value, uint32_t give_back(uint32_t)) {
  uint32_t const at = of->count < most_handles ? of->count++ : draw(most_handles);
  if (of->values[at]) give_back(of->values[at]);
  of->values[at] = value;
}

static uint32_t some(handles const* of) {
  return of->count > 0 && draw(20) ? of->values[draw(of->count)] : draw(3) ? draw(100) : 0xFFFFFFFFu - draw(3);
}

static char const* const texts[] = {
    "{\"max_tokens\": 3, \"temperature\": 0}",
    "{\"max_tokens\": 2, \"temperature\": 1.5, \"seed\": 3, \"top_k\": 5}",
    "{\"max_tokens\": 0}",
    "{\"max_tokens\": 4, \"stop\": [\"e\", \"a\"]}",
    "{\"session\": \"one\", \"max_tokens\": 3}",
    "{\"session\": \"two\", \"max_tokens\": 3}",
    "{\"chat_template\": \"auto\", \"max_tokens\": 3}",
    "{\"grammar\": \"root ::= [a-z]+\", \"max_tokens\": 3}",
    "{\"max_tokens\": 1e300}",
    "{\"no_such_key\": null}",
    "{\"stop\": [1, 2]}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\": \"\\ud800\"}",
    "{}",
    "once upon a time there was a",
    "\xff\xfe\x80 no UTF-8 \xc3",
    "a",
};

static uint32_t random_text(char const** text) {
  *text = texts[draw(sizeof texts / sizeof texts[0])];
  uint32_t const size = (uint32_t)strlen(*text);
  return draw(6) ? size : draw(size + 1);
}

static uint32_t set_random_input(uint32_t context) {
  static int32_t const ids[] = {0, 1, 2, 65, 66, 100, -1, 1 << 29, 7, 3};
  char const* text = 0;
  uint32_t const index = draw(10) ? draw(4) : draw(1000);
  uint32_t size = random_text(&text);
  uint32_t dimensions[8] = {size, 1, 2, 0xFFFFFFFFu, 0, 5, 6, 7};
  wasi_nn_tensor tensor = {dimensions, draw(10) ? 1 : draw(9), WASI_NN_TYPE_U8, {0, 0, 0}, (uint8_t const*)text, size};
  if (index == WASI_NN_INPUT_TOKENS && draw(5)) {
    tensor.type = WASI_NN_TYPE_I32;
    tensor.data = (uint8_t const*)ids;
    tensor.size = draw(5) ? 4 * (1 + draw(6)) : draw(sizeof ids + 1);
    dimensions[0] = tensor.size / 4;
  }
  if (draw(20) == 0) tensor.type = (uint8_t)draw(256);
  return wasi_nn_set_input(context, index, &tensor);
}

/* Whether the output stayed in its buffer. */
static int get_random_output(uint32_t context, uint32_t* code) {
  static uint8_t space[guard + most_capacity + guard];
  memset(space, 0xA5, sizeof space);
  uint32_t const capacity = draw(4) ? draw(most_capacity + 1) : 0;
  uint32_t const index = draw(10) ? draw(5) : draw(1000);
  uint32_t written = 0xA5A5A5A5u;
  *code = draw(2) ? wasi_nn_get_output(context, index, space + guard, capacity, &written)
                  : wasi_nn_get_output_single(context, index, space + guard, capacity, &written);
  uint32_t first = guard, last = guard + (*code == WASI_NN_SUCCESS ? written : 0);
  if (*code == WASI_NN_SUCCESS && written > capacity) return 0;
  if (*code == WASI_NN_TOO_LARGE && written <= capacity) return 0;
  for (uint32_t at = 0; at < sizeof space; ++at)
    if ((at < first || at >= last) && space[at] != 0xA5) return 0;
  return 1;
}

static int known(uint32_t code) { return code <= 8 || (code >= 100 && code <= 103); }

static uint32_t reference(char const* model, guest_bytes* text) {
  static char const options[] = "{\"max_tokens\": 6, \"temperature\": 0}";
  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  uint32_t code = wasi_nn_load_by_name(model, (uint32_t)strlen(model), &graph);
  if (!code) code = wasi_nn_init_execution_context(graph, &context);
  if (!code) code = guest_set_text(context, WASI_NN_INPUT_OPTIONS, options, sizeof options - 1);
  if (!code) code = guest_set_text(context, WASI_NN_INPUT_PROMPT, "once upon", 9);
  if (!code) code = wasi_nn_compute(context);
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_TEXT, text);
  if (!code) code = wasi_nn_finalize_execution_context(context);
  if (!code) code = wasi_nn_unload(graph);
  return code;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    fputs("usage: random_calls.wasm SEED COUNT [MODEL]\n", stderr);
    return 2;
  }
  state = strtoull(argv[1], 0, 10) * 0x9E3779B97F4A7C15u + 1;
  long const count = strtol(argv[2], 0, 10);
  char const* const model = argc > 3 ? argv[3] : "default";
  guest_bytes before = {0, 0, 0}, after = {0, 0, 0};
  uint32_t code = reference(model, &before);
  if (code) return guest_failed("random_calls", "a text", code, 0);

  handles graphs = {{0}, 0}, contexts = {{0}, 0};
  long succeeded = 0;
  for (long call = 0; call < count; ++call) {
    uint32_t number = 0;
    uint32_t const what = draw(40);
    char const* text = 0;
    int inside = 1;
    if (what < 2) {
      code = wasi_nn_load_by_name(draw(4) ? model : "none", draw(4) ? (uint32_t)strlen(model) : draw(5), &number);
      if (!code) keep(&graphs, number, wasi_nn_unload);
    } else if (what == 2) {
      uint32_t const size = random_text(&text);
      code = wasi_nn_load_by_name_with_config(model, (uint32_t)strlen(model), text, size, &number);
      if (!code) keep(&graphs, number, wasi_nn_unload);
    } else if (what == 3) {
      wasi_nn_builder const builder = {(uint8_t const*)texts[14], draw(20)};
      code = wasi_nn_load(&builder, draw(2), draw(8), draw(5), &number);
      if (!code) keep(&graphs, number, wasi_nn_unload);
    } else if (what < 8) {
      code = wasi_nn_init_execution_context(some(&graphs), &number);
      if (!code) keep(&contexts, number, wasi_nn_finalize_execution_context);
    } else if (what < 20) {
      code = set_random_input(some(&contexts));
    } else if (what < 24) {
      code = wasi_nn_compute(some(&contexts));
    } else if (what < 28) {
      code = wasi_nn_compute_single(some(&contexts));
    } else if (what < 35) {
      inside = get_random_output(some(&contexts), &code);
    } else if (what < 37) {
      code = wasi_nn_fini_single(some(&contexts));
    } else if (what < 39) {
      code = wasi_nn_finalize_execution_context(some(&contexts));
    } else {
      code = wasi_nn_unload(some(&graphs));
    }
    succeeded += code == WASI_NN_SUCCESS;
    if (!known(code) || !inside) {
      printf("FAILED call %ld of kind %u: code %u%s\n", call, (unsigned)what, (unsigned)code,
             inside ? ", which there is not" : ", and bytes or a size outside its buffer");
      return 1;
    }
  }
  for (uint32_t index = 0; index < contexts.count; ++index) wasi_nn_finalize_execution_context(contexts.values[index]);
  for (uint32_t index = 0; index < graphs.count; ++index) wasi_nn_unload(graphs.values[index]);
  code = reference(model, &after);
  if (code) return guest_failed("random_calls", "a text afterwards", code, 0);
  if (before.size != after.size || memcmp(before.data, after.data, before.size) != 0) {
    printf("FAILED afterwards the text is \"%s\", not \"%s\"\n", (char const*)after.data, (char const*)before.data);
    return 1;
  }
  printf("ok: %ld calls, %ld of them succeeded\n", count, succeeded);
  return 0;
}
