// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Language models inside of WebAssembly, for pages and for Node: the inference of tutti as a module without a host's
// library. tutti_infer.mjs, beside this file, is what programs use; what follows is what it is made of.
//
// A module holds one model and one conversation. Bytes pass through its memory: `tutti_allocate` gives a place for
// them, whose owner the function that gets it becomes. What a call has to say, text, JSON or the sentence of an error,
// is at `tutti_output`, in `tutti_output_size` bytes of UTF-8, until the next call.
//
// An error is answered with -1 and leaves the module as it is described at each function: C++ exceptions unwind here
// (exceptions.hpp). A trap, which a full stack and a broken promise of the library end in, leaves it unusable: make
// another.
#include "exceptions.hpp"

#include <tutti/data/chat_template.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sampler.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/io/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#define TUTTI_EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace {

using Json = nlohmann::json;

std::string output;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
/// Bytes from outside, owned.
struct Bytes {
  std::unique_ptr<char, Free> memory;
  std::size_t size = 0;
  std::string_view text() const { return {memory.get(), size}; }
};

std::string dump(Json const& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

[[noreturn]] void refuse(std::string const& what) {
  throw tutti::Error(tutti::ErrorKind::configuration, "infer", what, std::source_location());
}

/// A number, a truth value or a text of an object of options.
template <class T, class May>
void read(Json const& json, std::string const& key, T& value, May const& may) {
  namespace setting = tutti::setting;
  if constexpr (std::is_same_v<May, setting::Any>) {  // of a choice: its spelling, or that as a number
    value = T(json.is_string() ? json.get<std::string>() : dump(json));
    return;
  } else if constexpr (std::is_integral_v<T>) {
    if (!json.is_number_integer()) refuse(key + " must be a whole number, not " + dump(json).substr(0, 40));
    bool const large = json.is_number_unsigned() && !std::in_range<T>(json.get<std::uint64_t>());
    if (large || (!json.is_number_unsigned() && !std::in_range<T>(json.get<std::int64_t>())))
      refuse(key + " is " + dump(json) + ", and must be " + may.text());
    value = json.get<T>();
  } else {
    if (!json.is_number()) refuse(key + " must be a number, not " + dump(json).substr(0, 40));
    value = json.get<T>();
  }
  if constexpr (!std::is_same_v<May, setting::Any>)
    if (!may.holds(value)) refuse(key + " is " + setting::text_of(value) + ", and must be " + may.text());
}
std::string text_in(Json const& json, std::string const& key) {
  if (!json.is_string()) refuse(key + " must be a text, not " + dump(json).substr(0, 40));
  return json.get<std::string>();
}

/// An object in which every key is asked for; those that were not are refused.
class Options {
 public:
  explicit Options(std::string_view text)
      : json_(text.empty() ? Json::object() : tutti::io::parse_json(text, "the options", "infer")) {
    if (!json_.is_object()) refuse("options are a JSON object");
  }
  Json const* find(std::string const& key) {
    known_.push_back(key);
    auto const found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class T, class May>
  void take(char const* key, T& value, May const& may) {
    if (Json const* const found = find(key)) read(*found, key, value, may);
  }
  void take(char const* key, std::string& value) {
    if (Json const* const found = find(key)) value = text_in(*found, key);
  }
  void done() const {
    for (auto const& [key, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string all;
      for (std::string const& one : known_) all += (all.empty() ? "" : ", ") + one;
      refuse("there is no option '" + key.substr(0, 40) + "'. Options are " + all);
    }
  }

 private:
  Json json_;
  std::vector<std::string> known_;
};

/// A model with the cache of its conversation.
struct Loaded {
  Loaded(std::shared_ptr<tutti::io::Gguf const> file, Options& options)
      : model(tutti::infer::load_gguf(std::move(file))) {
    tutti::infer::DecoderOptions decoding{.capacity = std::min<std::int64_t>(model.model.max_tokens(), 2048),
                                          .batch = 64};
    options.take("context", decoding.capacity, tutti::setting::Range<std::int64_t>{1, std::int64_t{1} << 24});
    std::string cache = "float32";
    options.take("cache", cache);
    if (cache == "float16") decoding.cache = tutti::BlockType::f16;
    else if (cache != "float32") refuse("cache is '" + cache.substr(0, 40) + "'. Use float32 or float16");
    options.done();
    if (decoding.capacity > model.model.max_tokens())
      refuse(tutti::concat("context is ", decoding.capacity, ", and the model was made for ", model.model.max_tokens(),
                           " tokens"));
    decoder.emplace(context, model.model, decoding);
    sequence.emplace(*decoder);
  }
  std::string facts() const {
    auto const chat = tutti::data::recognise_chat_template(model.chat_template);
    return dump({{"context", decoder->capacity()},
                 {"vocabulary", model.tokenizer.vocabulary()},
                 {"chat_template", chat ? Json(std::string(tutti::data::name_of(chat->format))) : Json()}});
  }

  tutti::infer::LoadedModel model;
  tutti::exec::Context context{{.threads = 1}};
  std::optional<tutti::infer::Decoder> decoder;
  std::optional<tutti::infer::Sequence> sequence;
};

/// What follows one prompt.
class Answer {
 public:
  Answer(Loaded& loaded, std::string_view prompt, Options& options) : loaded_(loaded) {
    auto const& tokenizer = loaded.model.tokenizer;
    tutti::infer::SamplerOptions sampling = tutti::infer::usual_sampling();
    tutti::infer::for_each_sampler_setting(
        sampling, [&](char const* key, auto& value, auto const& may, char const*) { options.take(key, value, may); });
    options.take("seed", sampling.seed, tutti::setting::Range<std::uint64_t>{});
    tutti::infer::StopOptions stop;
    stop.ends = tutti::infer::end_tokens(tokenizer);
    options.take("max_tokens", stop.max_tokens, tutti::setting::Range<std::int64_t>{-1});
    options.take("repetitions", stop.repetitions, tutti::setting::Range<std::int64_t>{0});
    if (Json const* const stops = options.find("stop")) {
      if (!stops->is_array()) refuse("stop must be a list of texts");
      for (Json const& one : *stops) stop.texts.push_back(text_in(one, "stop"));
    }
    std::string grammar;
    options.take("grammar", grammar);
    auto const ids = encoded(prompt, options);
    options.done();
    auto const size = static_cast<std::int64_t>(ids.size()), room = loaded.decoder->capacity();
    if (ids.empty()) refuse("the model has no token that begins a text. Give a prompt");
    if (size > room)
      refuse(tutti::concat("the prompt has ", size, " tokens and the context ", room,
                           ". Give a shorter one, or load the model with a larger context"));
    auto const pieces = grammar.empty() && sampling.dry_multiplier <= 0 ? std::vector<std::string>()
                                                                       : tutti::infer::token_pieces(tokenizer);
    if (!grammar.empty()) {
      grammar_.emplace(grammar);
      words_.emplace(pieces, stop.ends);
      matcher_.emplace(*grammar_, *words_);
    }
    tutti::infer::SequenceBreakers breakers;
    if (sampling.dry_multiplier > 0)
      breakers = {tutti::infer::usual_breakers(), pieces,
                  [&](std::string_view text) { return tokenizer.encode(text); }};
    sampler_.emplace(sampling, std::move(breakers));
    drawing_.emplace(*sampler_, tokenizer, ids, stop, [this](std::string_view text) { piece_ += text; },
                     matcher_ ? &*matcher_ : nullptr);
    logits_ = loaded.sequence->become(ids);
    drawing_->reused(loaded.sequence->reused());
  }
  Answer(Answer const&) = delete;
  Answer& operator=(Answer const&) = delete;

  /// The next piece of text; nothing at the end.
  std::optional<std::string> next() {
    auto& sequence = *loaded_.sequence;
    piece_.clear();
    while (!ended_ && piece_.empty()) {
      // The token is appended by the call after: the text that it ends with need not wait for what follows.
      if (token_) logits_ = sequence.append({&*token_, 1});
      token_ = drawing_->draw(logits_, sequence.length() < sequence.capacity());
      ended_ = !token_;
    }
    if (piece_.empty()) return std::nullopt;
    return std::move(piece_);
  }
  std::string facts() const {
    auto const& result = drawing_->result();
    return dump({{"stop_reason", ended_ ? Json(std::string(name(result.reason))) : Json()},
                 {"prompt_tokens", result.prompt_tokens},
                 {"reused_tokens", result.reused_tokens},
                 {"output_tokens", result.tokens.size()},
                 {"prompt_seconds", result.prompt_seconds},
                 {"seconds", result.seconds}});
  }

 private:
  std::vector<std::int32_t> encoded(std::string_view prompt, Options& options) const {
    auto const& tokenizer = loaded_.model.tokenizer;
    std::string wanted = "none";
    std::vector<tutti::data::ChatMessage> messages;
    if (Json const* const list = options.find("messages")) {
      wanted = "auto";
      if (!list->is_array() || list->empty()) refuse("messages must be a list of {\"role\": text, \"content\": text}");
      for (Json const& one : *list) {
        if (!one.is_object() || one.size() != 2 || !one.contains("role") || !one.contains("content"))
          refuse("a message must be {\"role\": text, \"content\": text}");
        messages.push_back({text_in(one["role"], "role"), text_in(one["content"], "content")});
        auto const& role = messages.back().role;
        if (role != "system" && role != "user" && role != "assistant")
          refuse("a role is '" + role.substr(0, 40) + "'. Use system, user or assistant");
      }
    }
    options.take("chat_template", wanted);
    if (wanted == "none") {
      if (!messages.empty()) refuse("messages need a chat_template other than none");
      auto ids = tokenizer.encode_complete(prompt);
      tutti::infer::begin_text(ids, tokenizer);
      return ids;
    }
    if (!prompt.empty() || messages.empty()) messages.push_back({"user", std::string(prompt)});
    auto const chat = tutti::data::choose_chat_template(loaded_.model.chat_template, wanted == "auto" ? "" : wanted);
    return tokenizer.encode_complete(tutti::data::render_chat(chat, messages), tutti::data::Marks::as_tokens);
  }

  Loaded& loaded_;
  std::optional<tutti::infer::Grammar> grammar_;
  std::optional<tutti::infer::GrammarVocabulary> words_;
  std::optional<tutti::infer::GrammarMatcher> matcher_;
  std::optional<tutti::infer::Sampler> sampler_;
  mutable std::optional<tutti::infer::Drawing> drawing_;
  std::span<float const> logits_;
  std::optional<std::int32_t> token_;
  std::string piece_;
  bool ended_ = false;
};

std::unique_ptr<Loaded> loaded;
std::unique_ptr<Answer> answer;

/// f(), or -1 with a sentence.
template <class F>
std::int32_t answered(F f) noexcept {
  try {
    output.clear();
    return f();
  } catch (tutti::Error const& error) {
    output = tutti::concat(error.message(), error.native().empty() ? "" : " [", error.native(),
                           error.native().empty() ? "" : "]");
  } catch (std::bad_alloc const&) {
    output = "there is not enough memory. Use a smaller model, or a smaller context";
  } catch (std::exception const& error) {
    output = error.what();
  }
  return -1;
}
Loaded& model() {
  if (!loaded) refuse("there is no model. Load one");
  return *loaded;
}

}  // namespace

/// Memory for `size` bytes, aligned to 64; 0 where there is not enough.
TUTTI_EXPORT(tutti_allocate) void* tutti_allocate(std::size_t size) {
  std::size_t const rounded = (size + 63) / 64 * 64;
  return rounded < size ? nullptr : std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
}
/// Gives memory back that no other call has got.
TUTTI_EXPORT(tutti_release) void tutti_release(void* memory) { std::free(memory); }
TUTTI_EXPORT(tutti_output) char const* tutti_output() { return output.data(); }
TUTTI_EXPORT(tutti_output_size) std::size_t tutti_output_size() { return output.size(); }

/// Ends answer and model, and gives their memory back.
TUTTI_EXPORT(tutti_unload) void tutti_unload() {
  answer.reset();
  loaded.reset();
}

/// Loads a GGUF file from memory in the place of the model before, which is given up first. `options` is JSON:
/// "context", tokens of prompt and answer together (2048, or what the model was made for), and "cache", float32 or
/// float16. 0, with {"context", "vocabulary", "chat_template"}; or -1, and there is no model.
TUTTI_EXPORT(tutti_load)
std::int32_t tutti_load(char* bytes, std::size_t size, char* name, std::size_t name_size, char* options,
                        std::size_t options_size) {
  Bytes file{std::unique_ptr<char, Free>(bytes), size}, called{std::unique_ptr<char, Free>(name), name_size},
      settings{std::unique_ptr<char, Free>(options), options_size};
  return answered([&] {
    tutti_unload();
    Options read(settings.text());
    auto const release = [](void*, tutti::Cpu const&, void* memory, std::size_t) noexcept { std::free(memory); };
    tutti::Storage<tutti::Cpu> storage(tutti::Cpu{}, file.memory.release(), size, release, nullptr);
    loaded = std::make_unique<Loaded>(
        std::make_shared<tutti::io::Gguf const>(std::move(storage), std::string(called.text())), read);
    output = loaded->facts();
    return 0;
  });
}

/// Begins an answer in the place of the one before, and computes the prompt; what it has in common with the text before
/// is not computed again. `options` is JSON: max_tokens, stop, repetitions, grammar, chat_template, messages, seed and
/// the settings of the sampler. 0, with {"prompt_tokens", ...}; or -1: there is no answer, and the model stays.
TUTTI_EXPORT(tutti_begin)
std::int32_t tutti_begin(char* prompt, std::size_t size, char* options, std::size_t options_size) {
  Bytes text{std::unique_ptr<char, Free>(prompt), size}, settings{std::unique_ptr<char, Free>(options), options_size};
  return answered([&] {
    answer.reset();
    Options read(settings.text());
    answer = std::make_unique<Answer>(model(), text.text(), read);
    output = answer->facts();
    return 0;
  });
}

/// 1 with the next piece of the answer, whole characters; 0 at its end, with {"stop_reason", "prompt_tokens",
/// "output_tokens", ...}; -1: there is no answer any more, and the model stays.
TUTTI_EXPORT(tutti_next) std::int32_t tutti_next() {
  std::int32_t const code = answered([&]() -> std::int32_t {
    if (!answer) refuse("there is no answer. Begin one");
    auto piece = answer->next();
    output = piece ? std::move(*piece) : answer->facts();
    return piece ? 1 : 0;
  });
  if (code < 0) answer.reset();
  return code;
}
