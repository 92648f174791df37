// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What outlives a run: parameters, optimizer moments, accumulators. Named tensors, stacked over layers, outside every
/// arena; programs update them in place. Checkpoints, broadcasts and hashes iterate over the fields.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/graph/field.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/tensor/random.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

/// Fields keep their order and their addresses. Several programs may share a State: each adds what it needs.
class State {
 public:
  State() = default;
  explicit State(Graph const& graph) { add(graph); }

  /// From now on what is added beside parameters - moments, accumulators - lies in nameless files in `folder`, of which
  /// the system keeps in memory what it has room for. Adding it throws io where the folder takes no files, or no more.
  void offload_states(std::string folder) { folder_ = std::move(folder); }
  std::int64_t offloaded_bytes() const noexcept {
    std::int64_t total = 0;
    for (Field const& field : fields_) total += field.memory.in_file() ? field.bytes() : 0;
    return total;
  }

  /// Adds the parameters and states of a graph that are not there yet; starts them by their Init, normals at zero.
  /// Errors: shape, when a field of the same name has another shape or dtype.
  void add(Graph const& graph) {
    for (Parameter const& parameter : graph.parameters) {
      Field* const field =
          add(graph.name(parameter.node), graph.dtype(parameter.node), graph.shape(parameter.node), parameter.init);
      field->parameter = true;
      field->stacked = parameter.stacked;
      field->part = graph.replication(parameter.node) == Replication::varying;
    }
    for (std::size_t i = 0; i < graph.states.size(); ++i) {
      Id const id = graph.states[i];
      Field* const field = add(graph.name(id), graph.dtype(id), graph.shape(id), graph.state_inits[i], folder_);
      if (state_update(graph, id) == StateUpdate::per_rank) field->per_rank = true;
      if (state_update(graph, id) == StateUpdate::part) field->part = true;
    }
  }
  /// In memory, or in a file in `folder`. Errors: shape, as above; io.
  Field* add(std::string_view name, DType dtype, Shape const& shape, Init const& init = {},
             std::string const& folder = {}) {
    if (Field* const present = find(name)) {
      if (present->dtype != dtype || !(present->shape == shape))
        throw Error(ErrorKind::shape, "State::add",
                    "field '" + std::string(name) + "' is " + std::string(tutti::name(present->dtype)) + " " +
                        to_string(present->shape) + ", and a program wants " + std::string(tutti::name(dtype)) + " " +
                        to_string(shape) + ". Give it another name");
      return present;
    }
    std::int64_t const bytes = std::max<std::int64_t>(shape.size() * static_cast<std::int64_t>(size_of(dtype)), 1);
    Memory memory = folder.empty() ? Memory(bytes) : Memory::in_file(bytes, folder);
    Field& field = fields_.emplace_back();
    field.name = name;
    field.dtype = dtype;
    field.shape = shape;
    field.init = init;
    field.memory = std::move(memory);
    if (init.kind == Init::Kind::ones) {
      if (dtype != DType::float32)
        throw Error(ErrorKind::dtype, "State::add", "field '" + field.name + "' starts with ones and is not float32");
      for (float& value : field.view<float>().elements()) value = 1;
    }
    return &field;
  }

  /// Adds a tensor that lies in memory of the caller's, which outlives the State, and which no program updates: weights
  /// in a mapped file.
  /// Errors: invalid_argument, when there is a field of this name.
  void refer(std::string_view name, DType dtype, Shape const& shape, void const* data,
             std::source_location where = std::source_location::current()) {
    if (find(name) != nullptr)
      throw Error(ErrorKind::invalid_argument, "State::refer", "there is a field '" + std::string(name) + "' already",
                  where);
    Field& field = fields_.emplace_back();
    field.name = name;
    field.dtype = dtype;
    field.shape = shape;
    field.outside = static_cast<std::byte*>(const_cast<void*>(data));
  }

  /// Moves the fields that `wanted(field)` names, the same on every rank, into one block of memory which the ranks of
  /// `port` have together, with rank 0's contents; none, and false, where they share no memory or too little. From then
  /// on rank 0 alone writes these fields from outside programs, and others leave them alone.
  /// Ranks     all, with states of the same fields. Blocking. Pointers into a field that moves are invalid afterwards.
  template <class F>
  bool share(Shared<comm::Port> const& port, F&& wanted,
             std::source_location where = std::source_location::current()) {
    unshare();
    std::int64_t bytes = 0;
    for (Field const& field : fields_)
      if (wanted(field)) bytes += align_up(field.bytes());
    Memory block = Memory::shared(std::max<std::int64_t>(bytes, 1), port, where);
    if (block.data() == nullptr) return false;
    std::byte* next = block.data();
    for (Field& field : fields_) {
      if (!wanted(field)) continue;
      if (port->rank() == 0) std::memcpy(next, field.data(), static_cast<std::size_t>(field.bytes()));
      field.memory = Memory();
      field.together = next;
      next += align_up(field.bytes());  // ranks write neighbouring fields at the same time
    }
    together_ = std::move(block);
    writer_ = port->rank() == 0;
    port->barrier(where);  // nobody reads before rank 0 has written
    return true;
  }
  /// Back into memory of this rank's own. No rank may write these fields meanwhile. Does not communicate.
  void unshare() {
    for (Field& field : fields_) {
      if (!field.shared()) continue;
      field.memory = Memory(std::max<std::int64_t>(field.bytes(), 1));
      std::memcpy(field.memory.data(), field.together, static_cast<std::size_t>(field.bytes()));
      field.together = nullptr;
    }
    together_ = Memory();
    writer_ = true;
  }
  /// Whether this rank is the one that writes shared fields from outside programs; true where there are none.
  bool writer() const noexcept { return writer_; }
  /// Of the fields that are shared.
  std::int64_t shared_bytes() const noexcept {
    std::int64_t total = 0;
    for (Field const& field : fields_) total += field.shared() ? field.bytes() : 0;
    return total;
  }

  /// Every field by its Init again; normals come from Philox, a stream of its own for every field, from `stream` on.
  void initialise(std::uint64_t seed, std::uint64_t stream = 0) {
    for (Field& field : fields_) {
      bool const writes = writer_ || !field.shared();
      if (writes && field.memory.data() != nullptr) field.memory.clear(0, field.bytes());
      else if (writes) std::memset(field.data(), 0, static_cast<std::size_t>(field.bytes()));
      if (writes && field.dtype == DType::float32) {
        std::span<float> const values = field.view<float>().elements();
        if (field.init.kind == Init::Kind::ones) std::fill(values.begin(), values.end(), 1.0f);
        if (field.init.kind == Init::Kind::normal)
          CounterRandom{seed, stream}.fill_normal(values, 0, static_cast<float>(field.init.deviation));
      }
      ++stream;
    }
  }
  /// f(field) decides the contents of every parameter: for initialisations that draw from one sequence in an order of
  /// their own.
  template <class F>
  void initialise_parameters(F&& f) {
    for (Field& field : fields_)
      if (field.parameter && (writer_ || !field.shared())) f(field);
  }

  /// Somebody has written the parameters: parts of them may be zeros alone.
  void mark_initialised() noexcept { initialised_ = true; }
  /// Errors: invalid_argument, where there are parameters that start with random values and all of them hold zeros
  /// alone; a single one may be meant to. `wanted(field)` says of which fields.
  template <class F>
  void require_initialised(std::string const& operation, F&& wanted, std::source_location where) const {
    if (initialised_) return;
    Field const* never = nullptr;
    for (Field const& field : fields_) {
      if (!field.parameter || field.init.kind != Init::Kind::normal || field.bytes() == 0 ||
          field.init.deviation == 0 || !wanted(field))
        continue;
      std::span const bytes(static_cast<unsigned char const*>(field.data()), static_cast<std::size_t>(field.bytes()));
      if (!std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; })) return;
      if (never == nullptr) never = &field;
    }
    if (never != nullptr)
      throw Error(ErrorKind::invalid_argument, operation,
                  "parameter '" + never->name +
                      "' starts with random values and was never given any. Call initialise(seed) first, or write "
                      "the parameters into the state",
                  where);
  }

  std::deque<Field>& fields() noexcept { return fields_; }
  std::deque<Field> const& fields() const noexcept { return fields_; }
  /// Null where there is none.
  Field* find(std::string_view name) noexcept {
    for (Field& field : fields_)
      if (field.name == name) return &field;
    return nullptr;
  }
  Field const* find(std::string_view name) const noexcept { return const_cast<State*>(this)->find(name); }
  /// Errors: invalid_argument.
  Field& at(std::string_view name, std::source_location where = std::source_location::current()) {
    if (Field* const field = find(name)) return *field;
    std::string names;
    for (Field const& field : fields_) names += (names.empty() ? "" : ", ") + field.name;
    throw Error(ErrorKind::invalid_argument, "State::at",
                "there is no field '" + std::string(name) + "'. There are: " + (names.empty() ? "none" : names), where);
  }
  TensorView<float> operator[](std::string_view name) { return at(name).view<float>(); }
  std::int64_t bytes() const noexcept {
    std::int64_t total = 0;
    for (Field const& field : fields_) total += field.bytes();
    return total;
  }

 private:
  std::deque<Field> fields_;  // addresses of fields stay
  Memory together_;           // of shared fields
  bool writer_ = true;        // of these
  bool initialised_ = false;  // somebody says so
  std::string folder_;        // of files for what is no parameter
};

}  // namespace tutti::graph
