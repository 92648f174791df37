// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The picture of a run whose page is served, here or behind a tunnel.

#include <tutti/core/error.hpp>
#include <tutti/watch/source.hpp>

#include <httplib.h>

#include <charconv>
#include <string>
#include <string_view>

namespace tutti::watch {

/// "HOST:PORT", "HOST:PORT#TOKEN", or an address as a run prints it.
struct PageAddress {
  std::string host, token{};
  int port = 0;
};
/// Errors: configuration.
inline PageAddress parse_address(std::string_view text) {
  std::string const whole(text);
  auto const refuse = [&](char const* what) -> PageAddress {
    throw Error(ErrorKind::configuration, "watch",
                "'" + whole + "' " + what + ". Give HOST:PORT, or the address that the run has printed");
  };
  if (text.starts_with("https://")) return refuse("is not served by a run: those speak HTTP");
  if (text.starts_with("http://")) text.remove_prefix(7);
  PageAddress made;
  if (std::size_t const hash = text.find('#'); hash != text.npos) {
    made.token = text.substr(hash + 1);
    text = text.substr(0, hash);
    if (made.token.find_first_not_of("0123456789abcdef") != std::string::npos) return refuse("has a damaged token");
  }
  if (text.ends_with('/')) text.remove_suffix(1);
  std::size_t const colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return refuse("has no host or no port");
  std::string_view const port = text.substr(colon + 1);
  made.host = text.substr(0, colon);
  auto const [end, code] = std::from_chars(port.data(), port.data() + port.size(), made.port);
  if (code != std::errc{} || end != port.data() + port.size() || made.port < 1 || made.port > 65535)
    return refuse("has no port between 1 and 65535");
  if (made.host.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") !=
      std::string::npos)
    return refuse("has no plain host");
  return made;
}

/// A run whose page answers at an address. Used by one thread.
class RemoteSource final : public Source {
 public:
  explicit RemoteSource(PageAddress address)
      : address_(std::move(address)), http_(address_.host, address_.port) {
    http_.set_connection_timeout(3);
    http_.set_read_timeout(3);
    http_.set_write_timeout(3);
    http_.set_keep_alive(true);
    http_.set_tcp_nodelay(true);
  }
  Picture picture() override {
    std::string body;
    auto const answer = http_.Get("/state", [&body](char const* data, std::size_t size) {
      body.append(data, size);
      return body.size() <= (std::size_t{8} << 20);
    });
    if (!answer) fail("does not answer", httplib::to_string(answer.error()));
    if (answer->status != 200) fail("does not show the run", body.substr(0, 200));
    auto const json = nlohmann::json::parse(body, nullptr, false);
    if (!json.is_object() || !json.contains("losses")) fail("is not the page of a run", "");
    return picture_of(json);
  }
  void ask(train::Command const& command) override {
    if (address_.token.empty())
      throw Error(
          ErrorKind::configuration, "watch",
          "to ask the run for something, watch the whole address that it has printed, with what stands behind #");
    auto const answer = http_.Post("/command", {{"X-Tutti-Token", address_.token}}, to_text(command), "text/plain");
    if (!answer) fail("does not answer", httplib::to_string(answer.error()));
    if (answer->status != 200) fail("refuses", answer->body.substr(0, 200));
  }

 private:
  [[noreturn]] void fail(char const* what, std::string const& native) const {
    throw Error(ErrorKind::communication, "watch",
                address_.host + ":" + std::to_string(address_.port) + " " + what +
                    (native.empty() ? "" : " (" + native + ")"));
  }

  PageAddress address_;
  httplib::Client http_;
};

}  // namespace tutti::watch
