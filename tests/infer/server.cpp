// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/http/server.hpp> <tutti/infer/http/chat_page.hpp> <tutti/infer/openai.hpp>
// Covers: <tutti/infer/openai_keys.hpp> <tutti/infer/http/connection.hpp> <tutti/infer/http/metrics.hpp>
// Covers: <tutti/infer/http/text_stream.hpp>
// Covers: <tutti/infer/openai_answers.hpp> <tutti/infer/openai_embeddings.hpp>
// Covers: <tutti/infer/openai_log_probabilities.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/data/vocabulary_files.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/http/server.hpp>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;
using nlohmann::json;

namespace {

/// A tiny model behind a port of its own.
struct Running {
  test::ScratchFolder folder;
  HotModel models;
  Server server;
  std::thread thread;

  explicit Running(ServerOptions const& options)
      : models(make(folder, 1)), server(models, free_port(options)), thread([this] { server.run(); }) {}
  ~Running() {
    server.stop();
    thread.join();
  }
  static ServerOptions free_port(ServerOptions options) {
    options.port = 0;
    return options;
  }
  /// `seed`: of its weights.
  static std::shared_ptr<ServedModel> make(test::ScratchFolder const& folder, std::uint32_t seed) {
    test::TinyModel sizes;
    sizes.positions = 256;
    std::string const path = folder / ("tiny" + std::to_string(seed) + ".gguf");
    test::write_tiny_gguf(path, sizes, seed);
    ServedModelOptions options;
    options.service.decoder.slots = 2;
    options.chat_format = "zephyr";
    options.threads = 1;
    return std::make_shared<ServedModel>(seed == 1 ? "tiny" : "other", load_gguf(path), options);
  }

  httplib::Client client() const {
    httplib::Client made("127.0.0.1", server.port());
    made.set_read_timeout(60);
    return made;
  }
  /// Status and body.
  std::pair<int, std::string> post(char const* path, std::string const& body, httplib::Headers headers = {}) const {
    auto made = client();
    auto const result = made.Post(path, headers, body, "application/json");
    return result ? std::pair(result->status, result->body) : std::pair(-1, to_string(result.error()));
  }
  /// Bytes on a connection of their own, which is given.
  int ask(std::string const& bytes) const {
    int const socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(server.port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket, reinterpret_cast<sockaddr const*>(&to), sizeof to) == 0);
    for (std::size_t sent = 0; sent < bytes.size();) {
      ssize_t const n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;  // refused before it was said to its end
      sent += static_cast<std::size_t>(n);
    }
    return socket;
  }
  /// Bytes on a connection of their own, and what comes back until it ends.
  std::string say(std::string const& bytes) const {
    int const socket = ask(bytes);
    // The server takes an end of what is said for the end of whoever said it: only where it waits for more.
    std::string answer;
    char buffer[4096];
    for (int silent = 0; silent < 400;) {
      pollfd readable{socket, POLLIN, 0};
      if (::poll(&readable, 1, 50) == 0) {
        if (++silent == 1) ::shutdown(socket, SHUT_WR);
        continue;
      }
      ssize_t const n = ::recv(socket, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(socket);
    return answer;
  }
  std::string message(char const* path, std::string const& body, int status) const {
    auto const [code, text] = post(path, body);
    CAPTURE(body, text);
    REQUIRE(code == status);
    return json::parse(text).at("error").at("message");
  }
};

json const hello = {{"messages", {{{"role", "user"}, {"content", "abc"}}}}, {"max_tokens", 8}, {"seed", 3}};

}  // namespace

TEST_CASE("OpenAI's own client: vectors in base64, more of them than the queue holds, a model by its name") {
  Running const running{ServerOptions{}};
  json inputs = json::array();
  for (int i = 0; i < 100; ++i) inputs.push_back("abc" + std::string(static_cast<std::size_t>(i % 7), 'd'));
  auto const embed = [&](json const& more) {
    json body = {{"input", inputs}};
    body.update(more);
    auto const [status, text] = running.post("/v1/embeddings", body.dump());
    CAPTURE(text.substr(0, 200));
    REQUIRE(status == 200);
    return json::parse(text).at("data");
  };
  json const plain = embed(json::object()), coded = embed({{"encoding_format", "base64"}});
  REQUIRE(plain.size() == 100);
  REQUIRE(coded.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) {
    auto const vector = plain[i].at("embedding").get<std::vector<float>>();
    auto const text = coded[i].at("embedding").get<std::string>();
    REQUIRE(text.size() == (vector.size() * 4 + 2) / 3 * 4);
    std::optional<std::string> const bytes = data::detail::decode_base64(text);
    REQUIRE(bytes.has_value());
    REQUIRE(bytes->size() == vector.size() * sizeof(float));
    std::vector<float> decoded(vector.size());
    std::memcpy(decoded.data(), bytes->data(), bytes->size());
    for (std::size_t k = 0; k < vector.size(); ++k)
      REQUIRE(decoded[k] == Approx(vector[k]).margin(1e-6));  // rows are batched as they come
  }
  REQUIRE(json::parse(running.client().Get("/v1/models/tiny")->body).at("id") == "tiny");
  REQUIRE(running.client().Get("/v1/models/other")->status == 404);
}

TEST_CASE("A body whose size is not said before it comes is refused before it comes") {
  Running const running{ServerOptions{}};
  std::string const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  REQUIRE(running.say(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n").starts_with("HTTP/1.1 411"));
  REQUIRE(running.say(head + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc").starts_with("HTTP/1.1 415"));
  REQUIRE(running.say(head + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n").starts_with("HTTP/1.1 411"));
  REQUIRE(running.say(head + "\r\n").starts_with("HTTP/1.1 411"));
  REQUIRE(running.say(head + "Content-Length: -5\r\n\r\nabcde").starts_with("HTTP/1.1 400"));
  auto const [status, text] = running.post("/v1/chat/completions", hello.dump());  // and the next one is served
  REQUIRE(status == 200);
}

TEST_CASE("A body may come as curl sends it, and of any size up to the bound") {
  Running const running{ServerOptions{.body_bytes = 100'000}};
  json body = {{"prompt", "abc"}, {"max_tokens", 2}, {"stop", json::array({std::string(20'000, 'x')})}};
  auto client = running.client();
  auto const sent = client.Post("/v1/completions", body.dump(), "application/x-www-form-urlencoded");
  REQUIRE(sent);
  CAPTURE(sent->body);
  REQUIRE(sent->status == 200);
  body["stop"] = json::array({std::string(120'000, 'x')});
  auto const refused = client.Post("/v1/completions", body.dump(), "application/x-www-form-urlencoded");
  REQUIRE((!refused || refused->status == 413));
  REQUIRE(client.Post("/v1/completions", "--b\r\n\r\n--b--", "multipart/form-data; boundary=b")->status == 415);
  REQUIRE(running.post("/v1/completions", R"({"prompt":"abc","max_tokens":2})").first == 200);
}

TEST_CASE("A stream that the server's end cuts off says so, and ends as a stream does") {
  test::ScratchFolder const folder;
  HotModel models(Running::make(folder, 1));
  Server server(models, Running::free_port({}));
  std::thread thread([&] { server.run(); });
  std::string text;
  bool whole = false;
  std::thread client([&] {
    httplib::Client made("127.0.0.1", server.port());
    made.set_read_timeout(60);
    json const endless = {{"prompt", "a"}, {"max_tokens", 4000}, {"logit_bias", {{"95", -100}}}, {"stream", true}};
    httplib::Request request;
    request.method = "POST", request.path = "/v1/completions", request.body = endless.dump();
    request.set_header("Content-Type", "application/json");
    request.content_receiver = [&](char const* data, std::size_t size, std::uint64_t, std::uint64_t) {
      text.append(data, size);
      return true;
    };
    whole = static_cast<bool>(made.send(request));
  });
  while (models.get()->service().status().running == 0) std::this_thread::yield();
  server.stop();
  thread.join();
  client.join();
  CAPTURE(text);
  REQUIRE(whole);
  REQUIRE(text.find("the server ends") != std::string::npos);
}

TEST_CASE("A server that stops ends its answers; one that is stopped before it runs does not begin") {
  test::ScratchFolder const folder;
  HotModel models(Running::make(folder, 1));
  {
    Server server(models, Running::free_port({}));
    server.stop();
    server.run();
  }
  Server server(models, Running::free_port({}));
  std::thread thread([&] { server.run(); });
  std::string text;
  std::thread client([&] {
    httplib::Client made("127.0.0.1", server.port());
    made.set_read_timeout(60);
    json const endless = {{"prompt", "a"}, {"max_tokens", 250}, {"logit_bias", {{"95", -100}}}};
    for (int i = 0; i < 1000; ++i)
      if (auto const answer = made.Post("/v1/completions", endless.dump(), "application/json")) text = answer->body;
      else break;
  });
  while (models.get()->service().status().running == 0) std::this_thread::yield();
  server.stop();
  thread.join();
  client.join();
  for (int i = 0; i < 200 && models.get()->service().status().running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(models.get()->service().status().running == 0);
}

TEST_CASE("Values of another type than they must be are the client's mistake") {
  Running const running{ServerOptions{}};
  auto const with = [](json const& more) {
    json body = hello;
    body.update(more);
    return body.dump();
  };
  for (std::string const& body :
       {with({{"messages", {{{"role", "user"}, {"content", {{{"type", 1}, {"text", "a"}}}}}}}}),
        with({{"stream_options", {{"include_usage", "yes"}}}}), with({{"response_format", {{"type", 7}}}}),
        with({{"response_format", {{"type", "json_schema"}, {"json_schema", 3}}}})}) {
    auto const [status, text] = running.post("/v1/chat/completions", body);
    CAPTURE(body, text);
    REQUIRE(status == 400);
    REQUIRE(text.find("json.exception") == std::string::npos);
  }
}

TEST_CASE("Chat, completions, embeddings and models answer as the OpenAI interface does") {
  Running const running{ServerOptions{}};
  auto client = running.client();
  auto const models = client.Get("/v1/models");
  REQUIRE(models);
  REQUIRE(json::parse(models->body).at("data").at(0).at("id") == "tiny");

  auto const [status, body] = running.post("/v1/chat/completions", hello.dump());
  REQUIRE(status == 200);
  json const chat = json::parse(body);
  REQUIRE(chat.at("object") == "chat.completion");
  REQUIRE(chat.at("choices").at(0).at("message").at("role") == "assistant");
  std::string const text = chat.at("choices").at(0).at("message").at("content");
  REQUIRE(chat.at("choices").at(0).at("finish_reason") ==
          (chat.at("usage").at("completion_tokens") == 8 ? "length" : "stop"));

  // The same seed gives the same text, as a stream too.
  json streaming = hello;
  streaming["stream"] = true;
  streaming["stream_options"] = {{"include_usage", true}};
  auto const [streamed, events] = running.post("/v1/chat/completions", streaming.dump());
  REQUIRE(streamed == 200);
  std::string joined;
  bool done = false, counted = false;
  for (std::size_t at = 0; at < events.size();) {
    std::size_t const end = events.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    std::string const event = events.substr(at, end - at);
    at = end + 2;
    REQUIRE(event.substr(0, 6) == "data: ");
    if (event == "data: [DONE]") {
      done = true;
      continue;
    }
    json const document = json::parse(event.substr(6));
    if (document.contains("usage"))
      counted = document.at("usage").at("completion_tokens") == chat.at("usage").at("completion_tokens");
    if (!document.at("choices").empty() && document.at("choices").at(0).at("delta").contains("content"))
      joined += document.at("choices").at(0).at("delta").at("content").get<std::string>();
  }
  REQUIRE(done);
  REQUIRE(counted);
  REQUIRE(joined == text);

  auto const [completed, completion] =
      running.post("/v1/completions", R"({"prompt":"xyz","max_tokens":5,"temperature":0})");
  REQUIRE(completed == 200);
  REQUIRE(json::parse(completion).at("usage").at("prompt_tokens") == 3);
  auto const [embedded, embedding] = running.post("/v1/embeddings", R"({"input":["abc","xyz"]})");
  REQUIRE(embedded == 200);
  REQUIRE(json::parse(embedding).at("data").at(1).at("embedding").size() == 256);
  auto const page = client.Get("/");
  REQUIRE(page->body.find("<title>tutti</title>") != std::string::npos);
  auto const counts = client.Get("/status");
  REQUIRE(json::parse(counts->body).at("finished") == 5);
}

TEST_CASE("Log-probabilities come with an answer where they are asked for") {
  Running const running{ServerOptions{}};
  json ask = hello;
  ask["temperature"] = 0;
  ask["logprobs"] = true;
  ask["top_logprobs"] = 3;
  auto const [status, body] = running.post("/v1/chat/completions", ask.dump());
  CAPTURE(body);
  REQUIRE(status == 200);
  json const choice = json::parse(body).at("choices").at(0);
  json const content = choice.at("logprobs").at("content");
  REQUIRE(content.size() == json::parse(body).at("usage").at("completion_tokens"));
  REQUIRE(!content.empty());
  for (json const& token : content) {
    REQUIRE(token.at("top_logprobs").size() == 3);
    REQUIRE(token.at("logprob") == token.at("top_logprobs").at(0).at("logprob"));  // a greedy answer
    REQUIRE(token.at("logprob").get<double>() < 0);
    REQUIRE(token.at("top_logprobs").at(1).at("logprob") <= token.at("logprob"));
    REQUIRE(token.at("bytes").is_array());
  }

  auto const [completed, lists] =
      running.post("/v1/completions", R"({"prompt":"xyz","max_tokens":5,"temperature":0,"logprobs":2})");
  CAPTURE(lists);
  REQUIRE(completed == 200);
  json const of_completion = json::parse(lists).at("choices").at(0).at("logprobs");
  std::size_t const tokens = json::parse(lists).at("usage").at("completion_tokens");
  for (char const* const list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    REQUIRE(of_completion.at(list).size() == tokens);
  REQUIRE(of_completion.at("text_offset").at(0) == 0);

  auto const [plain, without] = running.post("/v1/chat/completions", hello.dump());
  REQUIRE(plain == 200);
  REQUIRE(json::parse(without).at("choices").at(0).at("logprobs").is_null());
  json wrong = hello;
  wrong["top_logprobs"] = 3;
  REQUIRE(running.message("/v1/chat/completions", wrong.dump(), 400).find("needs 'logprobs'") != std::string::npos);
  ask["stream"] = true;
  REQUIRE(running.message("/v1/chat/completions", ask.dump(), 400).find("'stream'") != std::string::npos);
  ask["stream"] = false;
  ask["top_logprobs"] = 21;
  REQUIRE(running.message("/v1/chat/completions", ask.dump(), 400).find("between 0 and 20") != std::string::npos);
}

TEST_CASE("A request with a seed reads its prompt anew, unless it wants the cache") {
  Running const running{ServerOptions{}};
  auto const cached = [&](json const& more) {
    json body = {{"prompt", "abcdefgh"}, {"max_tokens", 2}};
    body.update(more);
    auto const [status, text] = running.post("/v1/completions", body.dump());
    REQUIRE(status == 200);
    return json::parse(text).at("usage").at("prompt_tokens_details").at("cached_tokens").get<int>();
  };
  static_cast<void>(cached(json::object()));
  CHECK(cached(json::object()) > 0);
  CHECK(cached({{"seed", 1}}) == 0);
  CHECK(cached({{"seed", 1}, {"cache_prompt", true}}) > 0);
  CHECK(cached({{"cache_prompt", false}}) == 0);
}

TEST_CASE("Without a key pages of other sites, and names of other machines that lead here, are refused") {
  auto const ask = [](Running const& running, httplib::Headers headers) {
    headers.emplace("Authorization", "Bearer secret");
    return running.post("/v1/chat/completions", hello.dump(), headers).first;
  };
  Running const running{ServerOptions{}};
  std::string const port = std::to_string(running.server.port());
  for (std::string const host : {"127.0.0.1", "localhost", "[::1]"}) {
    CHECK(ask(running, {{"Host", host + ":" + port}}) == 200);
    CHECK(ask(running, {{"Host", host + ":" + port}, {"Origin", "http://" + host + ":" + port}}) == 200);
  }
  CHECK(ask(running, {{"Host", "evil.example:" + port}}) == 403);
  CHECK(ask(running, {{"Host", "localhost.evil.example"}}) == 403);
  CHECK(ask(running, {{"Host", "127.0.0.1:" + port}, {"Origin", "http://evil.example"}}) == 403);
  CHECK(ask(running, {{"Host", "127.0.0.1:" + port}, {"Origin", "null"}}) == 403);
  Running const keyed{ServerOptions{.api_key = "secret"}};
  CHECK(ask(keyed, {{"Host", "behind.a.proxy"}, {"Origin", "http://a.page"}}) == 200);
}

TEST_CASE("A schema holds for the answer") {
  Running const running{ServerOptions{}};
  json request = hello;
  request["max_tokens"] = 60;
  request["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "n"}, {"schema", {{"enum", {"ab", "cd"}}}}}}};
  auto const [status, body] = running.post("/v1/chat/completions", request.dump());
  CAPTURE(body);
  REQUIRE(status == 200);
  std::string const text = json::parse(body).at("choices").at(0).at("message").at("content");
  REQUIRE((text == "\"ab\"" || text == "\"cd\""));
}

TEST_CASE("Members of a schema come in the order in which a request names them, and a key with null is none") {
  Running const running{ServerOptions{}};
  auto const [status, body] = running.post(
      "/v1/chat/completions",
      R"({"model": "tiny", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 80, "seed": 1,
          "functions": null, "response_format": {"type": "json_schema", "json_schema": {"schema":
            {"type": "object", "properties":
            {"z": {"enum": [1]}, "b": {"enum": [2]}, "a": {"enum": [3]}}, "required": ["a", "b", "z"]}}}})");
  CAPTURE(body);
  REQUIRE(status == 200);
  std::string const text = json::parse(body).at("choices").at(0).at("message").at("content");
  REQUIRE(text.find("\"z\"") < text.find("\"b\""));
  REQUIRE(text.find("\"b\"") < text.find("\"a\""));
}

TEST_CASE("What a request gets wrong is named") {
  Running const running{ServerOptions{.body_bytes = 10000, .limits = {.max_tokens = 100}}};
  auto const refused = [&](char const* key, json const& value, std::string const& part) {
    json request = hello;
    request[key] = value;
    std::string const message = running.message("/v1/chat/completions", request.dump(), 400);
    CAPTURE(key, message);
    REQUIRE(test::contains(message, part));
  };
  refused("temperature", 3, "between 0.0 and 2.0");
  refused("temperature", "hot", "number");
  refused("max_tokens", 101, "between 0 and 100");
  refused("max_tokens", 1.5, "whole number");
  refused("n", 2, "'n'");
  refused("tools", json::array(), "'tools' is not supported. Leave it out");
  refused("tempurature", 1, "'tempurature' is not supported. Did you mean 'temperature'?");
  refused("stop", 7, "'stop'");
  refused("stop_meaning", {1}, "at most 16 strings");
  refused("stop_meaning", "", "without tokens");
  refused("stop_meaning_threshold", 2, "between -1.0 and 1.0");
  refused("logit_bias", {{"500", 1}}, "logit_bias");
  refused("messages", json::array(), "messages");
  refused("messages", {{{"role", "user"}}}, "content");
  refused("messages", {{{"role", "wizard"}, {"content", "x"}}}, "wizard");
  refused("messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}, "texts alone");
  refused("messages", {{{"role", "user"}, {"content", std::string(400, 'a')}}}, "context 256");
  refused("grammar", "root ::= (", "");
  refused("response_format", {{"type", "yaml"}}, "response_format");
  REQUIRE(test::contains(running.message("/v1/chat/completions", "{", 400), "damaged"));
  REQUIRE(test::contains(running.message("/v1/chat/completions", "[]", 400), "object"));
  REQUIRE(test::contains(running.message("/v1/chat/completions", std::string(2000, '['), 400), "64 levels"));
  REQUIRE(test::contains(running.message("/v1/completions", "{}", 400), "'prompt' is missing"));
  REQUIRE(test::contains(running.message("/v1/embeddings", R"({"input":[]})", 400), "'input'"));
  REQUIRE(test::contains(running.message("/v1/none", "{}", 404), "not served"));
  REQUIRE(running.message("/v1/models", "{}", 405) == "/v1/models is asked by GET, not by POST");
  json const error = json::parse(running.post("/v1/completions", R"({"prompt":"a","n":2})").second)["error"];
  REQUIRE(error["param"] == "n");
  REQUIRE(error["type"] == "invalid_request_error");
  REQUIRE(json::parse(running.post("/v1/completions", "{").second)["error"]["param"].is_null());
  for (char const* const prompt : {R"([])", R"(["a","b"])", R"([1,-1])", R"([1,"a"])", R"({})", R"([[99999]])"})
    REQUIRE(test::contains(running.message("/v1/completions", std::string(R"({"prompt":)") + prompt + "}", 400),
                           "'prompt'"));
  auto const text_of = [&](std::string const& prompt) {
    auto const [status, body] =
        running.post("/v1/completions", R"({"prompt":)" + prompt + R"(,"max_tokens":5,"temperature":0})");
    REQUIRE(status == 200);
    return json::parse(body)["choices"][0]["text"].get<std::string>();
  };
  REQUIRE(text_of(R"("ab")") == text_of(R"(["ab"])"));
  REQUIRE(text_of("[65,66]") == text_of("[[65,66]]"));
  REQUIRE(test::contains(running.message("/v1/completions", std::string(20000, ' '), 413), "too large"));
  // And it still answers.
  REQUIRE(running.post("/v1/chat/completions", hello.dump()).first == 200);
}

TEST_CASE("With a key nobody gets in without it, and beyond this machine there must be one") {
  Running const running{ServerOptions{.api_key = "secret"}};
  REQUIRE(running.post("/v1/chat/completions", hello.dump()).first == 401);
  REQUIRE(running.post("/v1/chat/completions", hello.dump(), {{"Authorization", "Bearer secre"}}).first == 401);
  REQUIRE(running.post("/v1/chat/completions", hello.dump(), {{"Authorization", "Bearer secret"}}).first == 200);
  HotModel models(running.models.get());
  REQUIRE_ERROR(Server(models, ServerOptions{.host = "0.0.0.0"}), ErrorKind::configuration, "API key");
  REQUIRE_ERROR(Server(models, ServerOptions{.port = running.server.port()}), ErrorKind::io, "port");
}

TEST_CASE("Connections at the same time each get their own answer; one that goes away ends its answer") {
  Running const running{ServerOptions{}};
  std::vector<std::thread> clients;
  std::vector<std::string> alone(6), together(6);
  auto const body = [](std::size_t i) {
    return json{{"prompt", std::string(i + 2, static_cast<char>('a' + i))}, {"max_tokens", 10}, {"temperature", 0}}
        .dump();
  };
  for (std::size_t i = 0; i < 6; ++i)
    alone[i] = json::parse(running.post("/v1/completions", body(i)).second).at("choices").at(0).at("text");
  for (std::size_t i = 0; i < 6; ++i)
    clients.emplace_back([&, i] {
      together[i] = json::parse(running.post("/v1/completions", body(i)).second).at("choices").at(0).at("text");
    });
  for (std::thread& client : clients) client.join();
  REQUIRE(alone == together);

  auto client = running.client();
  std::size_t seen = 0;
  json const endless = {{"prompt", "a"}, {"max_tokens", 240}, {"stream", true}, {"logit_bias", {{"95", -100}}}};
  client.Post("/v1/completions", {}, endless.dump(), "application/json");  // warm: it can end by itself
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.set_header("Content-Type", "application/json");
  request.body = endless.dump();
  request.content_receiver = [&](char const*, std::size_t size, std::uint64_t, std::uint64_t) {
    seen += size;
    return seen < 200;
  };
  auto const result = client.send(request);
  REQUIRE(!result);
  for (int i = 0; i < 200 && running.models.get()->service().status().running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(running.models.get()->service().status().running == 0);
}

TEST_CASE("Answers and embeddings that nobody waits for any more give their place to others") {
  Running const running{ServerOptions{}};
  Service& service = running.models.get()->service();
  std::atomic<bool> go_on{false};
  std::vector<std::shared_ptr<Generation>> busy;  // both slots: what comes over the network waits
  for (int i = 0; i < 2; ++i) {
    Request request;
    request.prompt = {1, 2, 3};
    request.stop.max_tokens = 20;
    request.ready = [&] { return go_on.load(); };
    busy.push_back(service.submit(std::move(request)));
  }
  auto const waiting = [&](std::size_t wanted) {
    for (int i = 0; i < 500 && service.status().waiting != wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return service.status().waiting == wanted;
  };
  for (auto const& [path, body] : {std::pair(std::string("completions"), json{{"prompt", "abc"}, {"max_tokens", 8}}),
                                   {"chat/completions", hello},
                                   {"embeddings", json{{"input", {"abc", "def"}}}}}) {
    CAPTURE(path);
    std::string const text = body.dump();
    int const socket = running.ask("POST /v1/" + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                                   std::to_string(text.size()) + "\r\n\r\n" + text);
    REQUIRE(waiting(path == "embeddings" ? 2 : 1));
    ::close(socket);
    REQUIRE(waiting(0));
  }
  go_on = true;
  for (auto const& one : busy) REQUIRE(!one->wait().tokens.empty());
  REQUIRE(running.post("/v1/chat/completions", hello.dump()).first == 200);
}

TEST_CASE("Another model takes over while the server runs; its counts are read as JSON and by Prometheus") {
  Running running{ServerOptions{}};
  auto const ask = [&] {
    auto const [status, text] = running.post("/v1/chat/completions", hello.dump());
    REQUIRE(status == 200);
    return json::parse(text);
  };
  json const before = ask();
  REQUIRE(before.at("model") == "tiny");
  running.models.swap([&] { return Running::make(running.folder, 2); });
  json const after = ask();
  REQUIRE(after.at("model") == "other");
  REQUIRE(after.at("choices") != before.at("choices"));
  REQUIRE(running.client().Get("/v1/models/tiny")->status == 404);
  json const status = json::parse(running.client().Get("/status")->body);
  REQUIRE(status.at("model") == "other");
  REQUIRE(status.at("finished") == 2);  // counts go on: the old model's answer is among them
  REQUIRE(status.at("completion_tokens") == 16);
  REQUIRE(status.at("mean_first_token_seconds") > 0);
  REQUIRE(status.at("cache_capacity_tokens") == 512);
  std::string const text = running.client().Get("/metrics")->body;
  CAPTURE(text);
  REQUIRE(text.find("# TYPE tutti_completion_tokens_total counter\ntutti_completion_tokens_total 16\n") !=
          std::string::npos);
  REQUIRE(text.find("# TYPE tutti_waiting gauge\ntutti_waiting 0\n") != std::string::npos);
}

TEST_CASE("Whatever bytes come to its port, a server goes on; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  Running const running{ServerOptions{.body_bytes = 20000, .limits = {.max_tokens = 8}}};
  auto const request = [](std::string const& path, std::string const& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  json chat = hello;
  chat["max_tokens"] = 2;
  json streamed = chat;
  streamed["stream"] = true;
  streamed["stop"] = {"a", "b"};
  streamed["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"enum", {"ab", "cd"}}}}}}};
  test::Fuzzer fuzzer(
      150,
      {request("/v1/chat/completions", chat.dump()), request("/v1/chat/completions", streamed.dump()),
       request("/v1/completions", R"({"prompt":"xyz","max_tokens":2,"logprobs":2,"logit_bias":{"5":-3}})"),
       request("/v1/embeddings", R"({"input":["abc","xyz"]})"), "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
       "GET / HTTP/1.0\r\nRange: bytes=0-1\r\n\r\n"},
      {"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", "Content-Length: 18446744073709551615\r\n",
       "Expect: 100-continue\r\n", "Content-Encoding: gzip\r\n", "Range: bytes=0-,-1,5-2\r\n", "\r\n\r\n",
       "Content-Type: multipart/form-data; boundary=x\r\n", "\"grammar\": \"root ::= root\",",
       "\"temperature\": 1e-300,", "\"seed\": 18446744073709551615,", "\"top_k\": -1,", "\"min_p\": 1,",
       "\"mirostat\": 2,", "\"messages\": []", "HTTP/9.9", "%00", "../../"});
  int answered = 0;
  while (fuzzer.next()) {
    std::string bytes = fuzzer.damaged();
    // Half of them say the right length, so that what is inside is read.
    if (std::size_t const body = bytes.find("\r\n\r\n"), length = bytes.find("Content-Length: ");
        fuzzer.below(2) == 0 && body != std::string::npos && length < body)
      bytes.replace(length + 16, bytes.find('\r', length) - length - 16, std::to_string(bytes.size() - body - 4));
    std::string const answer = running.say(bytes);
    if (!answer.empty()) {
      INFO(bytes);
      REQUIRE(answer.substr(0, 5) == "HTTP/");
      // On a slow machine `say` shuts its side before the answer is there, which ends it.
      bool const given_up = answer.starts_with("HTTP/1.1 503") && test::contains(answer, "the server ends");
      REQUIRE((given_up || answer.find("HTTP/1.1 5") == std::string::npos));
      answered += given_up ? 0 : 1;
    }
    if (fuzzer.turn() % 50 == 0) REQUIRE(running.post("/v1/chat/completions", chat.dump()).first == 200);
  }
  REQUIRE(running.post("/v1/chat/completions", chat.dump()).first == 200);
  CHECK(answered > 50);
}
