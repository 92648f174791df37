// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One sentence for one mistake that every rank finds.

#include <tutti/comm/launch.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <exception>
#include <string>

namespace tutti::train {

/// Calls f on every rank. When it throws on some, the lowest of them says why on the error stream, and all return
/// false: one sentence for one mistake. f must not communicate. Ranks: all. Blocking.
template <class F>
bool all_succeed(comm::Port& port, F&& f) {
  std::string what;
  double first = port.size();  // the lowest rank that failed
  try {
    f();
  } catch (std::exception const& error) {
    what = error.what();
    first = port.rank();
  }
  parallel::all_reduce(port, {&first, 1}, comm::PortOp::min);
  if (first == port.rank()) comm::report(port.size() == 1 ? -1 : port.rank(), what.c_str());
  return first == port.size();
}

}  // namespace tutti::train
