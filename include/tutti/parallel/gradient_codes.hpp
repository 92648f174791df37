// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Vectors as fewer bytes, for operations of a graph: codes that are made and read chunk by chunk, and thin matrices
/// with orthonormal columns.

#include <tutti/core/bfloat16.hpp>
#include <tutti/graph/custom.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::parallel {

/// parallel/outer_gradient.hpp's int8. Values that are not finite come back as none.
struct Int8Code {
  static constexpr std::int64_t chunk = 65536;  ///< values that are coded by themselves, by one thread
  static constexpr std::string_view encode_name = "encode_int8", decode_name = "decode_int8";

  static constexpr Int8Code of(double) { return {}; }
  constexpr double setting() const { return 0; }
  constexpr std::int64_t bytes(std::int64_t count) const { return encoded_bytes(OuterBits::int8, count); }
  void encode(std::span<float const> values, std::span<std::byte> to) const {
    parallel::encode(OuterBits::int8, values, to);
  }
  /// Adds to `to`.
  void decode(std::span<std::byte const> from, std::span<float> to) const {
    std::array<float, outer_block> part{};
    auto const count = static_cast<std::int64_t>(to.size());
    for (std::int64_t b = 0; b < detail::blocks_of(count); ++b) {
      std::span<float> const block = detail::block(to, b);
      detail::decode_block(OuterBits::int8, from, count, b, std::span(part).first(block.size()));
      for (std::size_t i = 0; i < block.size(); ++i) block[i] += part[i];
    }
  }
};

/// Bytes   for each of the k values of largest magnitude, the earlier of equal ones first chosen, in rising order of
///         places: two of its place in the chunk, then two of the value as bfloat16; k = the share, rounded up
struct TopKCode {
  static constexpr std::int64_t chunk = 4096;
  static constexpr std::string_view encode_name = "encode_top_k", decode_name = "decode_top_k";
  double share = 0.01;

  static constexpr TopKCode of(double setting) { return {setting}; }
  constexpr double setting() const { return share; }
  constexpr std::int64_t kept(std::int64_t count) const {
    auto const k = static_cast<std::int64_t>(share * static_cast<double>(count));
    return std::min(count, static_cast<double>(k) < share * static_cast<double>(count) ? k + 1 : k);
  }
  constexpr std::int64_t bytes(std::int64_t count) const { return 4 * kept(count); }
  void encode(std::span<float const> values, std::span<std::byte> to) const {
    std::array<std::uint16_t, chunk> places{};
    auto const first = places.begin(), last = first + static_cast<std::ptrdiff_t>(values.size());
    auto const end = first + kept(static_cast<std::int64_t>(values.size()));
    std::iota(first, last, std::uint16_t{0});
    auto const magnitude = [&](std::uint16_t at) { return std::bit_cast<std::uint32_t>(values[at]) & 0x7fffffffu; };
    std::nth_element(first, end, last, [&](std::uint16_t a, std::uint16_t b) {
      return magnitude(a) != magnitude(b) ? magnitude(a) > magnitude(b) : a < b;
    });
    std::sort(first, end);
    std::byte* out = to.data();
    for (auto place = first; place != end; ++place, out += 4) {
      bfloat16 const value(values[*place]);
      std::memcpy(out, &*place, 2);
      std::memcpy(out + 2, &value, 2);
    }
  }
  /// Adds to `to`. Places beyond it are left out.
  void decode(std::span<std::byte const> from, std::span<float> to) const {
    for (std::size_t i = 0; i + 4 <= from.size(); i += 4) {
      std::uint16_t place = 0;
      bfloat16 value;
      std::memcpy(&place, from.data() + i, 2);
      std::memcpy(&value, from.data() + i + 2, 2);
      if (place < to.size()) to[place] += value;
    }
  }
};

namespace detail {

template <class Code>
constexpr std::int64_t code_bytes(Code const& code, std::int64_t count) {
  return count / Code::chunk * code.bytes(Code::chunk) + code.bytes(count % Code::chunk);
}
/// f(values of a chunk, its bytes) for the chunks [begin, end).
template <class Code, class T, class B, class F>
void for_chunks(Code const& code, std::int64_t begin, std::int64_t end, std::span<T> values, std::span<B> bytes,
                F&& f) {
  for (std::int64_t c = begin; c < end; ++c) {
    auto const left = static_cast<std::int64_t>(values.size()) - c * Code::chunk;
    std::int64_t const count = std::min(left, Code::chunk);
    f(values.subspan(static_cast<std::size_t>(c * Code::chunk), static_cast<std::size_t>(count)),
      bytes.subspan(static_cast<std::size_t>(c * code.bytes(Code::chunk)),
                    static_cast<std::size_t>(code.bytes(count))));
  }
}
template <class Code>
constexpr std::int64_t chunks_of(std::int64_t count) { return (count + Code::chunk - 1) / Code::chunk; }

template <class Code>
void encode_chunks(Code const& code, std::int64_t begin, std::int64_t end, std::span<float const> values,
                   std::span<std::byte> to) {
  for_chunks(code, begin, end, values, to, [&](auto part, auto bytes) { code.encode(part, bytes); });
}
/// The mean of the codes that lie one after another, summed in their order.
template <class Code>
void decode_chunks(Code const& code, std::int64_t begin, std::int64_t end, std::span<std::byte const> from,
                   std::span<float> to) {
  auto const bytes = static_cast<std::size_t>(code_bytes(code, static_cast<std::int64_t>(to.size())));
  std::size_t const codes = bytes == 0 ? 0 : from.size() / bytes;
  float const share = codes == 0 ? 0.0f : 1.0f / static_cast<float>(codes);
  for_chunks(code, begin, end, to, from.first(bytes), [&](std::span<float> part, std::span<std::byte const> first) {
    std::fill(part.begin(), part.end(), 0.0f);
    auto const at = static_cast<std::size_t>(first.data() - from.data());
    for (std::size_t rank = 0; rank < codes; ++rank) code.decode(from.subspan(rank * bytes + at, first.size()), part);
    if (codes > 1)
      for (float& value : part) value *= share;
  });
}

}  // namespace detail

/// x (n) float32; <Code::setting, n> -> uint8 (bytes).
template <class Code>
struct Encoded {
  static constexpr std::string_view name = Code::encode_name;
  static constexpr graph::Type type(graph::OperandTypes const& in) {
    if (in.dtype(0) != DType::float32 || in.shape(0).rank() != 1)
      graph::refuse(in.where, in.draft.op, "a vector of float32 is needed", in.shape(0));
    return {DType::uint8, in[0].replication,
            {detail::code_bytes(Code::of(in.draft.reals[0]), in.shape(0).size())}};
  }
  static std::vector<double> reference(graph::naive::Call const& call) {
    std::vector<float> const values(call.in(0).begin(), call.in(0).end());
    std::vector<std::byte> bytes(static_cast<std::size_t>(call.out().size()));
    detail::encode_chunks(Code::of(call.real(0)), 0, detail::chunks_of<Code>(static_cast<std::int64_t>(values.size())),
                          std::span<float const>(values), std::span(bytes));
    std::vector<double> out;
    for (std::byte const one : bytes) out.push_back(std::to_integer<int>(one));
    return out;
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    auto const values = args.in<float>(0).elements();
    auto const to = std::as_writable_bytes(args.out<std::uint8_t>().elements());
    context.parallel_for(detail::chunks_of<Code>(static_cast<std::int64_t>(values.size())), 1,
                         [&](std::int64_t begin, std::int64_t end) {
                           detail::encode_chunks(Code::of(args.reals[0]), begin, end, values, to);
                         });
  }
};

/// codes (ranks * bytes) uint8; <Code::setting, n> -> float32 (n): the mean of what they hold.
template <class Code>
struct Decoded {
  static constexpr std::string_view name = Code::decode_name;
  static constexpr graph::Type type(graph::OperandTypes const& in) {
    auto const count = static_cast<std::int64_t>(in.draft.reals[1]);
    std::int64_t const bytes = detail::code_bytes(Code::of(in.draft.reals[0]), count);
    if (in.dtype(0) != DType::uint8 || in.shape(0).rank() != 1 || (bytes > 0 && in.shape(0).size() % bytes != 0))
      graph::refuse(in.where, in.draft.op, "whole codes, as bytes, are needed", in.shape(0), Shape{bytes});
    return {DType::float32, in[0].replication, {count}};
  }
  static std::vector<double> reference(graph::naive::Call const& call) {
    std::vector<std::byte> bytes;
    for (double const one : call.in(0)) bytes.push_back(static_cast<std::byte>(static_cast<int>(one)));
    std::vector<float> out(static_cast<std::size_t>(call.out().size()));
    detail::decode_chunks(Code::of(call.real(0)), 0, detail::chunks_of<Code>(call.out().size()),
                          std::span<std::byte const>(bytes), std::span(out));
    return {out.begin(), out.end()};
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    auto const from = std::as_bytes(args.in<std::uint8_t>(0).elements());
    auto const to = args.out<float>().elements();
    context.parallel_for(detail::chunks_of<Code>(static_cast<std::int64_t>(to.size())), 1,
                         [&](std::int64_t begin, std::int64_t end) {
                           detail::decode_chunks(Code::of(args.reals[0]), begin, end, from, to);
                         });
  }
};

/// x (..., m, r): of each matrix columns that span the same space, of length 1 and at right angles; a column that the
/// ones before it span already, to within 1e-6 of its length, is zero.
/// Computes  Gram-Schmidt, twice for every column, in double
struct Orthonormal {
  static constexpr std::string_view name = "orthonormal";
  static constexpr graph::Type type(graph::OperandTypes const& in) {
    if (in.dtype(0) != DType::float32 || in.shape(0).rank() < 2)
      graph::refuse(in.where, in.draft.op, "matrices of float32 are needed", in.shape(0));
    return in[0];
  }
  static std::vector<double> reference(graph::naive::Call const& call) {
    std::vector<double> out = call.in(0);
    Shape const& shape = call.out();
    std::int64_t const m = shape[shape.rank() - 2], r = shape[shape.rank() - 1];
    for (std::int64_t at = 0; at < shape.size(); at += m * r) columns(out.data() + at, m, r);
    return out;
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    auto const x = args.in<float>(0).elements();
    auto const y = args.out<float>().elements();
    Shape const& shape = args.result.shape;
    std::int64_t const m = shape[shape.rank() - 2], r = shape[shape.rank() - 1];
    if (shape.size() == 0) return;
    context.parallel_for(shape.size() / (m * r), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t matrix = begin; matrix < end; ++matrix) {
        auto const part = [&](auto all) {
          return all.subspan(static_cast<std::size_t>(matrix * m * r), static_cast<std::size_t>(m * r));
        };
        std::vector<double> wide(part(x).begin(), part(x).end());
        columns(wide.data(), m, r);
        std::transform(wide.begin(), wide.end(), part(y).begin(), [](double v) { return static_cast<float>(v); });
      }
    });
  }

 private:
  static void columns(double* x, std::int64_t m, std::int64_t r) {
    auto const dot = [&](std::int64_t a, std::int64_t b) {
      double sum = 0;
      for (std::int64_t row = 0; row < m; ++row) sum += x[row * r + a] * x[row * r + b];
      return sum;
    };
    for (std::int64_t c = 0; c < r; ++c) {
      double const before = std::sqrt(dot(c, c));
      for (int time = 0; time < 2; ++time)
        for (std::int64_t other = 0; other < c; ++other) {
          double const along = dot(other, c);
          for (std::int64_t row = 0; row < m; ++row) x[row * r + c] -= along * x[row * r + other];
        }
      double const length = std::sqrt(dot(c, c));
      double const factor = length <= 1e-6 * before ? 0 : 1 / length;
      for (std::int64_t row = 0; row < m; ++row) x[row * r + c] *= factor;
    }
  }
};

}  // namespace tutti::parallel
