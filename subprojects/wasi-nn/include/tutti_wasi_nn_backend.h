/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* libwasi_nn_backend.so: language models from GGUF files for native hosts, with sessions and one call for an answer. C99.
 *
 * Every function returns a code. Texts end with a zero byte, and so do answers. Threads may call at once; a call with an
 * execution context at which another is at work returns an error. No exception leaves a function, nothing is written to
 * standard output, no signal handler is installed. What fails is said in the log.
 *
 * The variable TUTTI_WASI_NN_MODELS says which models and folders there are: docs/guides/wasi-nn.md. */
#ifndef TUTTI_WASI_NN_BACKEND_H
#define TUTTI_WASI_NN_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TUTTI_WASI_NN_BACKEND_SUCCESS = 0,
  TUTTI_WASI_NN_BACKEND_INVALID_ARGUMENT = 1,
  TUTTI_WASI_NN_BACKEND_INVALID_ENCODING = 2, /* no GGUF */
  TUTTI_WASI_NN_BACKEND_TIMEOUT = 3,
  TUTTI_WASI_NN_BACKEND_RUNTIME_ERROR = 4, /* also: the queue is full, or another call is at work */
  TUTTI_WASI_NN_BACKEND_UNSUPPORTED_OPERATION = 5,
  TUTTI_WASI_NN_BACKEND_TOO_LARGE = 6, /* no memory for it; of an answer: the buffer is too small, the size is stored */
  TUTTI_WASI_NN_BACKEND_NOT_FOUND = 7, /* the session was given up */
  TUTTI_WASI_NN_BACKEND_SECURITY = 8,
  TUTTI_WASI_NN_BACKEND_CONTEXT_FULL = 101,
  TUTTI_WASI_NN_BACKEND_PROMPT_TOO_LONG = 102,
  TUTTI_WASI_NN_BACKEND_MODEL_NOT_FOUND = 103
};

typedef struct {
  uint32_t *buf;
  uint32_t size;
} tutti_wasi_nn_backend_dimensions;

typedef struct {
  tutti_wasi_nn_backend_dimensions *dimensions; /* may be null */
  int32_t type;                                 /* 0 f16, 1 f32, 2 f64, 3 bf16, 4 u8, 5 i32, 6 i64; any of them */
  uint8_t *data;                                /* ends with a zero byte */
} tutti_wasi_nn_backend_tensor;

typedef struct {
  uint8_t *buf;
  uint32_t size;
} tutti_wasi_nn_backend_part;

typedef struct {
  tutti_wasi_nn_backend_part *buf;
  uint32_t size;
} tutti_wasi_nn_backend_parts;

/* Makes a backend, with settings in JSON or without. */
int init_backend(void **context);
int init_backend_with_config(void **context, const char *config, uint32_t config_size);
/* Ends it and whatever runs in it. When it returns, none of its threads is left. */
int deinit_backend(void *context);

/* Loads a model from its bytes; by its registered name; by a path inside of a folder that the host allows. It takes the
 * place of the one before for the answers that begin afterwards; where it fails, the one before stays. `graph` may be
 * null. */
int load(void *context, tutti_wasi_nn_backend_parts *parts, int32_t encoding, int32_t target, uint32_t *graph);
int load_by_name(void *context, const char *name, uint32_t name_size, uint32_t *graph);
int load_by_name_with_config(void *context, const char *name, uint32_t name_size, const char *config,
                             uint32_t config_size, uint32_t *graph);

/* A context in a session: contexts of one session carry on one conversation. Contexts count from 1. */
int init_execution_context(void *context, uint32_t graph, uint32_t *execution); /* of "default_session" */
int init_execution_context_with_session_id(void *context, const char *session, uint32_t *execution);
int close_execution_context(void *context, uint32_t execution);

/* Answers a prompt with settings of this run alone. Blocks until the answer has ended. `size` is the room of `answer`,
 * and then the answer's size with its zero byte; where the room is too small, get_output gives the answer again.
 * The host says in TUTTI_WASI_NN_RUN_ARGUMENTS how it calls: 8 (as declared), 7 (without config_size: the settings end
 * with a zero byte) or 6 (without settings). */
int run_inference(void *context, uint32_t execution, uint32_t index, tutti_wasi_nn_backend_tensor *input,
                  uint8_t *answer, uint32_t *size, const char *config, uint32_t config_size);

/* The same in steps: input 0 the prompt, 1 options of the session, 3 a control; outputs as in tutti_wasi_nn.h. */
int set_input(void *context, uint32_t execution, uint32_t index, tutti_wasi_nn_backend_tensor *input);
int compute(void *context, uint32_t execution);
int get_output(void *context, uint32_t execution, uint32_t index, uint8_t *answer, uint32_t *size);

#ifdef __cplusplus
}
#endif
#endif
