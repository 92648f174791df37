/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Asks a host of wasi_ephemeral_nn for what wasi_nn.h says, call by call, right and wrong. One line for each question:
 * "ok NAME", "skipped NAME: why", or "FAILED NAME: what was got". The exit code is 1 when one failed.
 *
 *   conformance.wasm [MODEL] [--host-checks] [--no-streaming] [--fill] [--file MODEL.gguf]
 *
 *   --host-checks    pointers that lead outside the memory, and null ones, are refused with a code. Some hosts end the
 *                    guest instead, before the library that has the models hears of them
 *   --no-streaming   for hosts without compute_single, get_output_single, fini_single, unload and
 *                    finalize_execution_context
 *   --fill           write until the context is full: for models with few positions
 *   --file FILE      load these bytes too; the host has to let the guest read them
 */
#include "guest.h"

#include <stdarg.h>

static char const prompt[] = "Once upon a time";
static char const greedy[] = "{\"temperature\": 0, \"max_tokens\": 12, \"seed\": 1}";

static int passed, skipped, failed;
static int streaming = 1; /* whether the host has the functions that --no-streaming does without */

/* `what` is printed when the question failed. */
__attribute__((format(printf, 3, 4))) static int ask(int right, char const* name, char const* what, ...) {
  if (right) {
    ++passed;
    printf("ok %s\n", name);
    return 1;
  }
  ++failed;
  printf("FAILED %s: ", name);
  va_list values;
  va_start(values, what);
  vprintf(what, values);
  va_end(values);
  printf("\n");
  fflush(stdout);
  return 0;
}

static void skip(char const* name, char const* why) {
  ++skipped;
  printf("skipped %s: %s\n", name, why);
}

static int ask_code(uint32_t got, uint32_t want, char const* name) {
  return ask(got == want, name, "%s (%u), not %s (%u)", wasi_nn_error_name(got), (unsigned)got,
             wasi_nn_error_name(want), (unsigned)want);
}

/* Some error, and none of those that tell of a text's end. */
static int ask_refused(uint32_t got, char const* name) {
  return ask(got != WASI_NN_SUCCESS && got != WASI_NN_END_OF_SEQUENCE && got != WASI_NN_CONTEXT_FULL, name,
             "%s (%u), not an error", wasi_nn_error_name(got), (unsigned)got);
}

static uint32_t set_options(wasi_nn_context context, char const* json) {
  return guest_set_text(context, WASI_NN_INPUT_OPTIONS, json, (uint32_t)strlen(json));
}

static uint32_t set_prompt(wasi_nn_context context, char const* text) {
  return guest_set_text(context, WASI_NN_INPUT_PROMPT, text, (uint32_t)strlen(text));
}

static uint32_t set_tokens(wasi_nn_context context, int32_t const* ids, uint32_t count) {
  wasi_nn_tensor const tensor = {&count, 1, WASI_NN_TYPE_I32, {0, 0, 0}, (uint8_t const*)ids, 4 * count};
  return wasi_nn_set_input(context, WASI_NN_INPUT_TOKENS, &tensor);
}

/* A text by compute; the first error that is none of a text's ends. */
static uint32_t write_text(wasi_nn_context context, char const* options, char const* text, guest_bytes* out) {
  uint32_t code = set_options(context, options);
  if (!code) code = set_prompt(context, text);
  if (!code) code = wasi_nn_compute(context);
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_TEXT, out);
  return code;
}

static int same(guest_bytes const* a, guest_bytes const* b) {
  return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static int ask_same(uint32_t code, guest_bytes const* got, guest_bytes const* want, char const* name) {
  if (code) return ask_code(code, WASI_NN_SUCCESS, name);
  return ask(same(got, want), name, "\"%s\", not \"%s\"", (char const*)got->data, (char const*)want->data);
}

/* What the status says failed last, or "". Valid until the next call. */
static char const* last_error(wasi_nn_context context) {
  static guest_bytes status;
  if (guest_output(context, WASI_NN_OUTPUT_STATUS, &status)) return "";
  char const* const text = guest_text((char*)status.data, "error");
  return text ? text : "";
}

static wasi_nn_context new_context(wasi_nn_graph graph) {
  wasi_nn_context context = 0;
  uint32_t const code = wasi_nn_init_execution_context(graph, &context);
  if (!code) return context;
  ask_code(code, WASI_NN_SUCCESS, "a context");
  printf("nothing more can be asked\n");
  exit(1);
}

/* Hosts limit how many there are, and each costs memory. */
static void drop(wasi_nn_context context) {
  if (streaming) wasi_nn_finalize_execution_context(context);
}

static void drop_graph(wasi_nn_graph graph) {
  if (streaming) wasi_nn_unload(graph);
}

/* ---- Models ---- */

static void ask_names(char const* model, wasi_nn_graph graph) {
  wasi_nn_graph other = 12345;
  uint32_t const length = (uint32_t)strlen(model);
  ask_code(wasi_nn_load_by_name("no such model", 13, &other), WASI_NN_MODEL_NOT_FOUND, "a name that is not known");
  ask_refused(wasi_nn_load_by_name("", 0, &other), "an empty name");
  ask_refused(wasi_nn_load_by_name("/etc/passwd", 11, &other), "a path as a name");
  ask_refused(wasi_nn_load_by_name("../default", 10, &other), "a path upwards as a name");
  ask_refused(wasi_nn_load_by_name("def\0ult", 7, &other), "a zero byte in a name");
  ask(other == 12345, "a failed load leaves the number alone", "%u", (unsigned)other);
  if (ask_code(wasi_nn_load_by_name(model, length, &other), WASI_NN_SUCCESS, "the same model again"))
    if (ask(other != graph, "each load has a number of its own", "%u twice", (unsigned)graph)) drop_graph(other);
  ask_refused(wasi_nn_load_by_name_with_config(model, length, "not JSON", 8, &other), "a config that is no JSON");
  ask_refused(wasi_nn_load_by_name_with_config(model, length, "{\"no_such_key\": 1}", 18, &other),
              "a config with an unknown key");
  static char const config[] = "{\"temperature\": 0, \"max_tokens\": 2}";
  if (!ask_code(wasi_nn_load_by_name_with_config(model, length, config, sizeof config - 1, &other), WASI_NN_SUCCESS,
                "a config"))
    return;
  wasi_nn_context const context = new_context(other);
  guest_bytes usage = {0, 0, 0};
  uint32_t code = set_prompt(context, prompt);
  if (!code) code = wasi_nn_compute(context);
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_USAGE, &usage);
  if (ask_code(code, WASI_NN_SUCCESS, "a text by the config's options")) {
    long const written = guest_number((char const*)usage.data, "output_tokens");
    ask(written >= 0 && written <= 2, "the config's limit holds", "%s", (char const*)usage.data);
  }
  free(usage.data);
  drop(context);
  drop_graph(other);
}

static void ask_bytes(char const* path) {
  wasi_nn_graph graph = 12345;
  static uint8_t const garbage[] = "these bytes are no model, whatever one may say of their encoding";
  wasi_nn_builder builder = {garbage, sizeof garbage};
  ask_refused(wasi_nn_load(&builder, 1, WASI_NN_ENCODING_GGML, WASI_NN_TARGET_CPU, &graph), "bytes that are no model");
  ask_refused(wasi_nn_load(&builder, 1, 99, WASI_NN_TARGET_CPU, &graph), "an encoding that is none");
  ask_refused(wasi_nn_load(&builder, 0, WASI_NN_ENCODING_GGML, WASI_NN_TARGET_CPU, &graph), "a model of no parts");
  builder.size = 0;
  ask_refused(wasi_nn_load(&builder, 1, WASI_NN_ENCODING_GGML, WASI_NN_TARGET_CPU, &graph), "a part of no bytes");
  static uint8_t const head[] = "GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
  builder.data = head;
  builder.size = sizeof head - 1;
  ask_refused(wasi_nn_load(&builder, 1, WASI_NN_ENCODING_GGML, WASI_NN_TARGET_CPU, &graph),
              "a GGUF file that promises more than it has");
  if (!path) return;
  FILE* const file = fopen(path, "rb");
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  uint8_t* const bytes = size > 0 ? malloc((size_t)size) : 0;
  int const read = bytes && fseek(file, 0, SEEK_SET) == 0 && fread(bytes, 1, (size_t)size, file) == (size_t)size;
  if (file) fclose(file);
  if (!ask(read, "the file of --file is read", "%s", path)) return;
  builder.data = bytes;
  builder.size = (uint32_t)size;
  uint32_t const code = wasi_nn_load(&builder, 1, WASI_NN_ENCODING_GGML, WASI_NN_TARGET_AUTO, &graph);
  free(bytes);
  if (!ask_code(code, WASI_NN_SUCCESS, "a model from bytes")) return;
  wasi_nn_context const context = new_context(graph);
  guest_bytes text = {0, 0, 0};
  ask_code(write_text(context, greedy, prompt, &text), WASI_NN_SUCCESS, "a text of a model from bytes");
  free(text.data);
  drop(context);
  drop_graph(graph);
}

/* ---- Inputs ---- */

static void ask_inputs(wasi_nn_graph graph, guest_bytes const* reference) {
  wasi_nn_context const context = new_context(graph);
  guest_bytes text = {0, 0, 0};
  if (ask_refused(wasi_nn_compute(context), "compute without a prompt"))
    ask(*last_error(context) != 0, "the status says why", "its \"error\" is empty or missing");
  ask_code(set_options(context, greedy), WASI_NN_SUCCESS, "options");
  ask_code(set_prompt(context, prompt), WASI_NN_SUCCESS, "a prompt");

  uint32_t dimensions[5] = {1, 1, 1, 1, sizeof prompt - 1};
  wasi_nn_tensor tensor = {dimensions, 5, WASI_NN_TYPE_U8, {0, 0, 0}, (uint8_t const*)prompt, sizeof prompt - 1};
  ask_code(wasi_nn_set_input(context, WASI_NN_INPUT_PROMPT, &tensor), WASI_NN_INVALID_ARGUMENT, "five dimensions");
  tensor.dimensions = dimensions + 4;
  tensor.dimension_count = 1;
  ask_code(wasi_nn_set_input(context, 99, &tensor), WASI_NN_INVALID_ARGUMENT, "an input that there is not");
  ask_code(wasi_nn_set_input(context + 1000, WASI_NN_INPUT_PROMPT, &tensor), WASI_NN_INVALID_ARGUMENT,
           "an input of an unknown context");
  tensor.size = 0;
  dimensions[4] = 0;
  ask_code(wasi_nn_set_input(context, WASI_NN_INPUT_PROMPT, &tensor), WASI_NN_INVALID_ARGUMENT, "a prompt of no bytes");
  tensor.data = 0;
  ask_code(wasi_nn_set_input(context, WASI_NN_INPUT_PROMPT, &tensor), WASI_NN_INVALID_ARGUMENT, "a prompt of no data");

  static char const* const refused[][2] = {
      {"{\"no_such_key\": 1}", "options with an unknown key"},
      {"{\"max_tokens\": \"many\"}", "options with a text for a number"},
      {"{\"max_tokens\": -5}", "options with too small a number"},
      {"{\"temperature\": -1}", "a temperature below 0"},
      {"{\"top_p\": 7}", "a top_p above 1"},
      {"{\"stop\": 5}", "a stop that is no list"},
      {"{\"session\": 5}", "a session that is no text"},
      {"{\"chat_template\": \"no such template\"}", "a chat template that is not known"},
      {"{\"grammar\": \"root ::= (\"}", "a grammar that is none"},
      {"{\"max_tokens\": 3", "options that end too early"},
      {"[1, 2]", "options that are no object"},
      {"max_tokens=3", "options that are no JSON"},
  };
  for (size_t index = 0; index < sizeof refused / sizeof refused[0]; ++index)
    ask_code(set_options(context, refused[index][0]), WASI_NN_INVALID_ARGUMENT, refused[index][1]);
  set_options(context, "{\"no_such_key\": 1}");
  ask(strstr(last_error(context), "no_such_key") != 0, "the status names the unknown key", "\"%s\"",
      last_error(context));
  ask_refused(guest_set_text(context, WASI_NN_INPUT_CONTROL, "no JSON", 7), "a control that is no JSON");
  ask_refused(guest_set_text(context, WASI_NN_INPUT_CONTROL, "{\"no_such_key\": 1}", 18),
              "a control with an unknown key");

  int32_t const wrong[] = {-1, 1 << 30};
  ask_code(set_tokens(context, wrong, 1), WASI_NN_INVALID_ARGUMENT, "a token id below 0");
  ask_code(set_tokens(context, wrong + 1, 1), WASI_NN_INVALID_ARGUMENT, "a token id beyond the vocabulary");
  uint32_t const one = 1;
  wasi_nn_tensor ids = {&one, 1, WASI_NN_TYPE_I32, {0, 0, 0}, (uint8_t const*)wrong, 3};
  ask_code(wasi_nn_set_input(context, WASI_NN_INPUT_TOKENS, &ids), WASI_NN_INVALID_ARGUMENT, "a part of a token id");
  ids.size = 4;
  ids.type = WASI_NN_TYPE_F32;
  ask_code(wasi_nn_set_input(context, WASI_NN_INPUT_TOKENS, &ids), WASI_NN_INVALID_ARGUMENT,
           "token ids that are floats");

  /* After all these the context still has the prompt and the options from the beginning. */
  uint32_t code = wasi_nn_compute(context);
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_TEXT, &text);
  ask_same(code, &text, reference, "refused inputs change nothing");

  uint32_t const much = 1u << 20;
  char* const long_prompt = malloc(much);
  for (uint32_t index = 0; index < much; ++index) long_prompt[index] = index % 2 ? ' ' : (char)('a' + index / 2 % 26);
  code = guest_set_text(context, WASI_NN_INPUT_PROMPT, long_prompt, much);
  if (!code) code = wasi_nn_compute(context);
  ask(code == WASI_NN_PROMPT_TOO_LONG || code == WASI_NN_TOO_LARGE, "a prompt of a million bytes", "%s (%u)",
      wasi_nn_error_name(code), (unsigned)code);
  free(long_prompt);
  ask_same(write_text(context, greedy, prompt, &text), &text, reference, "a prompt after one that was too long");
  free(text.data);
  drop(context);
}

/* ---- Outputs ---- */

static void ask_outputs(wasi_nn_context context, guest_bytes const* reference) {
  uint8_t buffer[4096];
  uint32_t size = 77;
  ask_code(wasi_nn_get_output(context, WASI_NN_OUTPUT_TEXT, buffer, 0, &size), WASI_NN_TOO_LARGE,
           "a buffer of no bytes");
  ask(size == reference->size, "gets the size", "%u, not %u", (unsigned)size, (unsigned)reference->size);
  memset(buffer, 0xA5, sizeof buffer);
  size = 77;
  uint32_t const needed = reference->size;
  if (needed <= sizeof buffer) {
    ask_code(wasi_nn_get_output(context, WASI_NN_OUTPUT_TEXT, buffer, needed - 1, &size), WASI_NN_TOO_LARGE,
             "a buffer that is a byte short");
    ask(size == needed, "gets the size too", "%u, not %u", (unsigned)size, (unsigned)needed);
    int touched = 0;
    for (size_t index = 0; index < sizeof buffer; ++index) touched += buffer[index] != 0xA5;
    ask(touched == 0, "and is left alone", "%d bytes of it were written", touched);
    for (int again = 0; again < 2; ++again) {
      size = 77;
      ask_code(wasi_nn_get_output(context, WASI_NN_OUTPUT_TEXT, buffer, needed, &size), WASI_NN_SUCCESS,
               again ? "the text once more" : "a buffer that is just enough");
      ask(size == needed && memcmp(buffer, reference->data, needed) == 0, "has the text", "%u bytes", (unsigned)size);
    }
    ask(buffer[needed] == 0xA5, "nothing behind it is written", "a byte was");
  }
  ask_code(wasi_nn_get_output(context, 99, buffer, sizeof buffer, &size), WASI_NN_INVALID_ARGUMENT,
           "an output that there is not");
  ask_code(wasi_nn_get_output(context + 1000, WASI_NN_OUTPUT_TEXT, buffer, sizeof buffer, &size),
           WASI_NN_INVALID_ARGUMENT, "an output of an unknown context");
  ask_code(wasi_nn_compute(context + 1000), WASI_NN_INVALID_ARGUMENT, "compute of an unknown context");

  guest_bytes out = {0, 0, 0};
  long written = -1;
  if (ask_code(guest_output(context, WASI_NN_OUTPUT_USAGE, &out), WASI_NN_SUCCESS, "the usage")) {
    written = guest_number((char const*)out.data, "output_tokens");
    ask(written > 0 && guest_number((char const*)out.data, "input_tokens") > 0, "counts the tokens", "%s",
        (char const*)out.data);
  }
  if (ask_code(guest_output(context, WASI_NN_OUTPUT_STATUS, &out), WASI_NN_SUCCESS, "the status")) {
    char const* const reason = guest_text((char*)out.data, "stop_reason");
    ask(reason && *reason, "says why the text ended", "it has no \"stop_reason\"");
  }
  int32_t largest = -1;
  if (ask_code(guest_output(context, WASI_NN_OUTPUT_TOKENS, &out), WASI_NN_SUCCESS, "the token ids")) {
    ask(out.size == 4 * (uint32_t)written, "are as many as the usage says", "%u bytes for %ld", (unsigned)out.size,
        written);
    for (uint32_t index = 0; index < out.size / 4; ++index) {
      int32_t id = 0;
      memcpy(&id, out.data + 4 * index, 4);
      if (id > largest) largest = id;
    }
  }
  if (ask_code(guest_output(context, WASI_NN_OUTPUT_LOGITS, &out), WASI_NN_SUCCESS, "the logits")) {
    uint32_t finite = 0;
    for (uint32_t index = 0; index < out.size / 4; ++index) {
      float logit = 0;
      memcpy(&logit, out.data + 4 * index, 4);
      finite += logit - logit == 0;
    }
    ask(out.size % 4 == 0 && finite == out.size / 4, "are finite floats", "%u of %u bytes", (unsigned)finite * 4,
        (unsigned)out.size);
    ask(largest >= 0 && out.size / 4 > (uint32_t)largest, "are one for each token", "%u for token %d",
        (unsigned)out.size / 4, (int)largest);
  }
  free(out.data);
}

/* ---- Texts ---- */

static void ask_texts(wasi_nn_graph graph, wasi_nn_context first, guest_bytes const* reference) {
  guest_bytes text = {0, 0, 0}, other = {0, 0, 0};
  ask_same(write_text(first, greedy, prompt, &text), &text, reference, "the same prompt once more");
  wasi_nn_context const second = new_context(graph);
  ask(second != first, "each context has a number of its own", "%u twice", (unsigned)first);
  ask_same(write_text(second, greedy, prompt, &text), &text, reference, "another context writes the same");

  /* Two at once: what one is asked does not reach the other. */
  uint32_t code = set_prompt(first, prompt);
  if (!code) code = write_text(second, "{\"temperature\": 0, \"max_tokens\": 5}", "Something else", &other);
  if (!code) code = wasi_nn_compute(first);
  if (!code) code = guest_output(first, WASI_NN_OUTPUT_TEXT, &text);
  ask_same(code, &text, reference, "contexts are independent of each other");
  code = guest_output(second, WASI_NN_OUTPUT_TEXT, &text);
  ask_same(code, &text, &other, "outputs stay while another context computes");

  static char const drawn[] = "{\"temperature\": 1.5, \"top_k\": 20, \"top_p\": 0.9, \"seed\": 7, \"max_tokens\": 8}";
  code = write_text(first, drawn, prompt, &text);
  if (!code) code = write_text(second, drawn, prompt, &other);
  ask_same(code, &other, &text, "the same seed writes the same");

  ask_same(write_text(first, "{\"temperature\": 0, \"max_tokens\": 12, \"chat_template\": \"none\"}", prompt, &text),
           &text, reference, "the chat template \"none\" is none");
  ask_same(write_text(first, "{\"temperature\": 0, \"max_tokens\": 12, \"session\": \"one\"}", prompt, &text), &text,
           reference, "a session begins with nothing");

  code = write_text(first, "{\"temperature\": 0, \"max_tokens\": 1}", prompt, &text);
  if (!code) code = guest_output(first, WASI_NN_OUTPUT_USAGE, &text);
  if (ask_code(code, WASI_NN_SUCCESS, "a text of one token"))
    ask(guest_number((char const*)text.data, "output_tokens") == 1, "has one", "%s", (char const*)text.data);

  /* A stop text from the middle of what is written: the text ends where it first stands. */
  uint32_t at = reference->size / 2;
  while (at < reference->size && !(reference->data[at] >= 'a' && reference->data[at] <= 'z')) ++at;
  if (at < reference->size) {
    char options[] = "{\"temperature\": 0, \"max_tokens\": 12, \"stop\": [\"?\"]}";
    *strchr(options, '?') = (char)reference->data[at];
    uint8_t const* const end = memchr(reference->data, reference->data[at], reference->size);
    code = write_text(first, options, prompt, &text);
    if (ask_code(code, WASI_NN_SUCCESS, "a stop text"))
      ask(text.size == (uint32_t)(end - reference->data) && memcmp(text.data, reference->data, text.size) == 0,
          "ends the text before it", "\"%s\" of \"%s\"", (char const*)text.data, (char const*)reference->data);
  } else {
    skip("a stop text", "this model writes no letter to stop at");
  }

  code = write_text(first, "{\"temperature\": 0, \"max_tokens\": 12, \"grammar\": \"root ::= \\\"yes\\\"\"}", prompt,
                    &text);
  if (ask_code(code, WASI_NN_SUCCESS, "a grammar"))
    ask(strcmp((char const*)text.data, "yes") == 0, "is followed", "\"%s\", not \"yes\"", (char const*)text.data);

  wasi_nn_context many[8];
  int right = 0;
  for (int index = 0; index < 8; ++index) many[index] = new_context(graph);
  for (int index = 0; index < 8; ++index)
    right += write_text(many[index], greedy, prompt, &text) == WASI_NN_SUCCESS && same(&text, reference);
  ask(right == 8, "eight contexts more write the same", "%d of them", right);
  for (int index = 0; index < 8; ++index) drop(many[index]);
  drop(second);
  free(text.data);
  free(other.data);
}

/* Token ids in, by what comes out: a text goes on as it did when its first ids are handed back. */
static void ask_tokens(wasi_nn_graph graph) {
  wasi_nn_context const context = new_context(graph);
  guest_bytes text = {0, 0, 0}, ids = {0, 0, 0}, rest = {0, 0, 0};
  uint32_t code = write_text(context, greedy, prompt, &text);
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_TOKENS, &ids);
  if (!ask_code(code, WASI_NN_SUCCESS, "ids to go on from")) return;
  /* The ids alone are another prompt than before them, so they are continued twice. */
  if (ids.size < 8) {
    skip("token ids as a prompt", "the model ended its text at once");
    return;
  }
  int32_t* const tokens = (int32_t*)ids.data;
  uint32_t const given = ids.size / 4;
  code = set_tokens(context, tokens, given);
  if (!code) code = wasi_nn_compute(context);
  guest_bytes whole = {0, 0, 0};
  if (!code) code = guest_output(context, WASI_NN_OUTPUT_TOKENS, &whole);
  if (ask_code(code, WASI_NN_SUCCESS, "token ids as a prompt")) {
    if (whole.size < 16) {
      skip("a text goes on as it did", "the model ended its text at once");
    } else {
      uint32_t const half = whole.size / 8;
      int32_t* const more = malloc(4 * (given + half));
      memcpy(more, tokens, 4 * given);
      memcpy(more + given, whole.data, 4 * half);
      code = set_tokens(context, more, given + half);
      if (!code) code = wasi_nn_compute(context);
      if (!code) code = guest_output(context, WASI_NN_OUTPUT_TOKENS, &rest);
      uint32_t const left = whole.size - 4 * half;
      if (ask_code(code, WASI_NN_SUCCESS, "more token ids as a prompt"))
        ask(rest.size >= left && memcmp(rest.data, whole.data + 4 * half, left) == 0, "a text goes on as it did",
            "other ids");
      guest_bytes usage = {0, 0, 0};
      code = guest_output(context, WASI_NN_OUTPUT_USAGE, &usage);
      if (ask_code(code, WASI_NN_SUCCESS, "their usage"))
        ask(guest_number((char const*)usage.data, "input_tokens") == (long)(given + half), "counts the ids as they are",
            "%s for %u", (char const*)usage.data, (unsigned)(given + half));
      free(usage.data);
      free(more);
    }
  }
  free(whole.data);
  free(text.data);
  free(ids.data);
  free(rest.data);
  drop(context);
}

/* ---- Streaming ---- */

/* A text token by token, at most `most` of them; the code that ended it. */
static uint32_t stream(wasi_nn_context context, uint32_t most, guest_bytes* out) {
  guest_bytes piece = {0, 0, 0};
  uint32_t code = WASI_NN_SUCCESS;
  out->size = 0;
  for (uint32_t count = 0; count < most && !code; ++count) {
    code = wasi_nn_compute_single(context);
    if (!code) code = guest_get(context, WASI_NN_OUTPUT_TEXT, 1, &piece);
    if (code) break;
    guest_reserve(out, out->size + piece.size);
    memcpy(out->data + out->size, piece.data, piece.size);
    out->size += piece.size;
  }
  guest_reserve(out, out->size);
  out->data[out->size] = 0;
  free(piece.data);
  return code;
}

static void ask_streaming(wasi_nn_graph graph, guest_bytes const* reference) {
  wasi_nn_context const context = new_context(graph);
  guest_bytes text = {0, 0, 0};
  ask_refused(wasi_nn_compute_single(context), "compute_single without a prompt");
  set_options(context, greedy);
  ask_code(set_prompt(context, prompt), WASI_NN_SUCCESS, "a prompt to stream from");
  uint32_t code = stream(context, 1000, &text);
  if (ask_code(code, WASI_NN_END_OF_SEQUENCE, "the end of a stream"))
    ask(same(&text, reference), "pieces are the text", "\"%s\", not \"%s\"", (char const*)text.data,
        (char const*)reference->data);
  ask_code(wasi_nn_fini_single(context), WASI_NN_SUCCESS, "fini_single");

  ask_code(set_prompt(context, prompt), WASI_NN_SUCCESS, "a prompt after fini_single");
  ask_code(wasi_nn_compute_single(context), WASI_NN_SUCCESS, "the first token");
  uint32_t size = 77;
  uint8_t buffer[256];
  code = wasi_nn_get_output_single(context, WASI_NN_OUTPUT_TEXT, buffer, 0, &size);
  /* A piece may have no bytes yet: then no buffer is too small. */
  ask(code == WASI_NN_TOO_LARGE ? size > 0 : code == WASI_NN_SUCCESS && size == 0, "a piece in a buffer of no bytes",
      "%s (%u), size %u", wasi_nn_error_name(code), (unsigned)code, (unsigned)size);
  uint32_t const needed = size;
  if (ask_code(wasi_nn_get_output_single(context, WASI_NN_OUTPUT_TEXT, buffer, sizeof buffer, &size), WASI_NN_SUCCESS,
               "the piece is kept"))
    ask(size == needed, "as long as was said", "%u, not %u", (unsigned)size, (unsigned)needed);
  ask_code(wasi_nn_get_output_single(context, 99, buffer, sizeof buffer, &size), WASI_NN_INVALID_ARGUMENT,
           "an output of a stream that there is not");
  ask_code(wasi_nn_fini_single(context), WASI_NN_SUCCESS, "fini_single in the middle");
  ask_same(write_text(context, greedy, prompt, &text), &text, reference, "compute after a stream");

  ask_code(wasi_nn_compute_single(context + 1000), WASI_NN_INVALID_ARGUMENT, "compute_single of an unknown context");
  ask_code(wasi_nn_get_output_single(context + 1000, 0, buffer, sizeof buffer, &size), WASI_NN_INVALID_ARGUMENT,
           "a piece of an unknown context");
  ask_code(wasi_nn_fini_single(context + 1000), WASI_NN_INVALID_ARGUMENT, "fini_single of an unknown context");

  /* Two streams in turns. */
  wasi_nn_context const other = new_context(graph);
  guest_bytes pieces[2] = {{0, 0, 0}, {0, 0, 0}}, piece = {0, 0, 0};
  set_options(other, greedy);
  set_prompt(context, prompt);
  set_prompt(other, prompt);
  uint32_t codes[2] = {0, 0};
  wasi_nn_context const both[2] = {context, other};
  for (int turn = 0; turn < 2000 && (!codes[0] || !codes[1]); ++turn) {
    int const which = turn % 2;
    if (codes[which]) continue;
    codes[which] = wasi_nn_compute_single(both[which]);
    if (codes[which] || guest_get(both[which], WASI_NN_OUTPUT_TEXT, 1, &piece)) continue;
    guest_reserve(&pieces[which], pieces[which].size + piece.size);
    memcpy(pieces[which].data + pieces[which].size, piece.data, piece.size);
    pieces[which].size += piece.size;
  }
  ask(same(&pieces[0], reference) && same(&pieces[1], reference), "two streams in turns", "other texts than one alone");
  wasi_nn_fini_single(context);
  wasi_nn_fini_single(other);
  drop(context);
  drop(other);
  free(piece.data);
  free(pieces[0].data);
  free(pieces[1].data);
  free(text.data);
}

static void ask_fill(wasi_nn_graph graph) {
  wasi_nn_context const context = new_context(graph);
  guest_bytes text = {0, 0, 0};
  set_options(context, "{\"temperature\": 0, \"max_tokens\": 1000000, \"ignore_eos\": true}");
  set_prompt(context, prompt);
  ask_code(stream(context, 1000000, &text), WASI_NN_CONTEXT_FULL, "a stream into a full context");
  ask(text.size > 0, "what was written before is there", "nothing is");
  wasi_nn_fini_single(context);
  free(text.data);
  drop(context);
}

/* ---- The end of graphs and contexts ---- */

static void ask_ends(char const* model) {
  wasi_nn_graph graph = 0, later = 0;
  wasi_nn_context context = 0;
  if (!ask_code(wasi_nn_load_by_name(model, (uint32_t)strlen(model), &graph), WASI_NN_SUCCESS, "a graph to unload"))
    return;
  context = new_context(graph);
  wasi_nn_context const other = new_context(graph);
  ask_code(wasi_nn_finalize_execution_context(context), WASI_NN_SUCCESS, "finalize_execution_context");
  ask_code(set_prompt(context, prompt), WASI_NN_INVALID_ARGUMENT, "an input after it");
  ask_code(wasi_nn_compute(context), WASI_NN_INVALID_ARGUMENT, "compute after it");
  ask_code(wasi_nn_finalize_execution_context(context), WASI_NN_INVALID_ARGUMENT, "finalize_execution_context twice");
  ask_code(set_prompt(other, prompt), WASI_NN_SUCCESS, "the other context stays");
  ask_code(wasi_nn_unload(graph), WASI_NN_SUCCESS, "unload");
  ask_code(wasi_nn_init_execution_context(graph, &context), WASI_NN_INVALID_ARGUMENT, "a context after unload");
  ask_code(wasi_nn_unload(graph), WASI_NN_INVALID_ARGUMENT, "unload twice");
  ask_code(wasi_nn_finalize_execution_context(other), WASI_NN_SUCCESS, "finalize_execution_context after unload");
  if (ask_code(wasi_nn_load_by_name(model, (uint32_t)strlen(model), &later), WASI_NN_SUCCESS, "the model once more"))
    ask(later != graph, "numbers are not used again", "%u", (unsigned)later);
  ask_code(wasi_nn_unload(later), WASI_NN_SUCCESS, "unload it too");
  ask_code(wasi_nn_unload(later + 1000), WASI_NN_INVALID_ARGUMENT, "unload of an unknown graph");
}

/* ---- The host's own checks ---- */

static void ask_host(wasi_nn_graph graph, char const* model) {
  void* const outside = (void*)0xFFFFFFF0u;
  void* const last = (void*)(uintptr_t)(__builtin_wasm_memory_size(0) * 65536u - 2); /* two bytes before the end */
  void* const nowhere[] = {outside, last};
  char const* const where[] = {"far outside", "at the end"};
  uint32_t const length = (uint32_t)strlen(model);
  wasi_nn_context const context = new_context(graph);
  char name[100];
  uint32_t size = 0;
  uint32_t const one = 1;
  uint8_t buffer[64];
  for (int index = 0; index < 2; ++index) {
    void* const bad = nowhere[index];
#define ASK_HOST(code, text) \
  (snprintf(name, sizeof name, text " %s", where[index]), ask_code(code, WASI_NN_INVALID_ARGUMENT, name))
    wasi_nn_graph other = 0;
    ASK_HOST(wasi_nn_load_by_name(bad, length, &other), "a name");
    ASK_HOST(wasi_nn_load_by_name(model, length, bad), "a number's place");
    ASK_HOST(wasi_nn_load_by_name(model, 0xFFFFFFFFu, &other), "a name's end");
    ASK_HOST(wasi_nn_load_by_name_with_config(model, length, bad, 10, &other), "a config");
    ASK_HOST(wasi_nn_load(bad, 1, WASI_NN_ENCODING_GGML, 0, &other), "builders");
    ASK_HOST(wasi_nn_load(bad, 0x20000001u, WASI_NN_ENCODING_GGML, 0, &other), "very many builders");
    wasi_nn_builder const builder = {bad, 100};
    ASK_HOST(wasi_nn_load(&builder, 1, WASI_NN_ENCODING_GGML, 0, &other), "a builder's data");
    ASK_HOST(wasi_nn_init_execution_context(graph, bad), "a context's place");
    ASK_HOST(wasi_nn_set_input(context, 0, bad), "a tensor");
    wasi_nn_tensor tensor = {bad, 1, WASI_NN_TYPE_U8, {0, 0, 0}, buffer, 4};
    ASK_HOST(wasi_nn_set_input(context, 0, &tensor), "dimensions");
    tensor.dimensions = &one;
    tensor.dimension_count = 0x40000001u;
    ASK_HOST(wasi_nn_set_input(context, 0, &tensor), "very many dimensions");
    tensor.dimension_count = 1;
    tensor.data = bad;
    ASK_HOST(wasi_nn_set_input(context, 0, &tensor), "data");
    tensor.data = buffer;
    tensor.size = 0xFFFFFFFFu;
    ASK_HOST(wasi_nn_set_input(context, 0, &tensor), "the end of data");
    ASK_HOST(wasi_nn_get_output(context, WASI_NN_OUTPUT_STATUS, bad, 4096, &size), "a buffer");
    ASK_HOST(wasi_nn_get_output(context, WASI_NN_OUTPUT_STATUS, buffer, sizeof buffer, bad), "a size's place");
    ASK_HOST(wasi_nn_get_output(context, WASI_NN_OUTPUT_STATUS, buffer, 0xFFFFFFFFu, &size), "a buffer's end");
#undef ASK_HOST
  }
  ask_code(wasi_nn_load_by_name(0, length, &size), WASI_NN_INVALID_ARGUMENT, "a null name");
  ask_code(wasi_nn_load_by_name(model, length, 0), WASI_NN_INVALID_ARGUMENT, "a null place");
  ask_code(wasi_nn_load(0, 1, WASI_NN_ENCODING_GGML, 0, &size), WASI_NN_INVALID_ARGUMENT, "null builders");
  ask_code(wasi_nn_init_execution_context(graph, 0), WASI_NN_INVALID_ARGUMENT, "a null place of a context");
  ask_code(wasi_nn_set_input(context, 0, 0), WASI_NN_INVALID_ARGUMENT, "a null tensor");
  wasi_nn_tensor tensor = {0, 1, WASI_NN_TYPE_U8, {0, 0, 0}, buffer, 4};
  ask_code(wasi_nn_set_input(context, 0, &tensor), WASI_NN_INVALID_ARGUMENT, "null dimensions");
  tensor.dimensions = &one;
  tensor.data = 0;
  ask_code(wasi_nn_set_input(context, 0, &tensor), WASI_NN_INVALID_ARGUMENT, "null data");
  ask_code(wasi_nn_get_output(context, WASI_NN_OUTPUT_STATUS, 0, 10, &size), WASI_NN_INVALID_ARGUMENT, "a null buffer");
  ask_code(wasi_nn_get_output(context, WASI_NN_OUTPUT_STATUS, buffer, 10, 0), WASI_NN_INVALID_ARGUMENT,
           "a null place of a size");
  /* The host looks up the memory in every call: one that grew may have moved. */
  guest_bytes text = {0, 0, 0};
  uint8_t* const more = malloc(64u << 20);
  if (ask(more != 0, "the memory grows", "64 MiB cannot be had")) {
    memcpy(more + (60u << 20), prompt, sizeof prompt);
    ask_code(write_text(context, greedy, (char const*)more + (60u << 20), &text), WASI_NN_SUCCESS,
             "a prompt far behind");
  }
  free(more);
  free(text.data);
  drop(context);
}

int main(int argc, char** argv) {
  char const *model = 0, *path = 0;
  int host_checks = 0, fill = 0;
  for (int index = 1; index < argc; ++index) {
    if (strcmp(argv[index], "--host-checks") == 0) host_checks = 1;
    else if (strcmp(argv[index], "--no-streaming") == 0) streaming = 0;
    else if (strcmp(argv[index], "--fill") == 0) fill = 1;
    else if (strcmp(argv[index], "--file") == 0 && index + 1 < argc) path = argv[++index];
    else if (!model && argv[index][0] != '-') model = argv[index];
    else {
      fprintf(stderr,
              "conformance: '%s' is not known: conformance.wasm [MODEL] [--host-checks] [--no-streaming] [--fill] "
              "[--file MODEL.gguf]\n",
              argv[index]);
      return 2;
    }
  }
  if (!model) model = "default";
  if (fill && !streaming) {
    fputs("conformance: --fill needs streaming\n", stderr);
    return 2;
  }

  wasi_nn_graph graph = 0;
  if (!ask_code(wasi_nn_load_by_name(model, (uint32_t)strlen(model), &graph), WASI_NN_SUCCESS, "the model")) {
    printf("nothing more can be asked\n");
    return 1;
  }
  wasi_nn_context context = 0;
  ask_code(wasi_nn_init_execution_context(graph + 1000, &context), WASI_NN_INVALID_ARGUMENT, "a context of no graph");
  context = new_context(graph);
  guest_bytes reference = {0, 0, 0};
  uint32_t const code = write_text(context, greedy, prompt, &reference);
  if (!ask_code(code, WASI_NN_SUCCESS, "a text")) {
    printf("its status: %s\nnothing more can be asked\n", last_error(context));
    return 1;
  }
  if (!ask(reference.size > 0, "has bytes", "none")) {
    printf("nothing more can be asked\n");
    return 1;
  }
  ask_outputs(context, &reference);
  ask_inputs(graph, &reference);
  ask_names(model, graph);
  ask_bytes(path);
  ask_texts(graph, context, &reference);
  ask_tokens(graph);
  if (streaming) {
    ask_streaming(graph, &reference);
    ask_ends(model);
  }
  if (fill) ask_fill(graph);
  if (host_checks) ask_host(graph, model);
  free(reference.data);
  printf("%d ok, %d skipped, %d failed\n", passed, skipped, failed);
  return failed > 0;
}
