// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What people call the compressors of parallel/compression.hpp, and where they can be used.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::parallel {

struct CompressionChoice {
  enum class Kind : unsigned char { none, bf16, int8, topk, powersgd };
  Kind kind = Kind::none;
  double share = 0.01;    ///< of topk, in (0, 1]
  std::int64_t rank = 4;  ///< of powersgd, in [1, 1024]
};

/// "bf16", "int8", "topk[:SHARE]", "powersgd[:RANK]"; "" and "none" are none.
/// Errors    configuration, with what there is.
inline CompressionChoice parse_compression(std::string_view text) {
  using Kind = CompressionChoice::Kind;
  auto const refuse = [](char const* why) { throw Error(ErrorKind::configuration, "parse_compression", why); };
  std::size_t const colon = text.find(':');
  std::string_view const name = text.substr(0, colon);
  bool const has_number = colon != text.npos;
  double number = 0;
  if (has_number && !setting::parse(text.substr(colon + 1), number)) refuse("behind the colon there is no number");
  CompressionChoice choice;
  if (name == "topk") {
    choice.kind = Kind::topk;
    if (has_number) choice.share = number;
    if (!(choice.share > 0 && choice.share <= 1)) refuse("the share must be above 0 and at most 1, as in topk:0.01");
  } else if (name == "powersgd") {
    choice.kind = Kind::powersgd;
    if (has_number) choice.rank = number >= 1 && number <= 1024 ? static_cast<std::int64_t>(number) : 0;
    if (choice.rank == 0 || (has_number && static_cast<double>(choice.rank) != number))
      refuse("the rank must be a whole number between 1 and 1024, as in powersgd:4");
  } else if (has_number) {
    refuse("only topk and powersgd take a number");
  } else if (name == "bf16") {
    choice.kind = Kind::bf16;
  } else if (name == "int8") {
    choice.kind = Kind::int8;
  } else if (!name.empty() && name != "none") {
    refuse("use none, bf16, int8, topk:SHARE or powersgd:RANK");
  }
  return choice;
}

/// Where gradients would be compressed.
struct CompressionPlace {
  bool every_step = true;  ///< gradients are averaged every step, not parameters now and then
  int tensor_ranks = 1;    ///< that have one model together
  bool on_processors = true;
};
/// Why gradients cannot be compressed so, or there is no compressor of this name; empty where they can.
inline std::string why_not(std::string_view text, CompressionPlace const& place) {
  try {
    if (parse_compression(text).kind == CompressionChoice::Kind::none) return {};
  } catch (Error const& error) {
    return error.message();
  }
  if (!place.every_step) return "is of --algorithm ddp; diloco's averages travel as --outer-bits says. Leave out one";
  if (place.tensor_ranks > 1)
    return concat("is not with --tensor-parallel ", place.tensor_ranks,
                  ", whose ranks have parts of gradients. Leave out one");
  if (!place.on_processors) return "is done by processors alone. Leave it out, or use --device cpu";
  return {};
}

}  // namespace tutti::parallel
