// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a document of settings may have beside the settings: keys of other libraries, and the objects that settings may
/// stand in.

#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/document_values.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <array>
#include <string_view>

namespace tutti::wasi_nn::detail {

/// What hosts of other libraries say and what cannot be otherwise here: accepted where the value asks for nothing else,
/// and, with a note, where it says only how the same answer is computed.
struct Neutral {
  std::string_view name;
  bool (*holds)(Json const&);
  char const* why;
  bool noted = false;
};
inline bool is_off(Json const& v) {
  return v.is_null() || v == false || (v.is_number() && (v.get<double>() == 0 || v.get<double>() == -1)) ||
         io::is_text(v, "") || io::is_text(v, "none") || (v.is_array() && v.empty());
}
inline bool is_anything(Json const&) { return true; }
inline constexpr std::array<Neutral, 14> neutrals = {{
    {"path", is_anything, ""},  // the call says which model
    {"stream_stdout", is_off, "nothing is written to standard output: read pieces with compute_single"},
    {"image", is_off, "models here read text alone"},
    {"mmproj", is_off, "models here read text alone"},
    {"tts", is_off, "models here write text alone"},
    {"main_gpu", is_off, "there is one device", true},
    {"cpu_moe", is_off, "there are no models with experts", true},
    {"n_cpu_moe", is_off, "there are no models with experts", true},
    {"tensor_split", is_off, "there is one device", true},
    {"split_mode", [](Json const& v) { return is_off(v) || io::is_text(v, "layer"); }, "there is one device", true},
    {"check_tensors", is_anything, ""},  // they always are
    {"threads_batch", is_off, "the same threads serve prompts and answers: set threads", true},
    {"flash_attn",
     [](Json const& v) { return v == true || io::is_text(v, "on") || io::is_text(v, "auto") || v == 1 || v == -1; },
     "attention is always computed in tiles", true},
    {"no_kv_offload", is_anything, ""},  // caches are where the layers are
}};

struct Group {
  std::string_view name;
  unsigned bit;
};
inline constexpr std::array<Group, 9> groups = {{{"backend", group::backend},
                                                 {"model", group::model},
                                                 {"memory", group::memory},
                                                 {"memory_policy", group::memory},
                                                 {"memory_management", group::memory},
                                                 {"logging", group::logging},
                                                 {"performance", group::performance},
                                                 {"sampling", group::sampling},
                                                 {"stopping", group::stopping}}};

}  // namespace tutti::wasi_nn::detail
