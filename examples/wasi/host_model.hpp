// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
// A text in a model of the host, for guests that draw tokens themselves with what tutti/infer has for that: a model of
// infer::Generator, as the decoders on processors and GPUs are. For programs compiled with exceptions
// (infer/exceptions.hpp).

#include "guest.h"

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

// The host keeps what it computed: a text that begins as the last one did costs its new tokens alone.
class HostModel {
 public:
  // Borrows an execution context, whose options it sets. Throws tutti::Error (unavailable).
  explicit HostModel(wasi_nn_context context) : context_(context) {
    std::string const options = R"({"max_tokens": 0})";  // logits, and no text
    check("the options",
          guest_set_text(context_, WASI_NN_INPUT_OPTIONS, options.data(), static_cast<uint32_t>(options.size())));
    guest_bytes status = {nullptr, 0, 0};
    uint32_t const code = guest_output(context_, WASI_NN_OUTPUT_STATUS, &status);
    if (!code) capacity_ = guest_number(reinterpret_cast<char const*>(status.data), "context_tokens");
    free(status.data);
    check("the status", code);
  }
  HostModel(HostModel const&) = delete;
  HostModel& operator=(HostModel const&) = delete;
  ~HostModel() { free(output_.data); }

  std::int64_t length() const noexcept { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t capacity() const noexcept { return capacity_; }
  void reset() noexcept { tokens_.clear(); }

  // The logits (vocabulary) that follow the last token; they stay valid until the next call. Throws tutti::Error:
  // invalid_argument for no token; out_of_range past the capacity; unavailable, with what the host says. Nothing is
  // appended then.
  std::span<float const> append(std::span<std::int32_t const> tokens) {
    using tutti::Error, tutti::ErrorKind;
    if (tokens.empty()) throw Error(ErrorKind::invalid_argument, "HostModel", "there is no token to append");
    if (static_cast<std::int64_t>(tokens.size()) > capacity_ - length())
      throw Error(ErrorKind::out_of_range, "HostModel",
                  tutti::concat(tokens.size(), " tokens do not fit behind ", length(), " of ", capacity_));
    std::size_t const before = tokens_.size();
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    try {
      uint32_t const count = static_cast<uint32_t>(tokens_.size());
      wasi_nn_tensor const tensor = {
          &count, 1, WASI_NN_TYPE_I32, {0, 0, 0}, reinterpret_cast<uint8_t const*>(tokens_.data()), 4 * count};
      check("the tokens", wasi_nn_set_input(context_, WASI_NN_INPUT_TOKENS, &tensor));
      check("compute", wasi_nn_compute(context_));
      check("the logits", guest_output(context_, WASI_NN_OUTPUT_LOGITS, &output_));
    } catch (...) {
      tokens_.resize(before);
      throw;
    }
    logits_.resize(output_.size / sizeof(float));
    std::memcpy(logits_.data(), output_.data, logits_.size() * sizeof(float));
    return logits_;
  }

 private:
  void check(char const* what, uint32_t code) const {
    if (!code) return;
    std::string why = tutti::concat(what, ": ", wasi_nn_error_name(code));
    guest_bytes status = {nullptr, 0, 0};
    if (guest_output(context_, WASI_NN_OUTPUT_STATUS, &status) == WASI_NN_SUCCESS)
      if (char const* const text = guest_text(reinterpret_cast<char*>(status.data), "error"))
        why += tutti::concat(": ", text);
    free(status.data);
    throw tutti::Error(tutti::ErrorKind::unavailable, "HostModel", why);
  }

  wasi_nn_context context_;
  std::int64_t capacity_ = 0;
  std::vector<std::int32_t> tokens_;
  guest_bytes output_ = {nullptr, 0, 0};
  std::vector<float> logits_;
};
static_assert(tutti::infer::Generator<HostModel>);
