/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The headers in C, and the layouts that hosts of a 64-bit machine rely on, as they were recorded. */
#include <stddef.h>
#ifdef SESSION_INTERFACE
#include "tutti_wasi_nn_backend.h"
#define LAYOUT(what, bytes) _Static_assert(sizeof(tutti_wasi_nn_backend_##what) == bytes, #what)
#define PLACE(what, field, at) _Static_assert(offsetof(tutti_wasi_nn_backend_##what, field) == at, #what "." #field)
#else
#include "tutti_wasi_nn.h"
#define LAYOUT(what, bytes) _Static_assert(sizeof(tutti_wasi_nn_##what) == bytes, #what)
#define PLACE(what, field, at) _Static_assert(offsetof(tutti_wasi_nn_##what, field) == at, #what "." #field)
#endif

#ifdef SESSION_INTERFACE
LAYOUT(dimensions, 16);
PLACE(dimensions, size, 8);
LAYOUT(tensor, 24);
PLACE(tensor, dimensions, 0);
PLACE(tensor, type, 8);
PLACE(tensor, data, 16);
LAYOUT(part, 16);
PLACE(part, size, 8);
LAYOUT(parts, 16);
PLACE(parts, size, 8);
_Static_assert(TUTTI_WASI_NN_BACKEND_TOO_LARGE == 6, "numbers of the WIT's order");
int (*const run)(void *, uint32_t, uint32_t, tutti_wasi_nn_backend_tensor *, uint8_t *, uint32_t *, const char *,
                 uint32_t) = run_inference;
#else
LAYOUT(bytes, 16);
PLACE(bytes, size, 8);
LAYOUT(parts, 16);
PLACE(parts, size, 8);
LAYOUT(dimensions, 16);
PLACE(dimensions, size, 8);
LAYOUT(tensor, 32);
PLACE(tensor, dimensions, 0);
PLACE(tensor, type, 8);
PLACE(tensor, data, 16);
_Static_assert(TUTTI_WASI_NN_TOO_LARGE == 7, "numbers of the witx");
int (*const get)(void *, uint32_t, uint32_t, tutti_wasi_nn_bytes *, uint32_t *) = get_output;
#endif
