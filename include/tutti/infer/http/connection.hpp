// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether who asked is still there, which cpp-httplib 0.11 does not tell handlers.

#include <httplib.h>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace tutti::infer {

/// The socket of a request that a handler has at the moment, found among the process's by both ends' addresses: valid
/// until the handler returns. -1: it was not found.
inline int connection_of(httplib::Request const& request) {
  auto const is = [](auto&& name, int socket, std::string const& address, int port) {
    sockaddr_storage place{};
    socklen_t size = sizeof place;
    char host[NI_MAXHOST], service[NI_MAXSERV];
    auto* const at = reinterpret_cast<sockaddr*>(&place);
    return name(socket, at, &size) == 0 &&
           ::getnameinfo(at, size, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) == 0 &&
           address == host && std::to_string(port) == service;
  };
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error)) {
    int const socket = std::stoi(at->path().filename().string());
    if (is(::getpeername, socket, request.remote_addr, request.remote_port) &&
        is(::getsockname, socket, request.local_addr, request.local_port))
      return socket;
  }
  return -1;
}

/// Whether the other side has closed, or will send nothing more: whoever shuts its side down is taken for gone.
inline bool is_closed(int socket) noexcept {
  if (socket < 0) return false;
  pollfd one{socket, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace tutti::infer
