/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What a program of WebAssembly calls to use a language model of its host: the imports of the module wasi_ephemeral_nn.
 * C11 and later, C++20. No library goes with it; the host brings the functions.
 *
 * A text from a model takes these calls:
 *
 *   wasi_nn_load_by_name("default", 7, &graph)
 *   wasi_nn_init_execution_context(graph, &context)
 *   wasi_nn_set_input(context, WASI_NN_INPUT_PROMPT, &tensor)     the prompt's bytes
 *   wasi_nn_compute(context)                                       writes the whole text
 *   wasi_nn_get_output(context, WASI_NN_OUTPUT_TEXT, buffer, capacity, &written)
 *
 * and piece by piece, in the place of the last two:
 *
 *   wasi_nn_compute_single(context)                                one token; WASI_NN_END_OF_SEQUENCE after the last
 *   wasi_nn_get_output_single(context, WASI_NN_OUTPUT_TEXT, buffer, capacity, &written)
 *   wasi_nn_fini_single(context)
 *
 * Every function returns one of wasi_nn_error. Why a call on a context failed is told in words by the field "error" of
 * WASI_NN_OUTPUT_STATUS.
 */
#ifndef TUTTI_EXAMPLES_WASI_NN_H
#define TUTTI_EXAMPLES_WASI_NN_H

#include <stddef.h>
#include <stdint.h>

#ifndef __wasm__
#error "wasi_nn.h is for programs of WebAssembly: compile with clang --target=wasm32-wasi"
#endif

#ifdef __cplusplus
extern "C" {
#define WASI_NN_STATIC_ASSERT static_assert
#else
#define WASI_NN_STATIC_ASSERT _Static_assert
#endif

/* Codes, indices and types are plain 32-bit numbers of the interface; the enumerations give the values names. */

enum wasi_nn_error {
  WASI_NN_SUCCESS = 0,
  WASI_NN_INVALID_ARGUMENT = 1, /* a handle, an index, a pointer, a dimension or an option that cannot be */
  WASI_NN_INVALID_ENCODING = 2, /* no model of a kind that the host reads */
  WASI_NN_MISSING_MEMORY = 3,
  WASI_NN_BUSY = 4, /* later, the same call may succeed */
  WASI_NN_RUNTIME_ERROR = 5,
  WASI_NN_UNSUPPORTED_OPERATION = 6,
  WASI_NN_TOO_LARGE = 7, /* of get_output: the buffer is too small, and `written` has the size that is needed */
  WASI_NN_NOT_FOUND = 8,
  WASI_NN_END_OF_SEQUENCE = 100, /* of compute_single: the text is complete, this call wrote nothing */
  WASI_NN_CONTEXT_FULL = 101,    /* prompt and text fill the positions that the model has */
  WASI_NN_PROMPT_TOO_LONG = 102, /* the prompt alone has more tokens than that */
  WASI_NN_MODEL_NOT_FOUND = 103  /* of load_by_name: the host knows no model of this name */
};

enum wasi_nn_type {
  WASI_NN_TYPE_F16 = 0,
  WASI_NN_TYPE_F32 = 1,
  WASI_NN_TYPE_F64 = 2,
  WASI_NN_TYPE_U8 = 3,
  WASI_NN_TYPE_I32 = 4,
  WASI_NN_TYPE_I64 = 5
};

/* Of models that are loaded from bytes. Hosts number these two the other way round too; both mean GGUF here. */
enum wasi_nn_encoding { WASI_NN_ENCODING_GGML = 5, WASI_NN_ENCODING_AUTODETECT = 6 };

/* Where the model is to run; a wish. */
enum wasi_nn_target { WASI_NN_TARGET_CPU = 0, WASI_NN_TARGET_GPU = 1, WASI_NN_TARGET_TPU = 2, WASI_NN_TARGET_AUTO = 3 };

enum wasi_nn_input {
  WASI_NN_INPUT_PROMPT = 0,  /* u8 [n]: the prompt, UTF-8 without a terminator */
  WASI_NN_INPUT_OPTIONS = 1, /* u8 [n]: a JSON object; a key that is not known is refused */
  WASI_NN_INPUT_TOKENS = 2,  /* i32 [n]: the prompt as token ids, in the place of its bytes */
  WASI_NN_INPUT_CONTROL = 3  /* u8 [n]: a JSON object: {"cancel": true} ends the answer, {"reset": true} forgets the
                              * conversation, {"truncate": 2} what came after two answers, {"save": "name"} keeps
                              * it where the host allows that, and {"restore": "name"} goes on with it */
};

/*
 * Keys of WASI_NN_INPUT_OPTIONS, each at its default when it is absent; they hold for every prompt of the context until
 * they are set again:
 *
 *   max_tokens         most tokens to write
 *   temperature, top_k, top_p, seed     how tokens are drawn; temperature 0 takes the most likely one
 *   stop               list of texts that end the answer and are not part of it
 *   grammar            GBNF that the text must follow
 *   session            name of a conversation: prompts of one name go on from what they have in common
 *   chat_template      "none": the prompt is continued as it is. "auto", or a template's name: the prompt is what a
 *                      user says, and is answered in the conversation of the session
 */

enum wasi_nn_output {
  WASI_NN_OUTPUT_TEXT = 0,   /* u8: the text, or the next piece of it, of whole characters */
  WASI_NN_OUTPUT_USAGE = 1,  /* u8: JSON {"input_tokens": 5, "output_tokens": 20, ...} */
  WASI_NN_OUTPUT_STATUS = 2, /* u8: JSON; "error": what failed last, in words; "stop_reason": why the text ended */
  WASI_NN_OUTPUT_LOGITS = 3, /* f32 [vocabulary]: of the last position */
  WASI_NN_OUTPUT_TOKENS = 4  /* i32 [n]: the ids of the tokens written */
};

typedef uint32_t wasi_nn_graph;   /* a model that was loaded */
typedef uint32_t wasi_nn_context; /* one place for a prompt, its options and what was made of them */

/* Bytes of a model, or of one part of it. */
typedef struct wasi_nn_builder {
  uint8_t const* data;
  uint32_t size;
} wasi_nn_builder;

/* One input. Padding must be zero: some hosts read the type as 32 bits. {0} does that. */
typedef struct wasi_nn_tensor {
  uint32_t const* dimensions; /* 1 to 4 of them */
  uint32_t dimension_count;
  uint8_t type; /* of wasi_nn_type */
  uint8_t padding[3];
  uint8_t const* data;
  uint32_t size; /* of the data in bytes */
} wasi_nn_tensor;

WASI_NN_STATIC_ASSERT(sizeof(void*) == 4, "wasi_ephemeral_nn has 32-bit pointers");
WASI_NN_STATIC_ASSERT(sizeof(wasi_nn_builder) == 8, "a builder has 8 bytes");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_builder, data) == 0, "a builder begins with its data");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_builder, size) == 4, "a builder's size is at 4");
WASI_NN_STATIC_ASSERT(sizeof(wasi_nn_tensor) == 20, "a tensor has 20 bytes");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_tensor, dimensions) == 0, "a tensor begins with its dimensions");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_tensor, dimension_count) == 4, "a tensor's number of dimensions is at 4");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_tensor, type) == 8, "a tensor's type is at 8");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_tensor, data) == 12, "a tensor's data is at 12");
WASI_NN_STATIC_ASSERT(offsetof(wasi_nn_tensor, size) == 16, "a tensor's size is at 16");

#define WASI_NN_IMPORT(name) __attribute__((import_module("wasi_ephemeral_nn"), import_name(#name)))

/* A model from its bytes, which the host may forget after the call. */
uint32_t wasi_nn_load(wasi_nn_builder const* builders, uint32_t builder_count, uint32_t encoding, uint32_t target,
                      wasi_nn_graph* graph) WASI_NN_IMPORT(load);

/* A model that the host knows by name; nothing is a path. The length excludes a terminator. */
uint32_t wasi_nn_load_by_name(char const* name, uint32_t length, wasi_nn_graph* graph) WASI_NN_IMPORT(load_by_name);

/* The same with a JSON object of options that every context of the graph begins with. */
uint32_t wasi_nn_load_by_name_with_config(char const* name, uint32_t length, char const* config, uint32_t config_length,
                                          wasi_nn_graph* graph) WASI_NN_IMPORT(load_by_name_with_config);

/* Contexts of one graph are independent of each other, and share its weights. */
uint32_t wasi_nn_init_execution_context(wasi_nn_graph graph, wasi_nn_context* context)
    WASI_NN_IMPORT(init_execution_context);

/* The data are copied before the call returns. After an error the context has what it had. */
uint32_t wasi_nn_set_input(wasi_nn_context context, uint32_t index, wasi_nn_tensor const* tensor)
    WASI_NN_IMPORT(set_input);

/* Writes text until an end, a stop text or the limit; outputs 0 to 4 tell of it until the next call. */
uint32_t wasi_nn_compute(wasi_nn_context context) WASI_NN_IMPORT(compute);

/* Copies a whole output. A buffer that is too small, also one of capacity 0, is left alone: WASI_NN_TOO_LARGE, the size
 * that is needed in `written`, and the output stays for another call. */
uint32_t wasi_nn_get_output(wasi_nn_context context, uint32_t index, uint8_t* buffer, uint32_t capacity,
                            uint32_t* written) WASI_NN_IMPORT(get_output);

/* Writes one token more. The first call after set_input takes in the prompt. */
uint32_t wasi_nn_compute_single(wasi_nn_context context) WASI_NN_IMPORT(compute_single);

/* As get_output, of the last token alone where that makes a difference: index 0. */
uint32_t wasi_nn_get_output_single(wasi_nn_context context, uint32_t index, uint8_t* buffer, uint32_t capacity,
                                   uint32_t* written) WASI_NN_IMPORT(get_output_single);

/* Ends a text that was written token by token, also before its end. */
uint32_t wasi_nn_fini_single(wasi_nn_context context) WASI_NN_IMPORT(fini_single);

/* The graph's number is not valid afterwards. Its contexts are finalised one by one all the same. */
uint32_t wasi_nn_unload(wasi_nn_graph graph) WASI_NN_IMPORT(unload);

/* The context's number is not valid afterwards, and its memory is free. */
uint32_t wasi_nn_finalize_execution_context(wasi_nn_context context) WASI_NN_IMPORT(finalize_execution_context);

/* The name of an error in words; the enumeration's comments say more. */
static inline char const* wasi_nn_error_name(uint32_t error) {
  switch (error) {
    case WASI_NN_SUCCESS: return "success";
    case WASI_NN_INVALID_ARGUMENT: return "invalid argument";
    case WASI_NN_INVALID_ENCODING: return "invalid encoding";
    case WASI_NN_MISSING_MEMORY: return "missing memory";
    case WASI_NN_BUSY: return "busy";
    case WASI_NN_RUNTIME_ERROR: return "runtime error";
    case WASI_NN_UNSUPPORTED_OPERATION: return "unsupported operation";
    case WASI_NN_TOO_LARGE: return "too large";
    case WASI_NN_NOT_FOUND: return "not found";
    case WASI_NN_END_OF_SEQUENCE: return "end of sequence";
    case WASI_NN_CONTEXT_FULL: return "context full";
    case WASI_NN_PROMPT_TOO_LONG: return "prompt too long";
    case WASI_NN_MODEL_NOT_FOUND: return "model not found";
    default: return "unknown error";
  }
}

#undef WASI_NN_IMPORT
#undef WASI_NN_STATIC_ASSERT

#ifdef __cplusplus
}
#endif

#endif
