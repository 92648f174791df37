// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the interfaces hand to an instance, and in what they differ.

#include <string>
#include <string_view>

namespace tutti::wasi_nn {

/// A copy of a guest's tensor: a guest may change its own meanwhile.
struct GuestTensor {
  std::string data;
  bool is_i32 = false;
};

/// What differs between the flavours of the interface.
struct Flavour {
  std::string_view defaults;     ///< a document below all others
  bool minus_one_keeps = false;  ///< in documents of a run
  bool one_model = false;        ///< the model loaded last answers, and takes the place of the one before
  bool trusted = false;          ///< documents are the host's own: they may say where and how the log is written
};

}  // namespace tutti::wasi_nn
