// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How often a model finds the right one of several endings: HellaSwag (Zellers et al. 2019), from llm.c's file or as
/// it is published.

#include <tutti/core/concat.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/cache_moves.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/log_probabilities.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

struct MultipleChoice {
  std::vector<std::int32_t> context;
  std::vector<std::vector<std::int32_t>> endings;
  std::size_t label = 0;  ///< the right ending
};

namespace detail {

[[noreturn]] inline void refuse_choices(std::string const& source, std::string const& why) {
  throw Error(ErrorKind::format, "read_multiple_choice",
              "'" + source + "' is not usable: " + why + ". Fetch or write the file again");
}
inline void check_choice(MultipleChoice const& one, std::string const& source, std::size_t number) {
  bool const empty = std::any_of(one.endings.begin(), one.endings.end(), [](auto const& e) { return e.empty(); });
  if (one.context.empty() || one.endings.size() < 2 || one.endings.size() > 64 || empty ||
      one.label >= one.endings.size())
    refuse_choices(source, concat("example ", number + 1,
                                  " must have a context, 2 to 64 endings that are not empty, and "
                                  "the number of the right one"));
}

}  // namespace detail

/// The bytes of llm.c's evaluation file, of version 1: a header of 256 numbers of 32 bits (20240522, version, examples,
/// bytes of the longest), then 16-bit numbers for every example: 65535, its bytes, its index, the right ending, how
/// many endings, and of context and endings their length and tokens, which are GPT-2's. `most`: the first so many
/// alone; 0: all. Errors: format.
inline std::vector<MultipleChoice> parse_llmc_choices(std::string_view bytes, std::string const& source,
                                                      std::int64_t most = 0) {
  std::int32_t header[256] = {};
  if (bytes.size() < sizeof header) detail::refuse_choices(source, "it is shorter than its header");
  std::memcpy(header, bytes.data(), sizeof header);
  if (header[0] != 20240522 || header[1] != 1)
    detail::refuse_choices(source, "it is no evaluation file of llm.c in version 1");
  std::vector<std::uint16_t> numbers((bytes.size() - sizeof header) / 2);
  std::memcpy(numbers.data(), bytes.data() + sizeof header, numbers.size() * 2);
  std::vector<MultipleChoice> all;
  std::size_t at = 0;
  for (std::int32_t i = 0; i < header[2] && (most == 0 || i < most); ++i) {
    auto const number = all.size() + 1;
    std::size_t const begin = at;
    auto const next = [&]() -> std::uint16_t {
      if (at >= numbers.size()) detail::refuse_choices(source, concat("it ends in example ", number));
      return numbers[at++];
    };
    auto const list = [&] {
      std::vector<std::int32_t> tokens;
      for (std::uint16_t left = next(); left > 0; --left) tokens.push_back(next());
      return tokens;
    };
    if (next() != 65535) detail::refuse_choices(source, concat("example ", number, " does not begin where it should"));
    std::size_t const size = next();
    MultipleChoice one;
    static_cast<void>(next());
    one.label = next();
    std::uint16_t const endings = next();
    one.context = list();
    for (std::uint16_t k = 0; k < endings; ++k) one.endings.push_back(list());
    if (size != 2 * (at - begin))
      detail::refuse_choices(source, concat("example ", number, " has another size than it says"));
    detail::check_choice(one, source, all.size());
    all.push_back(std::move(one));
  }
  if (all.empty()) detail::refuse_choices(source, "it has no examples");
  return all;
}

/// HellaSwag as it is published: a line of JSON for every example, with "ctx", "endings" and "label". Contexts begin as
/// the tokenizer begins texts; endings stand behind a space. Errors: format.
inline std::vector<MultipleChoice> parse_json_choices(std::string_view text, std::string const& source,
                                                      data::Tokenizer const& tokenizer, std::int64_t most = 0) {
  std::vector<MultipleChoice> all;
  io::for_each_json_line(text, [&](std::string_view line, std::int64_t number) {
    auto const document = io::parse_json(line, concat(source, ", line ", number), "read_multiple_choice");
    auto const wants = [&] {
      detail::refuse_choices(source, concat("line ", number,
                                            " must have a text 'ctx', a list of texts 'endings' and "
                                            "the number of the right one, 'label'"));
    };
    if (!document.is_object() || !document.contains("ctx") || !document["ctx"].is_string() ||
        !document.contains("endings") || !document["endings"].is_array() || !document.contains("label"))
      wants();
    auto const& label = document["label"];
    std::string const digits = label.is_string() ? label.get<std::string>() : label.dump();
    MultipleChoice one;
    if (digits.size() != 1 || digits[0] < '0' || digits[0] > '9') wants();
    one.label = static_cast<std::size_t>(digits[0] - '0');
    one.context = tokenizer.encode_complete(document["ctx"].get<std::string>());
    for (auto const& ending : document["endings"]) {
      if (!ending.is_string() || ending.get<std::string>().empty()) wants();
      one.endings.push_back(tokenizer.encode(" " + ending.get<std::string>()));
    }
    detail::check_choice(one, source, static_cast<std::size_t>(number) - 1);
    all.push_back(std::move(one));
    return most == 0 || std::cmp_less(all.size(), most);
  });
  if (all.empty()) detail::refuse_choices(source, "it has no examples");
  return all;
}

/// Of a file of either kind. Errors: io, format; configuration: an llm.c file, and a tokenizer that is not GPT-2's.
inline std::vector<MultipleChoice> read_multiple_choice(std::string const& path, data::Tokenizer const& tokenizer,
                                                        std::int64_t most = 0) {
  std::string const bytes = io::read_file(path);
  std::int32_t magic = 0;
  std::memcpy(&magic, bytes.data(), std::min(sizeof magic, bytes.size()));
  if (magic != 20240522) return parse_json_choices(bytes, path, tokenizer, most);
  if (tokenizer.encode("Hello world") != std::vector<std::int32_t>{15496, 995})
    throw Error(ErrorKind::configuration, "read_multiple_choice",
                "'" + path +
                    "' holds tokens of GPT-2, and the model has another tokenizer. Pass HellaSwag's own file, "
                    "with a line of JSON for every example");
  return parse_llmc_choices(bytes, path, most);
}

struct ChoiceScore {
  std::int64_t examples = 0;
  std::int64_t likeliest = 0;  ///< where the right ending is the likeliest
  std::int64_t best = 0;       ///< where its tokens are the likeliest on average, which is what is usually reported

  double accuracy() const noexcept { return share(likeliest); }
  double mean_accuracy() const noexcept { return share(best); }
  /// Standard error of mean_accuracy.
  double error() const noexcept {
    double const p = mean_accuracy();
    return examples < 2 ? 0 : std::sqrt(p * (1 - p) / static_cast<double>(examples - 1));
  }

 private:
  double share(std::int64_t count) const noexcept {
    return examples == 0 ? 0 : static_cast<double>(count) / static_cast<double>(examples);
  }
};

/// Which ending a model finds likeliest, by the sum and by the mean of -log p of its tokens; of equals the first. Uses
/// all slots of the decoder: with as many as there are endings, an example is one pass behind its context.
/// Cost      the tokens of each context once, and of each ending
/// Memory    the logits of 64 tokens
/// Errors    out_of_range: an example that is longer than the decoder's cache, before the first is tried; an unknown
///           token
inline ChoiceScore evaluate_choices(Decoder& decoder, std::span<MultipleChoice const> examples,
                                    std::function<void(std::int64_t, ChoiceScore const&)> const& progress = {}) {
  auto const classes = static_cast<std::size_t>(decoder.vocabulary());
  auto const slots = static_cast<std::size_t>(decoder.slots());
  ChoiceScore score;
  for (std::size_t i = 0; i < examples.size(); ++i)
    for (auto const& ending : examples[i].endings)
      if (auto const size = static_cast<std::int64_t>(examples[i].context.size() + ending.size()) - 1;
          size > decoder.capacity())
        throw Error(ErrorKind::out_of_range, "evaluate_choices",
                    concat("example ", i + 1, " has ", size, " tokens with an ending, and the context ",
                           decoder.capacity(), ". Give a larger context"));
  std::vector<NewToken> rows;
  std::vector<std::pair<std::size_t, std::int32_t>> foretold;  // by each row: an ending's token
  for (MultipleChoice const& one : examples) {
    // The last token of the context foretells each ending's first one, and goes in with it.
    auto const before = static_cast<std::int32_t>(one.context.size()) - 1;
    rows.clear();
    for (std::int32_t i = 0; i < before; ++i) rows.push_back({one.context[static_cast<std::size_t>(i)], 0, i, false});
    static_cast<void>(decoder.append(rows));
    std::vector<double> sums(one.endings.size(), 0.0), means;
    auto const foretell = [&] {
      auto logits = decoder.append(rows);
      for (auto const& [ending, token] : foretold) {
        sums[ending] -= log_probability_of(logits.first(classes), token).value;
        logits = logits.subspan(classes);
      }
      rows.clear(), foretold.clear();
    };
    rows.clear();
    for (std::size_t k = 0; k < one.endings.size(); ++k) {
      auto const slot = static_cast<std::int32_t>(k % slots);
      if (k > 0 && slot == 0) foretell();  // its cache is another ending's from now on
      if (k > 0 && k < slots && before > 0) copy_cached(decoder, 0, slot, before);
      std::int32_t token = one.context.back(), position = before;
      for (std::int32_t const next : one.endings[k]) {
        rows.push_back({token, slot, position++, true});
        foretold.emplace_back(k, next);
        token = next;
        if (rows.size() == 64) foretell();
      }
    }
    foretell();
    for (std::size_t k = 0; k < one.endings.size(); ++k)
      means.push_back(sums[k] / static_cast<double>(one.endings[k].size()));
    auto const least = [](std::vector<double> const& list) {
      return static_cast<std::size_t>(std::min_element(list.begin(), list.end()) - list.begin());
    };
    ++score.examples;
    score.likeliest += least(sums) == one.label ? 1 : 0;
    score.best += least(means) == one.label ? 1 : 0;
    if (progress) progress(static_cast<std::int64_t>(examples.size()), score);
  }
  return score;
}

}  // namespace tutti::infer
