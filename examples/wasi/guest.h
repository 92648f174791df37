/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the guests of this folder share, in C and C++: outputs as a whole, texts as inputs, fields of JSON answers, and
 * errors in words. */
#ifndef TUTTI_EXAMPLES_GUEST_H
#define TUTTI_EXAMPLES_GUEST_H

#include "wasi_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that grow as they must. A zero byte that does not count stands behind them. */
typedef struct guest_bytes {
  uint8_t* data;
  uint32_t size, capacity;
} guest_bytes;

static inline int guest_reserve(guest_bytes* bytes, uint32_t capacity) {
  if (bytes->capacity > capacity) return 1;
  uint8_t* const data = (uint8_t*)realloc(bytes->data, (size_t)capacity + 1);
  if (!data) return 0;
  bytes->data = data;
  bytes->capacity = capacity + 1;
  return 1;
}

static inline uint32_t guest_get(wasi_nn_context context, uint32_t index, int single, guest_bytes* out) {
  out->size = 0;
  if (!guest_reserve(out, 256)) return WASI_NN_MISSING_MEMORY;
  for (;;) {
    uint32_t size = 0;
    uint32_t const room = out->capacity - 1;
    uint32_t const code = single ? wasi_nn_get_output_single(context, index, out->data, room, &size)
                                 : wasi_nn_get_output(context, index, out->data, room, &size);
    if (code == WASI_NN_SUCCESS) {
      if (size > room) return WASI_NN_RUNTIME_ERROR; /* a host that counts wrongly */
      out->size = size;
      out->data[size] = 0;
      return code;
    }
    /* The size that is needed comes with this code. */
    if (code != WASI_NN_TOO_LARGE || size <= room || size == UINT32_MAX) {
      out->data[0] = 0;
      return code;
    }
    if (!guest_reserve(out, size)) return WASI_NN_MISSING_MEMORY;
  }
}

/* A whole output, as long as it may be. */
static inline uint32_t guest_output(wasi_nn_context context, uint32_t index, guest_bytes* out) {
  return guest_get(context, index, 0, out);
}

/* Sets an input of bytes: a prompt, or JSON. */
static inline uint32_t guest_set_text(wasi_nn_context context, uint32_t index, char const* text, uint32_t size) {
  wasi_nn_tensor const tensor = {&size, 1, WASI_NN_TYPE_U8, {0, 0, 0}, (uint8_t const*)text, size};
  return wasi_nn_set_input(context, index, &tensor);
}

/* The end of the JSON string that begins at `text`, behind its second quote; null when it has none. */
static inline char const* guest_string_end(char const* text) {
  for (++text; *text && *text != '"'; ++text)
    if (*text == '\\' && !*++text) return 0;
  return *text ? text + 1 : 0;
}

/* Where the value of a key of an object begins; null when there is none. Keys of objects inside do not count. */
static inline char const* guest_value(char const* json, char const* key) {
  size_t const length = strlen(key);
  int depth = 0;
  for (char const* at = json; *at;) {
    if (*at == '{' || *at == '[') ++depth;
    if (*at == '}' || *at == ']') --depth;
    if (*at != '"') {
      ++at;
      continue;
    }
    char const* const end = guest_string_end(at);
    if (!end) return 0;
    char const* behind = end + strspn(end, " \t\r\n");
    int const named = depth == 1 && (size_t)(end - at) == length + 2 && memcmp(at + 1, key, length) == 0;
    if (named && *behind == ':') {
      ++behind;
      return behind + strspn(behind, " \t\r\n");
    }
    at = end;
  }
  return 0;
}

/* A number of an object, as {"output_tokens": 20}; -1 when it is not there. */
static inline long guest_number(char const* json, char const* key) {
  char const* const value = guest_value(json, key);
  return value && ((*value >= '0' && *value <= '9') || *value == '-') ? strtol(value, 0, 10) : -1;
}

/* Four hexadecimal digits as a number, or -1. */
static inline long guest_hexadecimal(char const* digits) {
  static char const known[] = "0123456789abcdefABCDEF";
  long value = 0;
  for (int index = 0; index < 4; ++index) {
    char const* const found = digits[index] ? strchr(known, digits[index]) : 0;
    if (!found) return -1;
    int const digit = (int)(found - known);
    value = value * 16 + (digit < 16 ? digit : digit - 6);
  }
  return value;
}

/* A text of an object, decoded in place: `json` is no JSON afterwards. Null when the value is no text. */
static inline char const* guest_text(char* json, char const* key) {
  char* const value = (char*)guest_value(json, key);
  if (!value || *value != '"' || !guest_string_end(value)) return 0;
  char* to = value;
  for (char const* from = value + 1; *from != '"'; ++from) {
    if (*from != '\\') {
      *to++ = *from;
      continue;
    }
    ++from;
    if (*from != 'u') {
      char const* const found = strchr("b\bf\fn\nr\rt\t", *from);
      *to++ = found ? found[1] : *from;
      continue;
    }
    long point = guest_hexadecimal(from + 1);
    if (point < 0) return 0;
    from += 4;
    if (point >= 0xD800 && point < 0xDC00 && from[1] == '\\' && from[2] == 'u') {
      long const low = guest_hexadecimal(from + 3);
      if (low < 0xDC00 || low > 0xDFFF) return 0;
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      from += 6;
    }
    /* Six characters or twelve become at most four bytes, so `to` stays behind `from`. */
    if (point < 0x80) {
      *to++ = (char)point;
      continue;
    }
    if (point >= 0x10000) {
      *to++ = (char)(0xF0 | (point >> 18));
      *to++ = (char)(0x80 | ((point >> 12) & 0x3F));
    } else if (point >= 0x800) {
      *to++ = (char)(0xE0 | (point >> 12));
    }
    *to++ = (char)(point >= 0x800 ? 0x80 | ((point >> 6) & 0x3F) : 0xC0 | (point >> 6));
    *to++ = (char)(0x80 | (point & 0x3F));
  }
  *to = 0;
  return value;
}

/* "stream: compute: context full (101)" on standard error, and in a second line why, where the context can tell. The
 * context may be null. Returns 1, the exit code. */
static inline int guest_failed(char const* program, char const* what, uint32_t code, wasi_nn_context const* context) {
  char digits[12];
  char* digit = digits + sizeof digits - 1;
  *digit = 0;
  uint32_t rest = code;
  do *--digit = (char)('0' + rest % 10);
  while (rest /= 10);
  char const* const parts[] = {program, ": ", what, ": ", wasi_nn_error_name(code), " (", digit, ")\n"};
  fflush(stdout);
  for (size_t index = 0; index < sizeof parts / sizeof parts[0]; ++index) fputs(parts[index], stderr);
  guest_bytes status = {0, 0, 0};
  if (context && guest_output(*context, WASI_NN_OUTPUT_STATUS, &status) == WASI_NN_SUCCESS) {
    char const* const why = guest_text((char*)status.data, "error");
    if (why && *why) {
      fputs(why, stderr);
      fputs("\n", stderr);
    }
  }
  free(status.data);
  return 1;
}

#endif
