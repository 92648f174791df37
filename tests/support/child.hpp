// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Processes of their own for what a process can do once: start MPI, live in an environment.

#include <tutti/core/error.hpp>

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace tutti::test {

using Variables = std::initializer_list<std::pair<char const*, char const*>>;

enum class Errors { pass, capture };

/// What f returned as text, or "error: " and the message; with "status N" at the end when the child did not leave with
/// 0, and what it wrote to its error stream in front when that is captured. Variables are set in the child alone.
template <class F>
std::string in_child(Variables variables, F&& f, Errors errors = Errors::pass) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  pid_t const child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    if (errors == Errors::capture) ::dup2(ends[1], STDERR_FILENO);
    for (auto const& [name, value] : variables) ::setenv(name, value, 1);
    std::string text;
    try {
      text = f();
    } catch (std::exception const& error) {
      text = std::string("error: ") + error.what();
    }
    ssize_t const written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof(part))) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return text + "no child";
  if (status != 0) text += "status " + std::to_string(status);
  return text;
}

}  // namespace tutti::test
