/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The part of scripts/wasi_host.mjs that is no JavaScript: opens a library of the kind that wasm-micro-runtime loads
 * (libwasi_nn_llamacpp.so) and calls it with pointers into a guest's memory.
 *
 * connect(path) gives an object with one function for each import of wasi_ephemeral_nn. Each takes the guest's memory
 * as an ArrayBuffer, then the import's own arguments, and returns the error code. connect throws when the library
 * cannot be opened or does not start. close() of the object stops the library.
 *
 * Every range is checked against the size of the memory before the library sees it: outside, the answer is 1, invalid
 * argument. A null pointer stays one, and has no bytes.
 */
#define NAPI_VERSION 8
#define NODE_GYP_MODULE_NAME wasi_nn_host
#include <node_api.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { success = 0, invalid_argument = 1, missing_memory = 3, unsupported = 6, too_large = 7 };

/* ---- The library's types ---- */

typedef struct bytes {
  void* data;
  uint32_t size;
} bytes;

typedef struct builders {
  bytes* items;
  uint32_t size;
} builders;

typedef struct tensor {
  bytes* dimensions;
  uint8_t type;
  bytes data;
} tensor;

_Static_assert(sizeof(bytes) == 16 && sizeof(tensor) == 32, "structures of the library's interface, on 64-bit hosts");

typedef struct library {
  void* handle;
  void* context; /* null before init_backend and after deinit_backend, where the library gives none */
  bool open;
  int32_t (*init_backend)(void** context);
  int32_t (*deinit_backend)(void* context);
  int32_t (*load)(void* context, builders* builders, int encoding, int target, uint32_t* graph);
  int32_t (*load_by_name)(void* context, char const* name, uint32_t length, uint32_t* graph);
  int32_t (*load_by_name_with_config)(void* context, char const* name, uint32_t length, char const* config,
                                      uint32_t config_length, uint32_t* graph);
  int32_t (*init_execution_context)(void* context, uint32_t graph, uint32_t* execution);
  int32_t (*set_input)(void* context, uint32_t execution, uint32_t index, tensor* tensor);
  int32_t (*compute)(void* context, uint32_t execution);
  int32_t (*get_output)(void* context, uint32_t execution, uint32_t index, bytes* buffer, uint32_t* written);
  /* Null in libraries that do not have them. */
  int32_t (*compute_single)(void* context, uint32_t execution);
  int32_t (*get_output_single)(void* context, uint32_t execution, uint32_t index, bytes* buffer, uint32_t* written);
  int32_t (*fini_single)(void* context, uint32_t execution);
  int32_t (*unload)(void* context, uint32_t graph);
  int32_t (*finalize_execution_context)(void* context, uint32_t execution);
} library;

/* ---- The guest's memory ---- */

/* One call of a guest: its memory, which does not move within the call, and the import's arguments. */
typedef struct call {
  library* library;
  uint8_t* base;
  size_t size;
  uint32_t arguments[5];
} call;

/* Whether the range is in the guest's memory; then where it is in this process. */
static bool range(call const* call, uint32_t offset, uint64_t size, void** address) {
  if (size > call->size || offset > call->size - size || (offset == 0 && size > 0)) return false;
  *address = offset ? call->base + offset : NULL;
  return true;
}

/* Guests may place numbers at any address. */
static uint32_t number_at(uint8_t const* at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_number(uint8_t* at, uint32_t number) {
  for (int byte = 0; byte < 4; ++byte) at[byte] = (uint8_t)(number >> 8 * byte);
}

/* A copy with a terminator, as the library's interface has texts; null when there is no such text. */
static char* text_of(call const* call, uint32_t offset, uint32_t size) {
  void* address = NULL;
  if (!range(call, offset, size, &address) || (size > 0 && memchr(address, 0, size))) return NULL;
  char* const text = malloc((size_t)size + 1);
  if (!text) return NULL;
  if (size > 0) memcpy(text, address, size);
  text[size] = 0;
  return text;
}

/* Where the import writes a number. */
static uint8_t* slot(call const* call, uint32_t offset) {
  void* address = NULL;
  return range(call, offset, 4, &address) ? address : NULL;
}

/* ---- The imports ---- */

static int32_t give(uint8_t* out, int32_t code, uint32_t handle) {
  if (code == success) put_number(out, handle);
  return code;
}

static int32_t do_load(call const* call) {
  uint32_t const count = call->arguments[1];
  uint8_t* const out = slot(call, call->arguments[4]);
  void* fields = NULL;
  if (count > 2) return invalid_argument; /* more than any model has; they are not looked at */
  if (!out || !range(call, call->arguments[0], (uint64_t)count * 8, &fields)) return invalid_argument;
  bytes* const parts = calloc(count ? count : 1, sizeof *parts);
  if (!parts) return missing_memory;
  int32_t code = success;
  for (uint32_t index = 0; index < count && code == success; ++index) {
    uint8_t const* const field = (uint8_t const*)fields + (size_t)8 * index;
    parts[index].size = number_at(field + 4);
    if (!range(call, number_at(field), parts[index].size, &parts[index].data)) code = invalid_argument;
  }
  uint32_t graph = 0;
  builders given = {parts, count};
  if (code == success) {
    code =
        call->library->load(call->library->context, &given, (int)call->arguments[2], (int)call->arguments[3], &graph);
    give(out, code, graph);
  }
  free(parts);
  return code;
}

static int32_t do_load_by_name(call const* call) {
  uint8_t* const out = slot(call, call->arguments[2]);
  char* const name = out ? text_of(call, call->arguments[0], call->arguments[1]) : NULL;
  if (!name) return invalid_argument;
  uint32_t graph = 0;
  int32_t const code = call->library->load_by_name(call->library->context, name, call->arguments[1], &graph);
  free(name);
  return give(out, code, graph);
}

static int32_t do_load_by_name_with_config(call const* call) {
  uint8_t* const out = slot(call, call->arguments[4]);
  char* const name = out ? text_of(call, call->arguments[0], call->arguments[1]) : NULL;
  char* const config = name ? text_of(call, call->arguments[2], call->arguments[3]) : NULL;
  int32_t code = invalid_argument;
  uint32_t graph = 0;
  if (config)
    code = call->library->load_by_name_with_config(call->library->context, name, call->arguments[1], config,
                                                   call->arguments[3], &graph);
  free(name);
  free(config);
  return config ? give(out, code, graph) : code;
}

static int32_t do_init_execution_context(call const* call) {
  uint8_t* const out = slot(call, call->arguments[1]);
  if (!out) return invalid_argument;
  uint32_t execution = 0;
  int32_t const code = call->library->init_execution_context(call->library->context, call->arguments[0], &execution);
  return give(out, code, execution);
}

static int32_t do_set_input(call const* call) {
  void* address = NULL;
  if (!range(call, call->arguments[2], 20, &address)) return invalid_argument;
  uint8_t const* const fields = address;
  bytes dimensions = {NULL, number_at(fields + 4)};
  tensor given = {&dimensions, fields[8], {NULL, number_at(fields + 16)}}; /* of the type one byte counts */
  if (!range(call, number_at(fields), (uint64_t)dimensions.size * 4, &dimensions.data) ||
      !range(call, number_at(fields + 12), given.data.size, &given.data.data))
    return invalid_argument;
  return call->library->set_input(call->library->context, call->arguments[0], call->arguments[1], &given);
}

static int32_t do_compute(call const* call) {
  return call->library->compute(call->library->context, call->arguments[0]);
}

static int32_t do_output(call const* call, bool single) {
  library* const library = call->library;
  uint8_t* const out = slot(call, call->arguments[4]);
  bytes buffer = {NULL, call->arguments[3]};
  if (!out || !range(call, call->arguments[2], buffer.size, &buffer.data)) return invalid_argument;
  uint32_t written = 0;
  int32_t const code = (single ? library->get_output_single : library->get_output)(
      library->context, call->arguments[0], call->arguments[1], &buffer, &written);
  if (code == success || code == too_large) put_number(out, written);
  return code;
}

static int32_t do_get_output(call const* call) { return do_output(call, false); }

static int32_t do_get_output_single(call const* call) {
  return call->library->get_output_single ? do_output(call, true) : unsupported;
}

static int32_t do_compute_single(call const* call) {
  library* const library = call->library;
  return library->compute_single ? library->compute_single(library->context, call->arguments[0]) : unsupported;
}

static int32_t do_fini_single(call const* call) {
  library* const library = call->library;
  return library->fini_single ? library->fini_single(library->context, call->arguments[0]) : unsupported;
}

static int32_t do_unload(call const* call) {
  library* const library = call->library;
  return library->unload ? library->unload(library->context, call->arguments[0]) : unsupported;
}

static int32_t do_finalize_execution_context(call const* call) {
  library* const library = call->library;
  return library->finalize_execution_context ? library->finalize_execution_context(library->context, call->arguments[0])
                                             : unsupported;
}

typedef struct import {
  char const* name;
  size_t count; /* of arguments */
  int32_t (*run)(call const* call);
} import;

static import const imports[] = {
    {"load", 5, do_load},
    {"load_by_name", 3, do_load_by_name},
    {"load_by_name_with_config", 5, do_load_by_name_with_config},
    {"init_execution_context", 2, do_init_execution_context},
    {"set_input", 3, do_set_input},
    {"compute", 1, do_compute},
    {"get_output", 5, do_get_output},
    {"compute_single", 1, do_compute_single},
    {"get_output_single", 5, do_get_output_single},
    {"fini_single", 1, do_fini_single},
    {"unload", 1, do_unload},
    {"finalize_execution_context", 1, do_finalize_execution_context},
};
enum { import_count = sizeof imports / sizeof imports[0] };

/* ---- JavaScript's side ---- */

/* What a function of the object knows. */
typedef struct bound {
  library* library;
  import const* import;
} bound;

static napi_value fail(napi_env env, char const* format, ...) {
  char text[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  napi_throw_error(env, NULL, text);
  return NULL;
}

static napi_value enter(napi_env env, napi_callback_info info) {
  napi_value values[6], result;
  size_t count = 6;
  void* data = NULL;
  if (napi_get_cb_info(env, info, &count, values, NULL, &data) != napi_ok) return fail(env, "a call without data");
  bound const* const bound = data;
  call call = {.library = bound->library};
  void* base = NULL;
  if (!bound->library->open) return fail(env, "%s after close", bound->import->name);
  if (count != bound->import->count + 1 || napi_get_arraybuffer_info(env, values[0], &base, &call.size) != napi_ok)
    return fail(env, "%s takes an ArrayBuffer and %zu numbers", bound->import->name, bound->import->count);
  call.base = base;
  for (size_t index = 0; index < bound->import->count; ++index)
    if (napi_get_value_uint32(env, values[index + 1], &call.arguments[index]) != napi_ok)
      return fail(env, "argument %zu of %s is no number", index + 1, bound->import->name);
  int32_t const code = bound->import->run(&call);
  return napi_create_int32(env, code, &result) == napi_ok ? result : NULL;
}

static napi_value close_library(napi_env env, napi_callback_info info) {
  size_t count = 0;
  void* data = NULL;
  if (napi_get_cb_info(env, info, &count, NULL, NULL, &data) != napi_ok) return NULL;
  library* const library = data;
  if (library->open) library->deinit_backend(library->context);
  library->open = false;
  return NULL;
}

/* The library stays mapped until the process ends, since the functions of the object point to it. */
static napi_value connect(napi_env env, napi_callback_info info) {
  static library connected;
  static bound functions[import_count];
  char path[4096];
  napi_value argument, object;
  size_t count = 1, length = 0;
  if (napi_get_cb_info(env, info, &count, &argument, NULL, NULL) != napi_ok || count != 1 ||
      napi_get_value_string_utf8(env, argument, path, sizeof path, &length) != napi_ok || length >= sizeof path - 1)
    return fail(env, "connect takes the path of a library");
  if (connected.handle) return fail(env, "one library at a time");
  connected.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!connected.handle) return fail(env, "%s", dlerror());

  struct {
    char const* name;
    void* to;
    bool needed;
  } const symbols[] = {
      {"init_backend", &connected.init_backend, true},
      {"deinit_backend", &connected.deinit_backend, true},
      {"load", &connected.load, true},
      {"load_by_name", &connected.load_by_name, true},
      {"load_by_name_with_config", &connected.load_by_name_with_config, true},
      {"init_execution_context", &connected.init_execution_context, true},
      {"set_input", &connected.set_input, true},
      {"compute", &connected.compute, true},
      {"get_output", &connected.get_output, true},
      {"tutti_wasi_nn_compute_single", &connected.compute_single, false},
      {"tutti_wasi_nn_get_output_single", &connected.get_output_single, false},
      {"tutti_wasi_nn_fini_single", &connected.fini_single, false},
      {"tutti_wasi_nn_unload", &connected.unload, false},
      {"tutti_wasi_nn_finalize_execution_context", &connected.finalize_execution_context, false},
  };
  for (size_t index = 0; index < sizeof symbols / sizeof symbols[0]; ++index) {
    void* const found = dlsym(connected.handle, symbols[index].name);
    if (!found && symbols[index].needed) return fail(env, "%s has no function %s", path, symbols[index].name);
    memcpy(symbols[index].to, &found, sizeof found);
  }
  int32_t const code = connected.init_backend(&connected.context);
  if (code != success) return fail(env, "its init_backend gave error %d", (int)code);
  connected.open = true;

  if (napi_create_object(env, &object) != napi_ok) return NULL;
  for (size_t index = 0; index < import_count; ++index) {
    functions[index] = (bound){&connected, &imports[index]};
    napi_value function;
    if (napi_create_function(env, imports[index].name, NAPI_AUTO_LENGTH, enter, &functions[index], &function) !=
            napi_ok ||
        napi_set_named_property(env, object, imports[index].name, function) != napi_ok)
      return NULL;
  }
  napi_value close;
  if (napi_create_function(env, "close", NAPI_AUTO_LENGTH, close_library, &connected, &close) != napi_ok ||
      napi_set_named_property(env, object, "close", close) != napi_ok)
    return NULL;
  return object;
}

NAPI_MODULE_INIT() {
  napi_value function;
  if (napi_create_function(env, "connect", NAPI_AUTO_LENGTH, connect, NULL, &function) != napi_ok ||
      napi_set_named_property(env, exports, "connect", function) != napi_ok)
    return NULL;
  return exports;
}
