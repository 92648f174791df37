/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* libwasi_nn_llamacpp.so: WASI-NN for language models from GGUF files, as wasm-micro-runtime 2.4 and later loads it, and
 * as any host may. C99.
 *
 * Every function returns a code. Handles of one backend mean nothing to another, and none is used twice. Threads may call
 * at once; a call with an execution context at which another is at work returns busy. No exception leaves a function,
 * nothing is written to standard output, no signal handler is installed. What fails is said in the log (standard error,
 * or the file that the settings name) and in output 2 of the execution context.
 *
 * The variable TUTTI_WASI_NN_MODELS says which models there are: docs/guides/wasi-nn.md. */
#ifndef TUTTI_WASI_NN_H
#define TUTTI_WASI_NN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TUTTI_WASI_NN_SUCCESS = 0,
  TUTTI_WASI_NN_INVALID_ARGUMENT = 1,
  TUTTI_WASI_NN_INVALID_ENCODING = 2, /* neither GGUF nor ONNX of tutti */
  TUTTI_WASI_NN_BUSY = 4,             /* the queue is full, or another call is at work */
  TUTTI_WASI_NN_RUNTIME_ERROR = 5,
  TUTTI_WASI_NN_UNSUPPORTED_OPERATION = 6,
  TUTTI_WASI_NN_TOO_LARGE = 7, /* no memory for it; of an output: the buffer is too small, and the size is stored */
  TUTTI_WASI_NN_NOT_FOUND = 8, /* the session was given up */
  TUTTI_WASI_NN_END_OF_SEQUENCE = 100,
  TUTTI_WASI_NN_CONTEXT_FULL = 101,
  TUTTI_WASI_NN_PROMPT_TOO_LONG = 102,
  TUTTI_WASI_NN_MODEL_NOT_FOUND = 103
};

typedef struct {
  uint8_t *buf;
  uint32_t size;
} tutti_wasi_nn_bytes;

typedef struct {
  tutti_wasi_nn_bytes *buf;
  uint32_t size;
} tutti_wasi_nn_parts;

typedef struct {
  uint32_t *buf;
  uint32_t size;
} tutti_wasi_nn_dimensions;

typedef struct {
  tutti_wasi_nn_dimensions *dimensions; /* at most 4 */
  uint8_t type;                         /* 0 f16, 1 f32, 2 f64, 3 u8, 4 i32, 5 i64 */
  tutti_wasi_nn_bytes data;
} tutti_wasi_nn_tensor;

/* Makes a backend. A wasm-micro-runtime before 2.4 is refused: its structs are others. */
int init_backend(void **context);
/* Ends it and whatever runs in it. When it returns, none of its threads is left. */
int deinit_backend(void *context);

/* Loads a model: part 0 is the bytes of a GGUF file, of an ONNX file that tutti wrote, or its registered name
 * ("preload:" may stand in front); part 1, where there is one, is settings in JSON. Any encoding is taken; targets are
 * 0 (processor), 1 (GPU: an error where none is found) and 3 (any: output 2 says what was found and chosen). */
int load(void *context, tutti_wasi_nn_parts *parts, int encoding, int target, uint32_t *graph);
/* Loads a registered model. Texts need no zero byte at their end. */
int load_by_name(void *context, const char *name, uint32_t name_size, uint32_t *graph);
int load_by_name_with_config(void *context, const char *name, uint32_t name_size, const char *config,
                             uint32_t config_size, uint32_t *graph);
/* A context of its own session. */
int init_execution_context(void *context, uint32_t graph, uint32_t *execution);
/* Inputs: 0 the prompt, 1 options in JSON that hold until they are set again, 2 tokens (i32) in place of a prompt,
 * 3 a control, {"cancel": true}, {"reset": true}, {"truncate": 2}, {"save": "name"} or {"restore": "name"}. The tensor is
 * copied. An input that is refused changes nothing. */
int set_input(void *context, uint32_t execution, uint32_t index, tutti_wasi_nn_tensor *tensor);
/* Makes the answer. Blocks until it has ended. */
int compute(void *context, uint32_t execution);
/* Outputs: 0 the text (or the embedding in JSON), 1 {"input_tokens", "output_tokens"}, 2 the status in JSON, 3 the last
 * logits (f32), 4 the tokens drawn (i32). `size` is the output's size, with codes 0 and 7. */
int get_output(void *context, uint32_t execution, uint32_t index, tutti_wasi_nn_bytes *buffer, uint32_t *size);

/* The same for hosts that stream; wasm-micro-runtime reaches them by --native-lib. */

/* Makes the next piece of the answer: whole characters. Blocks until it is there. END_OF_SEQUENCE: there is none left. */
int tutti_wasi_nn_compute_single(void *context, uint32_t execution);
/* The piece, by index 0; the other outputs at the end of the stream. */
int tutti_wasi_nn_get_output_single(void *context, uint32_t execution, uint32_t index, tutti_wasi_nn_bytes *buffer,
                                    uint32_t *size);
/* Ends the stream, at its end or before. */
int tutti_wasi_nn_fini_single(void *context, uint32_t execution);
/* The graph's handle ends; its contexts go on. */
int tutti_wasi_nn_unload(void *context, uint32_t graph);
int tutti_wasi_nn_finalize_execution_context(void *context, uint32_t execution);

/* For iwasm --native-lib. */
int init_native_lib(void);
void deinit_native_lib(void);
uint32_t get_native_lib(char **module, void **symbols);

#ifdef __cplusplus
}
#endif
#endif
