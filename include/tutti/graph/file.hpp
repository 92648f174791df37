// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Graphs as bytes: to keep a program, to send it to another machine, to name it.
///
/// Layout, little-endian; u8, u32, i64, f64; a list is its u32 length, then its elements:
///   "TUTTIGRF", u32 version, graph
///   graph    strings (each a list of bytes), bodies (graphs), nodes, then the lists inputs, scalars (u32 ids),
///            parameters (u32 id, u8 kind and f64 deviation of Init, u8 stacked), states (u32 id, Init), outputs (u32
///            string, u32 id), updates (u32 target, u32 value)
///   node     u32 operation (the string of its name), u32 name, u32 file (strings, counted from 1; 0: none), u32 line,
///            u32 body (from 1), lists of u32 operands, i64 integers, f64 reals, and types (u32 dtype as a string, u8
///            replication, list of i64 extents)
/// Operations and dtypes stand by name, so that later versions may have more.

#include <tutti/core/hash.hpp>
#include <tutti/graph/canonical.hpp>
#include <tutti/graph/file_reader.hpp>
#include <tutti/graph/file_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::graph {

/// The graph in canonical form. Equal graphs give equal bytes, whatever the order of their construction; what `read`
/// gives back gives the same bytes again. `sources`: with the user's files and lines, for messages.
/// Errors  unavailable, for an operation from outside of the library.
inline std::vector<std::byte> write(Graph const& graph, bool sources = true) {
  detail::FileWriter writer;
  writer.header();
  writer.graph(canonical(graph, sources));
  return std::move(writer.bytes);
}

/// The graph of bytes that anybody may have written: after this it can be printed, differentiated, compiled and run.
/// How much memory that takes is for the caller to look at (Program::plan).
/// Errors  format, naming the node; an operation that a later version knows is one.
inline Graph read(std::span<std::byte const> bytes) {
  try {
    return detail::FileReader(bytes).read();
  } catch (Error const& error) {
    if (error.kind() == ErrorKind::format && error.operation() == std::string_view("graph::read")) throw;
    throw Error(ErrorKind::format, "graph::read", error.message());
  }
}

/// The name of a program: a hash of its operations and operands, without the user's files and lines. Not for
/// adversaries.
inline std::uint64_t program_hash(Graph const& graph) { return hash_bytes(write(graph, false)); }

}  // namespace tutti::graph
