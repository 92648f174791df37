// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What calls of a WASI-NN library end with: one list of codes, and the numbers that each flavour of the interface
/// gives them.
/// Source: wasi-nn (witx of 2024), WasmEdge's plug-in for GGML, wasm-micro-runtime 2.2 to 2.4.

#include <tutti/core/error.hpp>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::wasi_nn {

enum class Code : unsigned char {
  success,
  invalid_argument,
  invalid_encoding,
  timeout,
  busy,
  runtime_error,
  unsupported_operation,
  too_large,
  not_found,
  security,
  end_of_sequence,
  context_full,
  prompt_too_long,
  model_not_found,
};

/// Numbers of the witx, which WAMR from 2.4, WasmEdge and wasmtime use. It knows neither timeout nor security.
constexpr int witx_number(Code code) noexcept {
  switch (code) {
    case Code::success: return 0;
    case Code::invalid_argument: return 1;
    case Code::invalid_encoding: return 2;
    case Code::busy: return 4;
    case Code::timeout:
    case Code::runtime_error: return 5;
    case Code::security:
    case Code::unsupported_operation: return 6;
    case Code::too_large: return 7;
    case Code::not_found: return 8;
    case Code::end_of_sequence: return 100;
    case Code::context_full: return 101;
    case Code::prompt_too_long: return 102;
    case Code::model_not_found: return 103;
  }
  return 5;
}
/// Numbers of the WIT's order, which WAMR 2.2 and 2.3 and the session interface use. It does not know busy.
constexpr int wit_number(Code code) noexcept {
  switch (code) {
    case Code::success: return 0;
    case Code::invalid_argument: return 1;
    case Code::invalid_encoding: return 2;
    case Code::timeout: return 3;
    case Code::busy:
    case Code::runtime_error: return 4;
    case Code::unsupported_operation: return 5;
    case Code::too_large: return 6;
    case Code::not_found: return 7;
    case Code::security: return 8;
    case Code::end_of_sequence: return 100;
    case Code::context_full: return 101;
    case Code::prompt_too_long: return 102;
    case Code::model_not_found: return 103;
  }
  return 4;
}

/// A call that fails, with what the log and the status of a context say.
class Failure : public std::runtime_error {
 public:
  Failure(Code code, std::string const& text) : std::runtime_error(text), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

inline Code code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::shape:
    case ErrorKind::dtype:
    case ErrorKind::out_of_range:
    case ErrorKind::configuration: return Code::invalid_argument;
    case ErrorKind::format: return Code::invalid_encoding;
    case ErrorKind::out_of_memory:
    case ErrorKind::overflow: return Code::too_large;
    case ErrorKind::busy: return Code::busy;
    case ErrorKind::timeout: return Code::timeout;
    case ErrorKind::unavailable:
    case ErrorKind::device: return Code::unsupported_operation;
    default: return Code::runtime_error;
  }
}

/// The exception that is being handled, as code and text. Call it inside of a catch block. Errors: std::bad_alloc.
inline std::pair<Code, std::string> current_failure() {
  try {
    throw;
  } catch (Failure const& failure) {
    return {failure.code(), failure.what()};
  } catch (Error const& error) {
    return {code_of(error.kind()), error.message()};
  } catch (std::bad_alloc const&) {
    return {Code::too_large, "there is no memory for it"};
  } catch (std::exception const& other) {
    return {Code::runtime_error, other.what()};
  } catch (...) {
    return {Code::runtime_error, "an unknown exception"};
  }
}
/// The same as a code, with say(text) called first: where there is no memory for the text, nobody hears of it.
template <class Say>
Code code_of_failure(Say&& say) noexcept {
  try {
    auto const [code, text] = current_failure();
    try {
      say(text);
    } catch (...) {
    }
    return code;
  } catch (...) {
    return Code::too_large;
  }
}

}  // namespace tutti::wasi_nn
