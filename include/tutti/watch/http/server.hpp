// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A run as a page on this machine. Who can connect (any program of this machine) may look; who also has the token,
/// which stands in the printed address behind the '#', may ask the run for something. Pages of others can do neither:
/// they cannot read what is served here, a name that leads here is refused unless it is this machine's own, and a
/// command needs a header that they cannot send.

#include <tutti/core/error.hpp>
#include <tutti/core/request_checks.hpp>
#include <tutti/train/commands.hpp>
#include <tutti/train/viewers.hpp>
#include <tutti/watch/http/page.hpp>
#include <tutti/watch/source.hpp>

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/random.h>
#include <thread>
#include <utility>

namespace tutti::watch {

namespace detail {

/// 128 bits of the system's chance, in 32 digits. Errors: unavailable.
inline std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<::ssize_t>(sizeof bytes))
    throw Error(ErrorKind::unavailable, "watch", "the system has no random numbers");
  std::string text;
  for (unsigned char const byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}
}  // namespace detail

/// Serves a source on 127.0.0.1, in threads of its own:
///   GET /         the page
///   GET /state    the picture as JSON, as picture_of reads it
///   GET /events   the same as server-sent events, whenever it has changed, at most twice a second
///   POST /command a command's text (see parse_command), with the token in the header X-Tutti-Token
class Server {
 public:
  /// Borrows the source. Port 0: any free one. Errors: io, when the port cannot be had.
  Server(Source& source, int port) : source_(source), token_(detail::random_token()) {
    http_.new_task_queue = [] { return new httplib::ThreadPool(most_streams + 8); };
    http_.set_payload_max_length(1024);
    http_.set_read_timeout(10);
    http_.set_write_timeout(10);
    http_.set_keep_alive_timeout(2);
    http_.set_tcp_nodelay(true);
    // Not SO_REUSEPORT, which the library sets: two servers would share a port in silence.
    http_.set_socket_options([](socket_t socket) {
      int const yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    routes();
    if (port == 0) port_ = http_.bind_to_any_port("127.0.0.1");
    else port_ = http_.bind_to_port("127.0.0.1", port) ? port : -1;
    if (port_ < 0)
      throw Error(ErrorKind::io, "watch",
                  "port " + std::to_string(port) + " of 127.0.0.1 cannot be had. Another program may have it: choose "
                                                   "another one, or 0 for any that is free");
    thread_ = std::thread([this] { http_.listen_after_bind(); });
  }
  Server(Server const&) = delete;
  Server& operator=(Server const&) = delete;
  /// Streams hear the end of a run before they end.
  ~Server() {
    ending_ = true;
    while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 200 && streams_ > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    http_.stop();
    thread_.join();
  }

  int port() const noexcept { return port_; }
  std::string const& token() const noexcept { return token_; }
  /// For a browser, with what allows to ask.
  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_) + "/#" + token_; }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  static constexpr std::size_t most_streams = 16;

  static void refuse(Response& response, int status, std::string const& why) {
    response.status = status;
    response.set_content(why + "\n", "text/plain; charset=utf-8");
  }
  std::string state() {
    return to_json(source_.picture()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void routes() {
    http_.set_pre_routing_handler([](Request const& request, Response& response) {
      using Handled = httplib::Server::HandlerResponse;
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_header("Referrer-Policy", "no-referrer");
      response.set_header("Cache-Control", "no-store");
      response.set_header("Cross-Origin-Resource-Policy", "same-origin");
      if (names_this_machine(request.get_header_value("Host"))) return Handled::Unhandled;
      refuse(response, 403, "this is served to 127.0.0.1 and localhost alone");
      return Handled::Handled;
    });
    http_.set_exception_handler([](Request const&, Response& response, std::exception_ptr failure) {
      try {
        std::rethrow_exception(failure);
      } catch (std::exception const& error) {
        refuse(response, 503, error.what());
      }
    });
    http_.Get("/", [](Request const&, Response& response) {
      std::string const nonce = detail::random_token();
      std::string page = dashboard_page;
      for (std::size_t at = 0; (at = page.find("\"NONCE\"", at)) != page.npos;) page.replace(at + 1, 5, nonce);
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                              "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                              "frame-ancestors 'none'");
      response.set_content(page, "text/html; charset=utf-8");
    });
    http_.Get("/state",
              [this](Request const&, Response& response) { response.set_content(state(), "application/json"); });
    http_.Get("/events", [this](Request const&, Response& response) { stream(response); });
    http_.Post("/command", [this](Request const& request, Response& response) {
      std::string const origin = request.get_header_value("Origin");
      if (!origin.empty() && origin != "http://" + request.get_header_value("Host"))
        return refuse(response, 403, "another page must not ask");
      if (!same_secret(request.get_header_value("X-Tutti-Token"), token_))
        return refuse(response, 403, "the token is missing or wrong: open the whole address that the run has printed");
      auto const command = train::parse_command(request.body);
      if (!command) return refuse(response, 400, "there are pause, continue, checkpoint, stop and drain WORKER");
      source_.ask(*command);
      response.set_content("asked\n", "text/plain");
    });
  }

  void stream(Response& response) {
    if (streams_.fetch_add(1) >= most_streams) {
      --streams_;
      return refuse(response, 503, "there are " + std::to_string(most_streams) + " pages open already");
    }
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, said = std::string(), when = std::chrono::steady_clock::time_point()](
            std::size_t, httplib::DataSink& sink) mutable {
          bool const last = ending_;  // asked first: what happened before it is seen
          auto const now = std::chrono::steady_clock::now();
          if (!last && now - when < std::chrono::milliseconds(500)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            return sink.is_writable();
          }
          when = now;
          std::string text;
          try {
            text = state();
          } catch (std::exception const&) {  // not to be seen at present: the page hears nothing, and says so
          }
          if (!text.empty() && text != said) {
            said = text;
            text = "data: " + text + "\n\n";
            if (!sink.write(text.data(), text.size())) return false;
          }
          if (last) sink.done();
          return true;
        },
        [this](bool) { --streams_; });
  }

  Source& source_;
  std::string token_;
  int port_ = -1;
  std::atomic<bool> ending_{false};
  std::atomic<std::size_t> streams_{0};
  httplib::Server http_;
  std::thread thread_;
};

/// A page of a run of this program, which says where it is.
class LivePage {
 public:
  /// Errors: io, when the port cannot be had.
  LivePage(train::WatchedRun const& run, int port) : source_(run), server_(source_, port) {
    run.registry.line("dashboard  " + server_.address());
  }

 private:
  LiveSource source_;
  Server server_;
};

}  // namespace tutti::watch
