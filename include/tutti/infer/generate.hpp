// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The loop of generation: append, draw, emit.

#include <tutti/infer/generator.hpp>
#include <tutti/infer/sampler.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::infer {

/// Continues `context` (one token at least) by up to `count` tokens and hands each to `emit(token)` as soon as it is
/// drawn. Ends early before emitting `stop` (negative: never). When the decoder is full, the newer half of the text is
/// read again: positions are learned, so a cache cannot be shifted. The sampler observes the context. Returns the
/// number of tokens emitted.
template <Generator G, class Emit>
std::int64_t generate(G& decoder, Sampler& sampler, std::vector<std::int32_t> context, std::int64_t count,
                      std::int32_t stop, Emit&& emit) {
  auto const newest = [&](std::int64_t most) {
    auto const kept = std::min<std::int64_t>(most, static_cast<std::int64_t>(context.size()));
    return std::span<std::int32_t const>(context).last(static_cast<std::size_t>(kept));
  };
  sampler.observe(context);
  decoder.reset();
  std::span<float const> logits = decoder.append(newest(decoder.capacity()));
  for (std::int64_t made = 0; made < count; ++made) {
    std::int32_t const token = sampler(logits);
    if (token == stop) return made;
    emit(token);
    context.push_back(token);
    if (made + 1 == count) break;
    if (decoder.length() == decoder.capacity()) {
      decoder.reset();
      logits = decoder.append(newest(std::max<std::int64_t>(decoder.capacity() / 2, 1)));
    } else {
      logits = decoder.append({&token, 1});
    }
  }
  return count;
}

}  // namespace tutti::infer
