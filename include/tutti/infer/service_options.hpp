// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a service runs.

#include <tutti/infer/decoder.hpp>
#include <tutti/infer/log.hpp>
#include <tutti/infer/request_queue.hpp>
#include <tutti/infer/slot_drafters.hpp>
#include <tutti/infer/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::infer {

struct ServiceOptions {
  DecoderOptions decoder{.slots = 4};  ///< as many answers run at once as there are slots; `batch` follows from these
  QueueOptions queue{};
  std::int64_t prompt_chunk = 128;  ///< tokens of prompts between two tokens of running answers, at most
  CacheOptions cache{};
  std::size_t running = 0;  ///< answers that run at once, where that is fewer than there are slots; 0: as many
  ServiceDrafts drafts{};
  std::shared_ptr<Log> log{};  ///< gets a line for each answer, and for what goes wrong; null: none
  std::string name{};          ///< of the model, in those lines
};

/// Rows of a batch beside those of prompts: a token of each answer, and what is foretold.
inline std::int64_t answer_rows(ServiceOptions const& options) noexcept {
  return std::max<std::int64_t>(options.decoder.slots, 0) + (options.drafts.tokens > 0 ? most_drafts : 0);
}

/// Of its decoder: a pass is one batch, so that hidden states of all its rows are at hand. Errors: invalid_argument.
inline DecoderOptions batch_of(ServiceOptions const& options) {
  if (options.prompt_chunk < 1)
    throw Error(ErrorKind::invalid_argument, "Service", "prompts need chunks of at least one token");
  DecoderOptions decoder = options.decoder;
  decoder.batch = options.prompt_chunk + answer_rows(options);
  return decoder;
}

/// Of its caches: nothing is moved where positions are learned, and copies of a device's caches go by way of the host,
/// whole.
inline CacheOptions cache_of(ServiceOptions const& options, nn::StoredModel const& model) {
  CacheOptions cache = options.cache;
  if (!movable_positions(model)) cache.chunk = 0;
  if (options.decoder.device != nullptr) cache.copy = std::max<std::int64_t>(cache.copy, 256);
  return cache;
}

}  // namespace tutti::infer
