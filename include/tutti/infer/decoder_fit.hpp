// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sizes of a decoder or a service that nobody has said: chosen so that they fit the memory.

#include <tutti/infer/memory_budget.hpp>
#include <tutti/infer/service.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::infer {

/// What a decoder of these options, whose capacity and batch are said, takes beside others of the model: `working` with
/// every thread's memory for a head of the longest text.
inline MemoryNeed decoder_need(nn::StoredModel const& model, DecoderOptions const& options, int threads) {
  MemoryNeed need;
  need.caches = model.layers() * nn::cache_layer_bytes(model, {options.slots, options.capacity, options.cache});
  need.working = nn::working_bytes(model, options.batch) +
                 16 * std::int64_t{threads} * (options.capacity + 64) * (model.head_size() + 64);
  if (options.copies_tiles()) need.copies = tiled_bytes(model, exec::isa_from_environment());
  return need;
}

struct FitOptions {
  std::int64_t most_context = 4096;  ///< of a context that is chosen; 0: as many tokens as the model was made for
  std::int64_t usual_batch = 512;    ///< rows of a batch that is chosen, where memory is not short
  std::int64_t more_rows = 0;        ///< of a batch, beside those
  std::int64_t most_bytes = 0;       ///< MemoryBudget's bound
  int threads = 1;
  MemoryNeed beside{};                     ///< what else is taken with it: the weights
  nn::StoredModel const* draft = nullptr;  ///< has a decoder of as many slots and tokens beside it
  std::string advice = "Lower the context, the slots or the batch, or keep the cache in F16 or Q8_0";
};

/// Options with every size said, and the memory that is set aside for them.
template <class Options>
struct Fitted {
  Options options;
  MemoryBudget::Part memory;
  std::vector<std::string> notes;  ///< what was chosen, for people
};
using FittedDecoder = Fitted<DecoderOptions>;
using FittedService = Fitted<ServiceOptions>;

/// Chooses capacity and batch where they are 0: the usual batch, and the longest context that fits, of at most
/// most_context tokens and what the model was made for; where not even 256 tokens fit, smaller batches are tried. What
/// is not 0 stays as it is.
/// Errors    out_of_memory, with figures, where it does not fit; those of row_bytes
inline FittedDecoder fit_decoder(nn::StoredModel const& model, DecoderOptions wanted, FitOptions const& fit = {}) {
  FittedDecoder result{wanted, {}, {}};
  DecoderOptions& o = result.options;
  std::int64_t const longest =
      fit.most_context > 0 ? std::min(model.max_tokens(), fit.most_context) : model.max_tokens();
  // What the machine has free others take from, too.
  std::int64_t const available = MemoryBudget::available(fit.most_bytes),
                     free = fit.most_bytes > 0 ? available : available - available / 20;
  auto const need_of = [&](std::int64_t capacity, std::int64_t batch) {
    o.capacity = capacity, o.batch = batch + fit.more_rows;
    MemoryNeed need = decoder_need(model, o, fit.threads);
    if (fit.draft != nullptr) {
      MemoryNeed const more = decoder_need(*fit.draft, o.of_draft(fit.draft->max_tokens()), 0);
      need.caches += more.caches, need.working += more.working, need.copies += more.copies;
    }
    need.weights += fit.beside.weights, need.caches += fit.beside.caches, need.working += fit.beside.working;
    need.mapped = fit.beside.mapped;
    return need;
  };
  auto const fits = [&](std::int64_t capacity, std::int64_t batch) {
    return MemoryBudget::counted(need_of(capacity, batch), fit.most_bytes) <= free;
  };
  std::int64_t batch = wanted.batch > 0 ? wanted.batch : fit.usual_batch;
  std::int64_t const least = wanted.capacity > 0 ? wanted.capacity : std::min<std::int64_t>(longest, 256);
  o.tiles = false;
  while (wanted.batch == 0 && batch > 32 && !fits(least, batch)) batch /= 2;
  std::int64_t capacity = least;
  if (wanted.capacity == 0)  // the longest that fits, in steps of 64 tokens
    for (std::int64_t low = least / 64, high = longest / 64; capacity < longest && low <= high;) {
      std::int64_t const middle = low + (high - low) / 2, tokens = std::clamp(middle * 64, least, longest);
      if (fits(tokens, batch)) capacity = std::max(capacity, tokens), low = middle + 1;
      else high = middle - 1;
    }
  if (wanted.capacity == 0 && capacity < longest && fits(longest, batch)) capacity = longest;  // no multiple of 64
  // A faster order of weights takes what is left, and costs no context.
  o.tiles = wanted.tiles;
  if (need_of(capacity, batch).copies > 0 && !fits(capacity, batch)) {
    o.tiles = false;
    result.notes.push_back("weights stay as the file has them: there is no memory for a faster order");
  }
  result.memory = MemoryBudget::take(need_of(capacity, batch), fit.most_bytes, fit.advice);
  if (wanted.capacity == 0)
    result.notes.push_back(concat("a context of ", capacity, " tokens is chosen, of the model's ", model.max_tokens(),
                                  capacity < longest ? ": as many as the memory holds" : ""));
  if (wanted.capacity > model.max_tokens())
    result.notes.push_back(
        concat("a context of ", capacity, " tokens is asked for, and the model was made for ", model.max_tokens()));
  if (wanted.batch == 0 && batch < fit.usual_batch)
    result.notes.push_back(concat("a batch of ", batch, " tokens is chosen: the memory holds no more"));
  return result;
}

/// The same for a service, whose batch is its prompt_chunk with a row for each slot and for drafts: prompt_chunk 0 is
/// chosen. `fit`: its more_rows, draft and usual_batch follow from the service.
inline FittedService fit_service(nn::StoredModel const& model, ServiceOptions wanted, FitOptions fit) {
  fit.more_rows = answer_rows(wanted);
  fit.draft = wanted.drafts.model;
  fit.usual_batch = std::min<std::int64_t>(fit.usual_batch, 128);
  DecoderOptions decoder = wanted.decoder;
  decoder.batch = wanted.prompt_chunk;
  FittedDecoder fitted = fit_decoder(model, decoder, fit);
  FittedService result{std::move(wanted), std::move(fitted.memory), std::move(fitted.notes)};
  result.options.decoder = fitted.options;
  result.options.prompt_chunk = fitted.options.batch - fit.more_rows;
  return result;
}

}  // namespace tutti::infer
