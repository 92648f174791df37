// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/setting.hpp>
// docs/configuration.md is written from the tables of settings:
//   TUTTI_RECORD=1 build/tests/test_train "[#configuration]"
#include "support/catch.hpp"

#include <tutti/backend/mpi/config.hpp>
#include <tutti/infer/sampler_options.hpp>
#include <tutti/io/file.hpp>
#include <tutti/train/options.hpp>
#include <tutti/wasi_nn/document.hpp>

#include <cmath>
#include <cstdlib>

using namespace tutti;
using namespace tutti::train;

namespace {

std::string said(bool, setting::Any) { return "(no value)"; }
template <class E>
std::string said(setting::Choice<E> const&, setting::Any) {
  return setting::choices<E>();
}
std::string said(std::string const&, setting::Text const& may) { return may.empty ? "text" : "text, not empty"; }
template <class T>
std::string said(T, setting::Range<T> const& range) {
  std::string const kind = std::is_integral_v<T> ? "whole number" : "number", text = range.text();
  return text.empty() ? kind : kind + ", " + text;
}

std::string shown(bool) { return "off"; }
std::string shown(std::string const& text) { return text.empty() ? "" : "`" + text + "`"; }
template <class E>
std::string shown(setting::Choice<E> const& choice) {
  return "`" + choice.text() + "`";
}
template <class T>
requires std::is_arithmetic_v<T> std::string shown(T value) { return "`" + setting::text_of(value) + "`"; }

// Of WASI-NN's documents.
template <class T, class May>
std::string kind(T const& value, May const& may) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  else if constexpr (requires { value.text(); } || std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
    return said(value, may);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>) return "list of texts, " + may.text();
  else return "list";
}
template <class T>
std::string standard(T const& value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "`true`" : "`false`";
  else if constexpr (requires { shown(value); }) return shown(value);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return value.empty() ? "" : nlohmann::json(value).dump();
  else return "";
}

std::string page() {
  std::string text =
      "# Settings\n\nThis page is written from the tables that the programs themselves read "
      "(`tests/train/configuration.cpp` compares).\n\n"
      "## The trainer\n\nFlags of `train_gpt2`, and keys of its `--config FILE.json` without the dashes; `./tutti "
      "train` hands them on. [A training run](guides/training.md) says which value wins. On `--resume`: *kept* is the "
      "checkpoint's value unless it is said again, *model* is a fact of the checkpoint, *anew* is said each time.\n";
  std::string group;
  Options options;
  for_each_flag(options, [&](Flag const& flag, auto const& value, auto const& may) {
    if (group != flag.group) {
      group = flag.group;
      text += "\n### " + group +
              "\n\n| flag | value | default | on `--resume` | what it says |\n| --- | --- | --- | --- | --- |\n";
    }
    std::string const alias = *flag.alias == 0 ? "" : " `--" + std::string(flag.alias) + "`";
    char const* const recall[] = {"kept", "model", "anew"};
    text += "| `--" + std::string(flag.name) + "`" + alias + " | " + said(value, may) + " | " + shown(value) + " | " +
            recall[static_cast<int>(flag.recall)] + " | " + flag.help + " |\n";
  });
  text +=
      "\n## Sampling\n\nFlags of `./tutti generate`, with dashes; members of `infer::SamplerOptions`. Biases of logits "
      "come "
      "first, then the stages in the order `penalties dry top_n_sigma top_k typical_p top_p min_p xtc temperature`, "
      "then the draw; mirostat takes the place of all but the temperature.\n\n| setting | value | default | what it "
      "says |\n| --- | --- | --- | --- |\n";
  infer::SamplerOptions sampling;
  infer::for_each_sampler_setting(
      sampling, [&](char const* name, auto const& value, auto const& may, char const* help) {
        text += "| `" + std::string(name) + "` | " + said(value, may) + " | " + shown(value) + " | " + help + " |\n";
      });
  text +=
      "\n## The backend on MPI\n\nMembers of `MpiConfig`, and environment variables. [MPI](guides/mpi.md) says what "
      "each does.\n\n| key | variable | default | values |\n| --- | --- | --- | --- |\n";
  MpiConfig config;
  mpi::for_each_key(config, [&](char const* name, auto const& setting) {
    text += "| `" + std::string(name) + "` | `" + mpi::variable_of(name) + "` | `" +
            mpi::detail::text_of(setting.get()) + "` | " + mpi::detail::allowed(setting.get()) + " |\n";
  });
  text +=
      "\n## WASI-NN\n\nKeys of the JSON documents that hosts and guests give to the WASI-NN libraries; `-` and `_` are "
      "the same. [Models for WebAssembly](guides/wasi-nn.md) says where documents come from. A key stands at the top, "
      "or in "
      "one of the objects named; `a.b` is the key b of an object a. The level is the last that may say it: backend, "
      "model, "
      "session (the options of a context) or run.\n\n| key | other names | in | level | value | default | what it says "
      "|\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  wasi_nn::Settings settings;
  wasi_nn::for_each_setting(settings,
                            [&](wasi_nn::Row const& row, auto const& value, auto const& may, char const* help) {
                              std::string others, groups;
                              wasi_nn::detail::any_name(row, [&](std::string_view name) {
                                if (name != row.name) others += (others.empty() ? "`" : " `") + std::string(name) + "`";
                                return false;
                              });
                              for (wasi_nn::detail::Group const& object : wasi_nn::detail::groups)
                                if ((row.groups & object.bit) != 0 && object.name.find('_') == std::string_view::npos)
                                  groups += (groups.empty() ? "" : ", ") + std::string(object.name);
                              char const* const levels[] = {"backend", "model", "session", "run"};
                              text += "| `" + std::string(row.name) + "` | " + others + " | " + groups + " | " +
                                      levels[static_cast<int>(row.last)] + " | " + kind(value, may) + " | " +
                                      standard(value) + " | " + help + " |\n";
                            });
  return text;
}

enum class Fruit { apple, pear };

}  // namespace

template <>
inline constexpr auto setting::spelling<Fruit> = std::array<std::string_view, 2>{"apple", "pear"};

TEST_CASE("docs/configuration.md says what the tables of settings say") {
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  std::string const path = std::string(root == nullptr ? "." : root) + "/docs/configuration.md";
  if (std::getenv("TUTTI_RECORD") != nullptr) io::write_file(path, page());
  INFO("write it anew: TUTTI_RECORD=1 TUTTI_SOURCE_ROOT=. build/tests/test_train '[#configuration]'");
  CHECK(io::read_file(path) == page());
}

TEST_CASE("a choice keeps text that spells none of its values, and says which there are") {
  using Choice = setting::Choice<Fruit>;
  CHECK(Choice("pear") == Fruit::pear);
  CHECK(Choice(Fruit::pear).text() == "pear");
  CHECK(Choice("plum").text() == "plum");
  CHECK(!Choice("plum").known());
  CHECK(!(Choice("plum") == Fruit::apple));
  CHECK(setting::choices<Fruit>() == "apple or pear");
  nlohmann::json const json = Choice(Fruit::pear);
  CHECK(json == "pear");
  CHECK(json.get<Choice>() == Fruit::pear);
}

TEST_CASE("a range holds its bounds, but for an end that it excludes, and says what is exceeded") {
  setting::Range<std::int64_t> const whole{1, 5}, half{.least = 3};
  CHECK((whole.holds(1) && whole.holds(5) && !whole.holds(0) && !whole.holds(6)));
  CHECK(whole.text_for(0) == "at least 1");
  CHECK(whole.text_for(6) == "at most 5");
  CHECK(half.text() == "at least 3");
  setting::Range<double> const real{0, 1, true};
  CHECK((real.holds(0) && !real.holds(1) && !real.holds(NAN)));
  CHECK(real.text_for(2) == "at least 0 and below 1");
  CHECK(setting::Range<double>{0, 0.5}.text() == "between 0 and 0.5");
  CHECK(setting::Range<int>{}.text().empty());
}
