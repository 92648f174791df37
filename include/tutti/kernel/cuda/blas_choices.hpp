// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The algorithms that a `Blas` has chosen, as text: another process that reads it computes the same bits, although
/// algorithms were chosen by their time.

#include <tutti/core/error.hpp>
#include <tutti/kernel/cuda/blas.hpp>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::kernel::cuda {

namespace detail {

/// What choices hold for: lines that a text of them begins with.
inline std::string choices_head(Blas const& blas) {
  cudaDeviceProp properties{};
  tutti::cuda::check(cudaGetDeviceProperties(&properties, blas.context().device()), "cudaGetDeviceProperties");
  return "tutti products 1\ncublasLt " + std::to_string(cublasLtGetVersion()) + "\ndevice " + properties.name + "\n";
}
/// f(field) for everything that `BlasProblem` compares, in an order that the format fixes.
template <class Problem, class F>
void for_each_field(Problem& p, F&& f) {
  f(p.m), f(p.n), f(p.k), f(p.a_stride), f(p.b_stride), f(p.c_stride), f(p.d_stride), f(p.saved_stride), f(p.batch);
  f(p.a_batch), f(p.b_batch), f(p.c_batch), f(p.d_batch), f(p.type), f(p.result), f(p.a_transposed);
  f(p.b_transposed), f(p.reads_c), f(p.epilogue);
  for (auto& alignment : p.alignment) f(alignment);
}

}  // namespace detail

/// All choices made so far: a line each, behind lines that say of which library and device they are.
inline std::string choices_to_text(Blas const& blas) {
  std::ostringstream out;
  out << detail::choices_head(blas);
  blas.for_each_choice([&](BlasProblem const& problem, BlasChoice const& choice) {
    detail::for_each_field(problem, [&](auto const& field) { out << static_cast<std::int64_t>(field) << ' '; });
    out << choice.workspace << std::hex;
    for (std::uint64_t const word : choice.algorithm.data) out << ' ' << word;
    out << std::dec << '\n';
  });
  return out.str();
}

/// Products that `blas` meets from now on take these choices. False, and nothing is taken, where they are of another
/// version of the library or another device, which compute other bits anyway.
/// Errors     format, for what is no text of choices.
inline bool choices_from_text(Blas& blas, std::string const& text) {
  std::istringstream in(text);
  std::string head, line;
  for (int index = 0; index < 3 && std::getline(in, line); ++index) head += line + "\n";
  if (!head.starts_with("tutti products 1\n"))
    throw Error(ErrorKind::format, "choices_from_text", "this is no list of choices for products. Remove the file");
  if (head != detail::choices_head(blas)) return false;
  struct Line {
    BlasProblem problem;
    BlasChoice choice;
  };
  std::vector<Line> lines;
  while (std::getline(in, line)) {
    Line read;
    std::istringstream words(line);
    detail::for_each_field(read.problem, [&](auto& field) {
      std::int64_t value = 0;
      words >> value;
      field = static_cast<std::remove_reference_t<decltype(field)>>(value);
    });
    words >> read.choice.workspace >> std::hex;
    for (std::uint64_t& word : read.choice.algorithm.data) words >> word;
    if (!words || !(words >> std::ws).eof())
      throw Error(ErrorKind::format, "choices_from_text",
                  concat("line ", lines.size() + 4,
                         " of the choices for products is damaged. Remove the file: they are "
                         "made again, and results may differ in their last bits"));
    lines.push_back(read);
  }
  for (Line const& read : lines) blas.prefer(read.problem, read.choice);
  return true;
}

}  // namespace tutti::kernel::cuda
