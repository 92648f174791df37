// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a communicator is told when it is made.

#include <string>

namespace tutti {

struct CommunicatorOptions {
  /// Every wait ends after this time with an Error of kind timeout that names who is missing.
  double deadline_seconds = 600;
  /// After the first error of the communicator, and when the function that it was launched for throws, this rank writes
  /// its flight record to `flight_record`.rank3.json. Empty: what the environment variable TUTTI_FLIGHT_RECORD says,
  /// without which nothing is written.
  std::string flight_record = "";
  /// Whether operations are counted, at about 100 ns each, as `start_statistics` has it. Children inherit it.
  bool statistics = false;
};

}  // namespace tutti
