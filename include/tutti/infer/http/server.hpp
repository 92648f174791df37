// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model behind HTTP: the OpenAI interface's chat, completions, embeddings and models, server-sent events, a page to
/// chat in.

#include <tutti/core/request_checks.hpp>
#include <tutti/infer/http/chat_page.hpp>
#include <tutti/infer/http/connection.hpp>
#include <tutti/infer/http/metrics.hpp>
#include <tutti/infer/http/text_stream.hpp>
#include <tutti/infer/openai.hpp>
#include <tutti/infer/served_model.hpp>

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::infer {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;               ///< 0: any free one
  std::string api_key{};         ///< clients must send it as a bearer token; empty: none
  std::size_t connections = 64;  ///< served at once
  std::size_t body_bytes = std::size_t{8} << 20;
  openai::Limits limits{};
};

/// Whether others than this machine can reach a server there.
inline bool beyond_this_machine(std::string_view host) noexcept {
  return host != "127.0.0.1" && host != "localhost" && host != "::1";
}

/// Serves one model, and another one from when that takes its place. Handlers run in threads of the HTTP library;
/// `stop` may be called from anywhere.
class Server {
 public:
  /// Borrows the model's place. Errors: configuration (a host beyond this machine without a key), io (the port cannot
  /// be had).
  explicit Server(HotModel& models, ServerOptions options = {}) : models_(models), options_(std::move(options)) {
    if (beyond_this_machine(options_.host) && options_.api_key.empty())
      throw Error(ErrorKind::configuration, "Server",
                  "host " + options_.host + " is reachable by others. Set an API key, or use 127.0.0.1");
    http_.new_task_queue = [count = options_.connections] { return new httplib::ThreadPool(count); };
    http_.set_payload_max_length(options_.body_bytes);
    http_.set_read_timeout(10);  // a connection that says nothing has a thread for so long
    http_.set_write_timeout(30);
    http_.set_tcp_nodelay(true);
    // Not SO_REUSEPORT, which the library sets: two servers would share a port in silence.
    http_.set_socket_options([](socket_t socket) {
      int const yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    routes();
    if (options_.port == 0) options_.port = http_.bind_to_any_port(options_.host);
    else if (!http_.bind_to_port(options_.host, options_.port)) options_.port = -1;
    if (options_.port < 0)
      throw Error(
          ErrorKind::io, "Server",
          "the port cannot be opened on " + options_.host + ". Another program may have it: choose another port");
  }
  int port() const noexcept { return options_.port; }
  /// Blocking, until `stop`, which may come first.
  void run() {
    running_ = true;
    if (!*stopping_) http_.listen_after_bind();
    running_ = false;
  }
  /// Answers on their way end with an error that says so; streams have a moment to send it.
  void stop() {
    if (stopping_->exchange(true)) return;
    for (int i = 0; i < 500 && *streams_ > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    while (running_ && !http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (http_.is_running()) http_.stop();
  }

 private:
  using HttpRequest = httplib::Request;
  using Response = httplib::Response;
  /// Nobody waits for the answer any more. To be asked until the handler returns.
  using Gone = std::function<bool()>;

  static void refuse(Response& response, int status, std::string const& message) {
    char const* const type = status == 401   ? "authentication_error"
                             : status == 429 ? "rate_limit_error"
                             : status < 500  ? "invalid_request_error"
                                             : "server_error";
    response.status = status;
    response.set_content(openai::error_document(message, type), "application/json");
  }
  /// By which a path is served; null: it is not.
  char const* method_of(std::string_view path) const {
    for (auto const& [served, method] : methods_)
      if (path == served) return method;
    return nullptr;
  }
  template <class F>
  void get(char const* path, F f) {
    methods_.emplace_back(path, "GET");
    http_.Get(path, std::move(f));
  }
  /// Calls f and turns what it throws into an answer.
  template <class F>
  static void guarded(Response& response, F&& f) {
    try {
      f();
    } catch (Error const& error) {
      ErrorKind const kind = error.kind();
      bool const clients = kind == ErrorKind::invalid_argument || kind == ErrorKind::configuration ||
                           kind == ErrorKind::format || kind == ErrorKind::out_of_range;
      refuse(response, kind == ErrorKind::busy ? 429 : clients ? 400 : 503, std::string(error.message()));
    } catch (nlohmann::json::exception const& error) {
      refuse(response, 400, std::string("a value of the body is of another type than it must be: ") + error.what());
    } catch (std::exception const& error) {
      refuse(response, 500, error.what());
    }
  }

  /// Of such bodies the library learns the size when it has all of it; one of unknown size it waits for.
  static bool refuses_body(HttpRequest const& request, Response& response) {
    bool const coded = request.has_header("Content-Encoding");
    if (coded || request.has_header("Transfer-Encoding")) {
      refuse(response, coded ? 415 : 411,
             "bodies are taken plain, with their Content-Length. Leave Content-Encoding and Transfer-Encoding out");
      return true;
    }
    std::string const length = request.get_header_value("Content-Length");
    bool const counts = length.size() <= 18 && length.find_first_not_of("0123456789") == length.npos;
    if (counts && (!length.empty() || request.method != "POST")) return false;
    refuse(response, counts ? 411 : 400,
           counts ? "a body needs its Content-Length" : "the Content-Length is no number");
    response.set_header("Connection", "close");  // what may follow is no request
    return true;
  }

  /// Asked by another name than this machine's, as where a site's name leads here, or by the page of another site.
  bool is_of_another_site(HttpRequest const& request) const {
    std::string const host = request.get_header_value("Host"), origin = request.get_header_value("Origin");
    return (!host.empty() && !names_this_machine(host)) || (!origin.empty() && origin != "http://" + host);
  }

  void routes() {
    // Before the client, who asked, sends its body.
    http_.set_expect_100_continue_handler([](HttpRequest const& request, Response& response) {
      return refuses_body(request, response) ? response.status : 100;
    });
    http_.set_pre_routing_handler([this](HttpRequest const& request, Response& response) {
      using Handled = httplib::Server::HandlerResponse;
      if (refuses_body(request, response)) return Handled::Handled;
      if (*stopping_) return refuse(response, 503, ending), Handled::Handled;
      if (options_.api_key.empty() && is_of_another_site(request)) {
        refuse(response, 403, "without an API key this machine alone is served, not the page of another site");
        return Handled::Handled;
      }
      bool const open = options_.api_key.empty() || request.path == "/health" || request.path == "/";
      std::string const given = request.get_header_value("Authorization");
      if (open ||
          (given.starts_with("Bearer ") && same_secret(std::string_view(given).substr(7), options_.api_key)))
        return Handled::Unhandled;
      refuse(response, 401, "the API key is missing or wrong. Send it as 'Authorization: Bearer KEY'");
      return Handled::Handled;
    });
    http_.set_error_handler([this](HttpRequest const& request, Response& response) {
      if (!response.body.empty()) return;
      if (char const* const method = method_of(request.path); response.status == 404 && method != nullptr) {
        response.set_header("Allow", method);
        return refuse(response, 405, request.path + " is asked by " + method + ", not by " + request.method);
      }
      refuse(response, response.status,
             response.status == 404   ? request.method + " " + request.path.substr(0, 100) + " is not served here"
             : response.status == 413 ? "the body is too large"
                                      : "the request cannot be served");
    });
    get("/", [](HttpRequest const&, Response& response) {
      response.set_content(chat_page, sizeof chat_page - 1, "text/html; charset=utf-8");
    });
    get("/health", [](HttpRequest const&, Response& response) {
      response.set_content("{\"status\":\"ok\"}", "application/json");
    });
    get("/status", [this](HttpRequest const&, Response& response) {
      ServiceStatus const status = models_.status();
      nlohmann::json document = {{"model", models_.get()->name()},
                                 {"tokens_per_second", status.tokens_per_second()},
                                 {"mean_first_token_seconds", status.mean_first_token_seconds()}};
      for_each_metric(status, [&](char const* name, std::string const&, double value, char const*) {
        bool const seconds = std::string_view(name).ends_with("seconds");
        document[name] = seconds ? nlohmann::json(value) : nlohmann::json(static_cast<std::int64_t>(value));
      });
      response.set_content(openai::Writer::dump(document), "application/json");
    });
    get("/metrics", [this](HttpRequest const&, Response& response) {
      response.set_content(prometheus_text(models_.status()), "text/plain; version=0.0.4");
    });
    get("/v1/models", [this](HttpRequest const&, Response& response) {
      response.set_content(
          openai::Writer::dump({{"object", "list"}, {"data", nlohmann::json::array({describe(*models_.get())})}}),
          "application/json");
    });
    get("/v1/models/(.+)", [this](HttpRequest const& request, Response& response) {
      auto const model = models_.get();
      if (request.matches[1] == model->name())
        response.set_content(openai::Writer::dump(describe(*model)), "application/json");
      else refuse(response, 404, "there is no model of this name. /v1/models lists the one that is served");
    });
    post("/v1/chat/completions", [this](std::string const& body, Gone gone, Response& response) {
      auto const model = models_.get();
      answer(model, openai::read_chat(body, model->tokenizer(), model->chat(), options_.limits), true, std::move(gone),
             response);
    });
    post("/v1/completions", [this](std::string const& body, Gone gone, Response& response) {
      auto const model = models_.get();
      answer(model, openai::read_completion(body, model->tokenizer(), options_.limits), false, std::move(gone),
             response);
    });
    post("/v1/embeddings",
         [this](std::string const& body, Gone gone, Response& response) { embed(body, std::move(gone), response); });
  }
  /// f(body, gone, response). The body is read here: of a form, which `curl -d` says it sends, the library takes 8 KiB
  /// alone.
  template <class F>
  void post(char const* path, F f) {
    methods_.emplace_back(path, "POST");
    http_.Post(path, [this, f](HttpRequest const& request, Response& response, httplib::ContentReader const& read) {
      if (request.is_multipart_form_data())
        return refuse(response, 415, "the body must be a JSON document, not a form");
      std::string body;
      bool const whole = read([&](char const* data, std::size_t size) {
        body.append(data, size);
        return true;
      });
      if (!whole) return;
      Gone gone = [stopping = stopping_, socket = connection_of(request)] { return *stopping || is_closed(socket); };
      guarded(response, [&] { f(body, std::move(gone), response); });
    });
  }

  std::string next_id(char const* kind) { return kind + std::to_string(++ids_); }

  static nlohmann::json describe(ServedModel& model) {
    return {{"id", model.name()},
            {"object", "model"},
            {"created", 0},
            {"owned_by", "local"},
            {"context_length", model.service().capacity()}};
  }

  /// One after the other, a few at a time: a list longer than the queue waits for itself.
  static std::vector<std::shared_ptr<Generation>> embedded(Service& service, std::vector<Request> requests,
                                                           Gone const& gone) {
    constexpr std::size_t at_once = 8;
    std::vector<std::shared_ptr<Generation>> all;
    std::size_t done = 0;
    try {
      for (Request& request : requests) {
        request.abandoned = gone;
        if (all.size() - done == at_once) all[done++]->wait();
        for (;;) try {
            all.push_back(service.submit(Request(request)));
            break;
          } catch (Error const& error) {
            if (error.kind() != ErrorKind::busy || done == all.size()) throw;
            all[done++]->wait();
          }
      }
      for (; done < all.size(); ++done) all[done]->wait();
      if (gone()) throw Error(ErrorKind::unavailable, "Server", "nobody waits for it, or the server ends");
    } catch (...) {
      for (auto const& generation : all) generation->cancel();
      throw;
    }
    return all;
  }

  /// What stop meanings mean: the hidden states of their texts.
  static void read_meanings(ServedModel& model, openai::Call& call, Gone const& gone) {
    std::vector<Request> requests;
    for (std::string const& text : call.meanings) {
      Request request;
      request.prompt = model.tokenizer().encode(text);
      request.embed = true;
      if (request.prompt.empty())
        throw Error(ErrorKind::invalid_argument, "openai", "'stop_meaning' has a text without tokens");
      requests.push_back(std::move(request));
    }
    for (auto const& one : embedded(model.service(), std::move(requests), gone))
      call.request.stop.meanings.push_back(one->wait().embedding);
  }

  void answer(std::shared_ptr<ServedModel> const& model, openai::Call call, bool chat, Gone gone, Response& response) {
    read_meanings(*model, call, gone);
    if (call.stream) call.request.abandoned = [stopping = stopping_] { return stopping->load(); };
    else call.request.abandoned = std::move(gone);
    openai::Writer const writer(next_id(chat ? "chatcmpl-" : "cmpl-"), model->name(), model->tokenizer(), chat);
    if (!call.stream) {
      bool const likely = call.request.likeliest.has_value();
      auto const generation = model->service().submit(std::move(call.request));
      Completion const& result = generation->wait();
      if (result.reason == StopReason::cancelled) return refuse(response, 503, ending);
      response.set_content(writer.whole(result, likely), "application/json");
      return;
    }
    auto const texts = std::make_shared<detail::TextStream>();
    call.request.on_text = [texts](std::string_view text) { texts->push(text); };
    ++*streams_;  // before it is under way: `stop` waits for those that it finds
    std::shared_ptr<void> const counted(nullptr, [streams = streams_](void*) { --*streams; });
    auto const generation = model->service().submit(std::move(call.request));
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        "text/event-stream",
        [model, texts, generation, writer, usage = call.usage, first = true](std::size_t,
                                                                             httplib::DataSink& sink) mutable {
          bool const done = generation->done();  // asked first: texts that came before it are there
          if (std::string const text = texts->next(); !text.empty()) {
            std::string const event = writer.piece(text, std::exchange(first, false));
            return sink.write(event.data(), event.size());
          }
          if (!done) return sink.is_writable();
          std::string event;
          try {
            Completion const& result = generation->wait();
            event = result.reason == StopReason::cancelled
                        ? "data: " + openai::error_document(ending, "server_error") + "\n\n"
                        : writer.last(result, usage);
          } catch (std::exception const& error) {
            event = "data: " + openai::error_document(error.what(), "server_error") + "\n\n";
          }
          sink.write(event.data(), event.size());
          sink.done();
          return true;
        },
        [generation, counted](bool) { generation->cancel(); });  // gone, or finished already
  }

  void embed(std::string const& body, Gone gone, Response& response) {
    auto const model = models_.get();
    openai::Embeddings wanted = openai::read_embeddings(body, model->tokenizer(), options_.limits);
    nlohmann::json list = nlohmann::json::array();
    std::int64_t tokens = 0;
    for (auto const& generation : embedded(model->service(), std::move(wanted.requests), gone)) {
      Completion const& result = generation->wait();
      list.push_back({{"object", "embedding"},
                      {"index", list.size()},
                      {"embedding", openai::embedding_value(result.embedding, wanted.base64)}});
      tokens += result.prompt_tokens;
    }
    response.set_content(openai::Writer::dump({{"object", "list"},
                                               {"data", std::move(list)},
                                               {"model", model->name()},
                                               {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}),
                         "application/json");
  }

  static constexpr char const* ending = "the server ends. Ask another one";

  HotModel& models_;
  ServerOptions options_;
  std::atomic<std::int64_t> ids_{0};
  std::vector<std::pair<std::string_view, char const*>> methods_;  // of the paths that are served
  std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> streams_ = std::make_shared<std::atomic<int>>(0);  // that are being sent
  std::atomic<bool> running_{false};
  httplib::Server http_;
};

}  // namespace tutti::infer
