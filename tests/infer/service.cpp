// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/log_probabilities.hpp> <tutti/infer/generation.hpp> <tutti/infer/request_queue.hpp>
// Covers: <tutti/infer/slots.hpp> <tutti/infer/cache_options.hpp>
// Covers: <tutti/infer/slot_drafters.hpp> <tutti/data/text_pattern.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/service.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;
using namespace std::chrono_literals;

namespace {

struct Loaded {
  test::ScratchFolder folder;
  LoadedModel loaded;

  Loaded() : loaded(make()) {}
  LoadedModel make() const {
    test::TinyModel sizes;
    sizes.positions = 256;
    std::string const path = folder / "tiny.gguf";
    test::write_tiny_gguf(path, sizes);
    return load_gguf(path);
  }
  std::vector<std::int32_t> prompt(int i, std::size_t size = 10) const {
    std::vector<std::int32_t> tokens;
    for (std::size_t t = 0; t < size; ++t)
      tokens.push_back(static_cast<std::int32_t>((t * 31 + static_cast<std::size_t>(i) * 17) % 94));
    return tokens;
  }
};

Request greedy(std::vector<std::int32_t> prompt, std::int64_t most) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.stop.max_tokens = most;
  return request;
}

/// Submits a request that has begun and goes no further until `go_on`.
struct Held {
  std::atomic<bool> begun{false}, go_on{false};
  std::shared_ptr<Generation> running;

  Held(Service& service, Request request) {
    request.on_text = [this](std::string_view) {
      begun = true;
      while (!go_on) std::this_thread::sleep_for(1ms);
    };
    running = service.submit(std::move(request));
    while (!begun) std::this_thread::sleep_for(1ms);
  }
};

}  // namespace

TEST_CASE("Answers of a busy service are those that each request would get alone") {
  Loaded const model;
  exec::Context alone({.threads = 1}), shared({.threads = 2});
  Decoder decoder(alone, model.loaded.model, {.capacity = 64});
  Service service(shared, model.loaded.model, model.loaded.tokenizer,
                  {.decoder = {.slots = 3, .capacity = 64}, .prompt_chunk = 7});
  std::vector<std::shared_ptr<Generation>> generations;
  std::vector<std::string> streamed(8);
  for (int i = 0; i < 8; ++i) {
    Request request = greedy(model.prompt(i, static_cast<std::size_t>(1 + 5 * i)), 12 + i);
    request.on_text = [&text = streamed[static_cast<std::size_t>(i)]](std::string_view piece) { text += piece; };
    generations.push_back(service.submit(std::move(request)));
  }
  for (int i = 0; i < 8; ++i) {
    Completion const& got = generations[static_cast<std::size_t>(i)]->wait();
    Sequence sequence(decoder);
    Sampler sampler(SamplerOptions{.temperature = 0});
    StopOptions stop;
    stop.max_tokens = 12 + i;
    auto const expected = complete(sequence, sampler, model.loaded.tokenizer,
                                   model.prompt(i, static_cast<std::size_t>(1 + 5 * i)), stop, {});
    CAPTURE(i);
    REQUIRE(got.tokens == expected.tokens);
    REQUIRE(got.text == expected.text);
    REQUIRE(streamed[static_cast<std::size_t>(i)] == got.text);
    REQUIRE(got.reason == expected.reason);
  }
  ServiceStatus const status = service.status();
  REQUIRE(status.finished == 8);
  REQUIRE(status.waiting == 0);
  REQUIRE(status.running == 0);
}

TEST_CASE("A service's answers are the same with drafts, of the text or of a model, alone and beside others") {
  Loaded const model;
  exec::Context context({.threads = 1});
  auto const requests = [&] {
    std::vector<Request> made;
    for (int i = 0; i < 5; ++i) {
      auto prompt = model.prompt(i % 2, 12);  // twice, so that it may go on a third time
      prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 9);
      made.push_back(greedy(std::move(prompt), 30 + i));
      made.back().sampling.temperature = i == 4 ? 0.1 : 0;
      made.back().likeliest = 2;
      made.back().keep_logits = true;
    }
    made[2].shift.on = made[3].shift.on = true;  // 21 + 30 tokens fill the context of 48
    return made;
  };
  auto const answers = [&](ServiceDrafts const& drafts, std::int64_t slots) {
    Service service(context, model.loaded.model, model.loaded.tokenizer,
                    {.decoder = {.slots = slots, .capacity = 48}, .drafts = drafts});
    std::vector<std::shared_ptr<Generation>> generations;
    for (Request& request : requests()) generations.push_back(service.submit(std::move(request)));
    std::vector<Completion> completions;
    for (auto const& generation : generations) completions.push_back(generation->wait());
    return std::pair(std::move(completions), service.status());
  };
  for (std::int64_t const slots : {1, 2, 3}) {
    auto const [expected, plain] = answers({}, slots);
    REQUIRE(plain.speculation.drafted == 0);
    for (nn::StoredModel const* const draft : {static_cast<nn::StoredModel const*>(nullptr), &model.loaded.model}) {
      auto const [got, status] = answers({.tokens = most_drafts, .model = draft}, slots);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (draft != nullptr && i == 4) continue;  // drawn: as likely, not the same
        CAPTURE(slots, draft == nullptr, i);
        REQUIRE(got[i].tokens == expected[i].tokens);
        REQUIRE(got[i].reason == expected[i].reason);
        REQUIRE(got[i].shifts == expected[i].shifts);
        REQUIRE(got[i].log_probabilities.size() == expected[i].log_probabilities.size());
        REQUIRE(got[i].logits.size() == expected[i].logits.size());
      }
      CAPTURE(status.speculation.drafted, status.speculation.accepted);
      REQUIRE(status.speculation.drafted > 0);
      if (draft != nullptr) REQUIRE(status.speculation.accepted > status.speculation.drafted / 2);
    }
  }
  REQUIRE_ERROR(Service(context, model.loaded.model, model.loaded.tokenizer, {.drafts = {.tokens = 8}}),
                ErrorKind::invalid_argument, "1 to 7");
}

TEST_CASE("Waiting requests come by priority, then by age; more than the queue holds are refused") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer,
                  {.decoder = {.slots = 1, .capacity = 256}, .queue = {.most = 3}});
  Held first(service, greedy(model.prompt(0), 200));
  std::string order;
  std::vector<std::shared_ptr<Generation>> waiting;
  for (auto const& [letter, priority] : {std::pair{'a', 0}, std::pair{'b', 2}, std::pair{'c', 2}}) {
    Request request = greedy(model.prompt(priority), 3);
    request.priority = priority;
    request.on_text = [&order, name = letter](std::string_view) {
      if (order.empty() || order.back() != name) order += name;
    };
    waiting.push_back(service.submit(std::move(request)));
  }
  REQUIRE(service.status().waiting == 3);
  REQUIRE_ERROR(service.submit(greedy(model.prompt(1), 1)), ErrorKind::busy, "later");
  REQUIRE(service.status().refused == 1);
  first.running->cancel();
  first.go_on = true;
  REQUIRE(first.running->wait().reason == StopReason::cancelled);
  REQUIRE(first.running->wait().tokens.size() < 200);
  for (auto const& generation : waiting) REQUIRE(generation->wait().reason == StopReason::max_tokens);
  REQUIRE(order == "bca");
}

TEST_CASE("What an idle service can begin at once does not count as waiting") {
  Loaded const model;
  exec::Context context({.threads = 1});
  for (int i = 0; i < 20; ++i) {
    Service service(context, model.loaded.model, model.loaded.tokenizer,
                    {.decoder = {.slots = 3, .capacity = 256}, .queue = {.most = 1}});
    std::vector<std::shared_ptr<Generation>> all;
    for (int k = 0; k < 4; ++k) all.push_back(service.submit(greedy(model.prompt(k), 3)));
    for (auto const& one : all) REQUIRE(one->wait().tokens.size() == 3);
  }
}

TEST_CASE("A deadline ends an answer, also one that still waits; a cancelled one leaves the queue") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 256}});
  Request slow = greedy(model.prompt(0), 200);
  slow.deadline = 150ms;
  slow.on_text = [](std::string_view) { std::this_thread::sleep_for(20ms); };
  auto const running = service.submit(std::move(slow));
  Request late = greedy(model.prompt(1), 5);
  late.deadline = 1ms;
  auto const waiting = service.submit(std::move(late));
  auto const dropped = service.submit(greedy(model.prompt(2), 5));
  dropped->cancel();
  REQUIRE(running->wait().reason == StopReason::time);
  REQUIRE(running->wait().tokens.size() < 50);
  REQUIRE(waiting->wait().reason == StopReason::time);
  REQUIRE(waiting->wait().tokens.empty());
  REQUIRE(dropped->wait().reason == StopReason::cancelled);
  REQUIRE(service.submit(greedy(model.prompt(3), 5))->wait().tokens.size() == 5);
}

TEST_CASE("A session finds its own cache again and no other's") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  auto const reused = [&](std::string const& session, std::vector<std::int32_t> prompt) {
    Request request = greedy(std::move(prompt), 2);
    request.session = session;
    return service.submit(std::move(request))->wait().reused_tokens;
  };
  auto longer = model.prompt(1, 10);
  longer.push_back(7);
  REQUIRE(reused("a", model.prompt(1, 10)) == 0);
  REQUIRE(reused("b", longer) == 0);
  REQUIRE(reused("a", longer) == 10);
  REQUIRE(reused("b", longer) == 10);
  REQUIRE(reused("c", longer) == 0);  // takes the slot that was idle longest: a's
  REQUIRE(reused("b", longer) == 10);
  REQUIRE(reused("a", longer) == 0);
}

TEST_CASE("Requests that cannot be are refused where they are made, and a failing one leaves the others running") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  REQUIRE_ERROR(service.submit(greedy({}, 1)), ErrorKind::invalid_argument, "empty");
  REQUIRE_ERROR(service.submit(greedy(model.prompt(1, 65), 1)), ErrorKind::out_of_range, "65 tokens");
  REQUIRE_ERROR(service.submit(greedy({1000}, 1)), ErrorKind::out_of_range, "vocabulary");
  Request bad = greedy(model.prompt(1), 1);
  bad.grammar = "root ::= (";
  REQUIRE_THROWS_AS(service.submit(bad), Error);
  bad.grammar.clear();
  bad.sampling.top_p = 7;
  REQUIRE_THROWS_AS(service.submit(bad), Error);

  Request none = greedy(model.prompt(1), 5);  // no token is left to draw
  for (std::int32_t id = 0; id < 96; ++id) none.sampling.logit_bias.emplace_back(id, -INFINITY);
  auto const failing = service.submit(std::move(none));
  auto const other = service.submit(greedy(model.prompt(2), 20));
  REQUIRE_ERROR(failing->wait(), ErrorKind::invalid_argument, "no token");
  REQUIRE(other->wait().tokens.size() == 20);
}

TEST_CASE("A grammar holds, and ends the answer when its sentence is complete") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  Request request = greedy(model.prompt(4), 30);
  request.grammar = "root ::= \"ab\" [0-9] [0-9] \"c\"";
  Completion const answer = service.submit(std::move(request))->wait();
  CAPTURE(answer.text);
  REQUIRE(answer.text.size() == 5);
  REQUIRE(answer.text.substr(0, 2) == "ab");
  REQUIRE(answer.text[4] == 'c');
  REQUIRE((answer.reason == StopReason::grammar || answer.reason == StopReason::end_of_generation));
}

TEST_CASE("Sessions of one priority take turns, unless fairness is off; a warning comes once") {
  Loaded const model;
  for (bool const fair : {true, false}) {
    exec::Context context({.threads = 1});
    std::atomic<int> warnings{0};
    Service service(context, model.loaded.model, model.loaded.tokenizer,
                    {.decoder = {.slots = 1, .capacity = 64},
                     .queue = {.warn = 3, .fair = fair, .on_warning = [&](std::size_t size) {
                                 REQUIRE(size == 3);
                                 ++warnings;
                               }}});
    Request held = greedy(model.prompt(0), 5);
    held.session = "a";
    Held first(service, std::move(held));
    std::string order;
    std::vector<std::shared_ptr<Generation>> waiting;
    for (char const* const session : {"a", "a", "b", "c"}) {
      Request request = greedy(model.prompt(1), 1);
      request.session = session;
      request.on_text = [&order, session](std::string_view) { order += session; };
      waiting.push_back(service.submit(std::move(request)));
    }
    REQUIRE(warnings == 1);
    first.go_on = true;
    for (auto const& generation : waiting) generation->wait();
    CAPTURE(fair);
    REQUIRE(order == (fair ? "abca" : "aabc"));
  }
}

TEST_CASE("A full context drops its oldest tokens and goes on as one that was given the rest") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 32}});
  Request request = greedy(model.prompt(3, 20), 40);
  REQUIRE(service.submit(request)->wait().reason == StopReason::context_full);
  request.shift = {.on = true, .keep = 4, .discard = 10};
  Completion const answer = service.submit(request)->wait();
  REQUIRE(answer.reason == StopReason::max_tokens);
  REQUIRE(answer.tokens.size() == 40);
  REQUIRE(answer.shifts == 3);
  // By hand: the context is full when 12 tokens were appended, and 22 of 32 tokens stay.
  std::vector<std::int32_t> text = model.prompt(3, 20);
  text.insert(text.end(), answer.tokens.begin(), answer.tokens.begin() + 12);
  text.erase(text.begin() + 4, text.begin() + 14);
  text.push_back(answer.tokens[12]);
  Completion const rest = service.submit(greedy(text, 9))->wait();
  REQUIRE(rest.tokens == std::vector(answer.tokens.begin() + 13, answer.tokens.begin() + 22));
  request.shift.keep = 31;
  REQUIRE_ERROR(service.submit(request), ErrorKind::invalid_argument, "Keep fewer");
}

TEST_CASE("Idle caches keep within their bound, their time, and their session") {
  Loaded const model;
  exec::Context context({.threads = 1});
  auto const reused = [&](Service& service, std::string const& session, std::size_t size) {
    Request request = greedy(model.prompt(1, size), 1);
    request.session = session;
    return service.submit(std::move(request))->wait().reused_tokens;
  };
  for (bool const partial : {true, false}) {
    Service service(context, model.loaded.model, model.loaded.tokenizer,
                    {.decoder = {.slots = 3, .capacity = 64}, .cache = {.tokens = 30, .partial = partial}});
    reused(service, "a", 20), reused(service, "b", 20);
    CAPTURE(partial);
    REQUIRE(reused(service, "a", 20) == (partial ? 9 : 0));  // of 21 tokens each, the oldest lost 12
  }
  Service service(context, model.loaded.model, model.loaded.tokenizer,
                  {.decoder = {.slots = 3, .capacity = 64}, .cache = {.retention = 300ms}});
  reused(service, "a", 20);
  REQUIRE(reused(service, "a", 20) == 19);
  service.forget("a");
  REQUIRE(reused(service, "a", 20) == 0);
  std::this_thread::sleep_for(400ms);
  REQUIRE(reused(service, "a", 20) == 0);
  Request fresh = greedy(model.prompt(1, 20), 1);
  fresh.session = "a";
  fresh.reuse = false;
  REQUIRE(service.submit(std::move(fresh))->wait().reused_tokens == 0);
}

TEST_CASE("The shortest idle cache goes first where that is asked for") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer,
                  {.decoder = {.slots = 2, .capacity = 64}, .cache = {.order = CacheOrder::smart}});
  auto const reused = [&](std::string const& session, std::size_t size) {
    Request request = greedy(model.prompt(1, size), 1);
    request.session = session;
    return service.submit(std::move(request))->wait().reused_tokens;
  };
  reused("long", 30), reused("short", 5);
  reused("new", 10);  // takes the short one's place, though it is the younger
  REQUIRE(reused("long", 30) == 29);
}

TEST_CASE("Answers end where a pattern fits, and where they repeat themselves; logits are kept when asked for") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 200}});
  Request request = greedy(model.prompt(4), 60);
  Completion const whole = service.submit(request)->wait();
  request.stop.patterns.emplace_back("^.{7}$");
  request.keep_logits = true;
  Completion const some = service.submit(request)->wait();
  REQUIRE(some.reason == StopReason::pattern);
  REQUIRE(some.text == whole.text.substr(0, 7));
  REQUIRE(some.logits.size() == 96);
  Request again = greedy(model.prompt(4), 60);
  again.grammar = "root ::= \"no.\"+";
  again.stop.repetitions = 3;
  Completion const repeated = service.submit(again)->wait();
  REQUIRE(repeated.text == "no.no.no.");
  REQUIRE(repeated.reason == StopReason::repetition);
}

TEST_CASE("A sleeping grammar wakes at its trigger and rules from there on") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 200}});
  Request request = greedy(model.prompt(4), 40);
  std::string const free = service.submit(request)->wait().text;
  REQUIRE(free.size() > 8);
  std::string const word = free.substr(3, 2);
  request.grammar = "root ::= ";
  for (char const c : word) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned>(c));
    request.grammar += "\"" + std::string(code) + "\" ";
  }
  request.grammar += "\"AB\" [0-9]";
  for (bool const by_pattern : {false, true}) {
    request.triggers = {};
    if (by_pattern) request.triggers.patterns.emplace_back("^.{3}(..)$");
    else request.triggers.texts.push_back(word);
    Completion const answer = service.submit(request)->wait();
    CAPTURE(answer.text, free, by_pattern);
    auto const from = answer.text.find(word);
    REQUIRE(answer.text.substr(0, from + 2) == free.substr(0, from + 2));
    REQUIRE(answer.text.substr(from + 2, 2) == "AB");
    REQUIRE(answer.text.size() == from + 5);
  }
}

TEST_CASE("An answer pauses while it is told to, others go on, and an abandoned one ends") {
  Loaded const model;
  exec::Context context({.threads = 1});
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  std::atomic<bool> go_on{false}, abandoned{false}, ended{false};
  Request request = greedy(model.prompt(1), 20);
  std::vector<std::int32_t> const whole = service.submit(request)->wait().tokens;
  request.ready = [&] { return go_on.load(); };
  request.on_end = [&] { ended = true; };
  auto const paused = service.submit(request);
  REQUIRE(service.submit(greedy(model.prompt(2), 20))->wait().tokens.size() == 20);
  REQUIRE_FALSE(paused->done());
  go_on = true;
  REQUIRE(paused->wait().tokens == whole);
  while (!ended) std::this_thread::sleep_for(1ms);
  go_on = false;
  request.abandoned = [&] { return abandoned.load(); };
  auto const left = service.submit(request);
  abandoned = true;
  REQUIRE(left->wait().reason == StopReason::cancelled);
}

TEST_CASE("Sentences in a row are counted, what is not yet ended is not") {
  REQUIRE(repetitions_at_end("") == 0);
  REQUIRE(repetitions_at_end("Yes.") == 1);
  REQUIRE(repetitions_at_end("No. Yes. Yes.\n\nYes. Ye") == 3);
  REQUIRE(repetitions_at_end("Wait... Wait...") == 2);
  REQUIRE(repetitions_at_end("one two") == 0);
}

TEST_CASE("Patterns that are none are refused, and ones that would take for ever find nothing") {
  REQUIRE_ERROR(data::TextPattern("a(b"), ErrorKind::invalid_argument, "a(b");
  REQUIRE_ERROR(data::TextPattern(std::string(5000, 'a')), ErrorKind::invalid_argument, "4096");
  REQUIRE(data::TextPattern("(END|STOP)").find("we STOP") == 3);
  REQUIRE_FALSE(data::TextPattern("(a+)+$").find(std::string(60, 'a') + "b"));
}

TEST_CASE("Many threads submit, cancel and wait, and nothing is lost") {
  Loaded const model;
  exec::Context context({.threads = 2});
  std::atomic<int> ended{0};
  {
    Service service(context, model.loaded.model, model.loaded.tokenizer,
                    {.decoder = {.slots = 4, .capacity = 64}, .queue = {.most = 100}});
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c)
      clients.emplace_back([&, c] {
        for (int i = 0; i < 8; ++i) {
          Request request = greedy(model.prompt(c * 8 + i, static_cast<std::size_t>(1 + (c * 13 + i * 7) % 40)), 1 + i);
          request.priority = i % 4;
          request.session = "session " + std::to_string(c);
          auto const generation = service.submit(std::move(request));
          if (i % 3 == 2) generation->cancel();
          Completion const& answer = generation->wait();
          if (answer.reason == StopReason::cancelled || static_cast<int>(answer.tokens.size()) <= 1 + i) ++ended;
        }
      });
    for (std::thread& client : clients) client.join();
    REQUIRE(service.status().finished == 32);
  }
  REQUIRE(ended == 32);
}

TEST_CASE("Log-probabilities are those of the logits that each token was drawn from") {
  // By hand: probabilities 1/2, 1/4, 1/8 and 1/8.
  std::vector<float> const logits = {std::log(4.0f), std::log(8.0f), std::log(2.0f), std::log(2.0f)};
  TokenLogProbability const by_hand = log_probability_of(logits, 0, 3);
  REQUIRE(std::abs(by_hand.value - std::log(0.25)) < 1e-6);
  REQUIRE(by_hand.top.size() == 3);
  REQUIRE(by_hand.top[0].first == 1);
  REQUIRE(std::abs(by_hand.top[0].second - std::log(0.5)) < 1e-6);
  REQUIRE(by_hand.top[2].first == 2);  // of equals the lower
  REQUIRE(log_probability_of({logits.data(), 1}, 0).value == 0);
  REQUIRE(std::isfinite(log_probability_of(std::vector<float>{-INFINITY, 3}, 1).value));
  for (std::int64_t const top : {std::int64_t{-1}, std::int64_t{5}})
    REQUIRE_THROWS_AS(log_probability_of(logits, 0, top), Error);
  REQUIRE_THROWS_AS(log_probability_of(logits, 4), Error);

  // Of a service, beside others, against a decoder that gets the same tokens alone; sampling does not change them.
  Loaded const model;
  exec::Context alone({.threads = 1}), shared({.threads = 2});
  Service service(shared, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  auto const other = service.submit(greedy(model.prompt(1), 20));
  Request request = greedy(model.prompt(2), 12);
  request.sampling.temperature = 3;
  request.sampling.seed = 5;
  request.likeliest = 2;
  Completion const got = service.submit(request)->wait();
  REQUIRE(got.log_probabilities.size() == got.tokens.size());
  REQUIRE(other->wait().log_probabilities.empty());
  Decoder decoder(alone, model.loaded.model, {.capacity = 64, .batch = 64});
  Sequence sequence(decoder);
  std::span<float const> expected = sequence.become(request.prompt);
  double worst = 0;
  for (std::size_t i = 0; i < got.tokens.size(); ++i) {
    TokenLogProbability const one = log_probability_of(expected, got.tokens[i], 2);
    REQUIRE(got.log_probabilities[i].token == got.tokens[i]);
    REQUIRE(got.log_probabilities[i].top.size() == 2);
    worst = std::max({worst, std::abs(one.value - got.log_probabilities[i].value),
                      std::abs(one.top[0].second - got.log_probabilities[i].top[0].second)});
    expected = sequence.append({&got.tokens[i], 1});
  }
  REQUIRE(worst < 1e-4);
  request.likeliest = std::int64_t{1} << 40;
  REQUIRE_THROWS_AS(service.submit(request), Error);
}

TEST_CASE("An embedding is the mean hidden state, of length one, and does not depend on who else runs") {
  Loaded const model;
  exec::Context alone({.threads = 1}), shared({.threads = 2});
  auto const prompt = model.prompt(3, 30);
  Decoder decoder(alone, model.loaded.model, {.capacity = 64, .batch = 64});
  std::vector<NewToken> rows;
  for (std::size_t i = 0; i < prompt.size(); ++i) rows.push_back({prompt[i], 0, static_cast<std::int32_t>(i), false});
  decoder.append(rows);
  std::vector<double> mean(256);
  double square = 0;
  for (std::size_t i = 0; i < decoder.hidden().size(); ++i) mean[i % 256] += double{decoder.hidden()[i]};
  for (double const value : mean) square += value * value;
  Service service(shared, model.loaded.model, model.loaded.tokenizer,
                  {.decoder = {.slots = 2, .capacity = 64}, .prompt_chunk = 8});
  auto const other = service.submit(greedy(model.prompt(1), 40));
  Request request = greedy(prompt, 0);
  request.embed = true;
  Completion const got = service.submit(request)->wait();
  REQUIRE(got.embedding.size() == 256);
  double worst = 0;
  for (std::size_t c = 0; c < 256; ++c)
    worst = std::max(worst, std::abs(double{got.embedding[c]} - mean[c] / std::sqrt(square)));
  REQUIRE(worst < 1e-5);
  REQUIRE(other->wait().tokens.size() == 40);
}

TEST_CASE("The end of a service is told to those who wait for it") {
  Loaded const model;
  exec::Context context({.threads = 1});
  std::vector<std::shared_ptr<Generation>> left;
  {
    Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 256}});
    for (int i = 0; i < 3; ++i) left.push_back(service.submit(greedy(model.prompt(i), 240)));
  }
  int told = 0;
  for (auto const& generation : left) try {
      generation->wait();
    } catch (Error const& error) {
      told += error.kind() == ErrorKind::unavailable;
    }
  REQUIRE(told >= 2);
}

TEST_CASE("A sentence that means what a given text does ends an answer, on one sequence and in a service") {
  Loaded const model;
  exec::Context alone({.threads = 1}), context({.threads = 1});
  auto const prompt = model.prompt(1);
  // Exclamation marks alone are drawn, each a sentence.
  Request request = greedy(prompt, 5);
  request.sampling.logit_bias = {{0, 1000.0f}};
  REQUIRE(model.loaded.tokenizer.token_bytes(0) == "!");
  Decoder decoder(alone, model.loaded.model, {.capacity = 64});
  std::vector<NewToken> rows;
  for (std::int32_t const token : prompt) rows.push_back({token, 0, static_cast<std::int32_t>(rows.size())});
  for (int i = 0; i < 3; ++i) rows.push_back({0, 0, static_cast<std::int32_t>(rows.size())});
  static_cast<void>(decoder.append(rows));
  std::size_t const channels = 256;
  std::span<float const> const hidden = decoder.hidden();
  std::vector<std::vector<float>> marks;  // what each of the first three means
  for (std::size_t i = 0; i < 3; ++i) {
    auto const row = hidden.subspan((prompt.size() + i) * channels, channels);
    marks.emplace_back(row.begin(), row.end());
  }
  std::vector<float> opposite = marks[0];
  for (float& value : opposite) value = -value;

  struct Case {
    std::vector<std::vector<float>> meanings;
    double threshold;
    std::size_t tokens;
    StopReason reason;
  };
  std::vector<Case> const cases{{{}, -1, 5, StopReason::max_tokens},
                                {{marks[0]}, 0.9999, 1, StopReason::meaning},
                                {{opposite, marks[0]}, 0.9999, 1, StopReason::meaning},
                                {{opposite}, 0.9, 5, StopReason::max_tokens},
                                {{marks[0]}, 1.1, 5, StopReason::max_tokens},
                                {{{1.0f, 2.0f}}, -0.9, 5, StopReason::max_tokens},  // of another model
                                {{marks[0]}, -1, 1, StopReason::meaning}};
  Service service(context, model.loaded.model, model.loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  for (Case const& one : cases) {
    CAPTURE(one.meanings.size(), one.threshold);
    request.stop.meanings = one.meanings;
    request.stop.meaning_threshold = one.threshold;
    Completion const served = service.submit(request)->wait();
    CHECK(served.tokens.size() == one.tokens);
    CHECK(served.reason == one.reason);
    Sequence sequence(decoder);
    Sampler sampler(request.sampling);
    Completion const written =
        complete(sequence, sampler, model.loaded.tokenizer, prompt, request.stop, [](std::string_view) {});
    CHECK(written.tokens == served.tokens);
    CHECK(written.reason == one.reason);
  }
  CHECK(name(StopReason::meaning) == "stop meaning");

  // The direction of a text is that of its embedding.
  Sequence sequence(decoder);
  auto const direction = mean_hidden(sequence, prompt);
  Request embedding = greedy(prompt, 1);
  embedding.embed = true;
  std::vector<float> const embedded = service.submit(embedding)->wait().embedding;
  REQUIRE(direction.size() == embedded.size());
  for (std::size_t i = 0; i < direction.size(); ++i) CHECK(std::abs(direction[i] - embedded[i]) < 1e-5f);
  REQUIRE_ERROR(mean_hidden(sequence, {}), ErrorKind::invalid_argument, "no tokens");
}
