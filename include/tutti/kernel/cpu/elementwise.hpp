// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Elementwise chains on the CPU: an interpreter whose registers are tiles that stay in L1, so that one decoded
/// instruction serves hundreds of elements.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/box.hpp>
#include <tutti/kernel/cpu/tile.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cpu {

namespace detail {

/// One chain, prepared once by the caller's thread and then read by all.
template <class Real>
class ElementwiseChain {
 public:
  static constexpr int most_inputs = ElementwiseLimits::inputs, most_instructions = ElementwiseLimits::instructions;

  ElementwiseChain(Elementwise const& args, TileFunctions functions, RunTile<Real> const* runs)
      : args_(args), functions_(functions), runs_(runs), box_(args.shape, static_cast<int>(args.inputs.size())) {
    for (int input = 0; input < inputs(); ++input) box_.strides[at(input)] = args.inputs[at(input)].strides;
    box_.merge();
    choose_places();
    std::int64_t const slots = std::max(1, slots_);
    tile_ = std::clamp<std::int64_t>(buffer_size / slots / 16 * 16 - 16, 16, 1024);
    by_rows_ = box_.rank == 1 || box_.inner() >= 64;
    if (by_rows_) {
      std::int64_t const parts = (box_.inner() + tile_ - 1) / tile_;
      tile_ = ((box_.inner() + parts - 1) / parts + 15) / 16 * 16;
    }
    slot_size_ = tile_ + 16;  // equal places of two slots must not be 4,096 bytes apart: such stores hold up loads
  }

  /// Elements [begin, end) in row-major order.
  void run(std::int64_t begin, std::int64_t end) const {
    alignas(64) Real buffer[buffer_size];
    alignas(64) Real splats[most_inputs][16];
    TileOperand<Real> registers[most_inputs + most_instructions];
    for (int index = 0; index < inputs() + instructions(); ++index) {
      Register const& r = registers_[index];
      if (r.place == Place::invariant) registers[index] = {invariants_[r.slot], true};
      if (r.place == Place::slot) registers[index] = {buffer + r.slot * slot_size_, false};
    }
    std::int64_t const inner = box_.inner();
    for (std::int64_t position = begin; position < end;) {
      std::int64_t const row = position / inner, column = position % inner;
      std::int64_t n = std::min(tile_, end - position);
      if (by_rows_) n = std::min(n, inner - column);
      for (int input = 0; input < inputs(); ++input)
        registers[input] = operand(input, registers[input], buffer, splats[input], position, row, column, n);
      for (int index = 0; index < instructions(); ++index) {
        ElementwiseInstruction const& instruction = args_.instructions[at(index)];
        if (is_constant(instruction)) continue;
        int const result = inputs() + index;
        if (registers_[result].place == Place::output)
          registers[result] = {static_cast<Real*>(args_.outputs[at(registers_[result].slot)].data) + position, false};
        TileOperand<Real> const operands[3] = {registers[std::max<int>(0, instruction.a)],
                                               registers[std::max<int>(0, instruction.b)],
                                               registers[std::max<int>(0, instruction.c)]};
        runs_[instruction.op.number](instruction.value, const_cast<Real*>(registers[result].data), operands, n);
      }
      for (ElementwiseOutput const& output : args_.outputs)
        if (Register const& r = registers_[output.source];
            r.place != Place::output || &output != &args_.outputs[at(r.slot)])
          store_any(functions_, output.dtype, registers[output.source], output.data, position, n);
      position += n;
    }
  }

 private:
  static constexpr std::int64_t buffer_size = 24576 / static_cast<std::int64_t>(sizeof(Real));
  static constexpr DType own = dtype_of<Real>;
  enum class Place : std::uint8_t {
    invariant,  ///< one value for all elements
    in_place,   ///< a contiguous input, read where it lies
    slot,       ///< a tile of the buffer
    output,     ///< computed into the output's memory
  };
  struct Register {
    Place place = Place::slot;
    std::int16_t slot = 0;
  };

  bool is_constant(ElementwiseInstruction const& instruction) const { return runs_[instruction.op.number] == nullptr; }
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  int inputs() const { return static_cast<int>(args_.inputs.size()); }
  int instructions() const { return static_cast<int>(args_.instructions.size()); }

  bool all_zero_strides(int input) const {
    for (int axis = 0; axis < box_.rank; ++axis)
      if (box_.stride(input, axis) != 0) return false;
    return true;
  }
  bool contiguous(int input) const {
    std::int64_t step = 1;
    for (int axis = box_.rank - 1; axis >= 0; step *= box_.extent(axis), --axis)
      if (box_.stride(input, axis) != step) return false;
    return true;
  }
  bool overwritten(int input) const {
    for (ElementwiseOutput const& output : args_.outputs)
      if (output.data == args_.inputs[at(input)].data) return true;
    return false;
  }

  /// Registers share slots of the buffer where their lives do not meet; fewer slots make longer tiles.
  void choose_places() {
    int const count = inputs() + instructions();
    int last_use[most_inputs + most_instructions];
    std::fill_n(last_use, count, -1);
    for (int index = 0; index < instructions(); ++index)
      for (std::int16_t operand :
           {args_.instructions[at(index)].a, args_.instructions[at(index)].b, args_.instructions[at(index)].c})
        if (operand >= 0) last_use[operand] = index;
    for (std::size_t index = 0; index < args_.outputs.size(); ++index) {
      ElementwiseOutput const& output = args_.outputs[index];
      last_use[output.source] = instructions();
      Register& r = registers_[output.source];
      if (output.source >= inputs() && output.dtype == own && r.place != Place::output)
        r = {Place::output, static_cast<std::int16_t>(index)};
    }
    bool taken[most_inputs + most_instructions] = {};
    auto const claim = [&](Register& r) {
      int slot = 0;
      while (taken[slot]) ++slot;
      taken[slot] = true;
      r = {Place::slot, static_cast<std::int16_t>(slot)};
      slots_ = std::max(slots_, slot + 1);
    };
    int invariants = 0;
    for (int input = 0; input < inputs(); ++input) {
      ElementwiseInput const& from = args_.inputs[at(input)];
      Register& r = registers_[input];
      contiguous_[input] = contiguous(input);
      readable_[input] = from.dtype == own && !overwritten(input);
      if (all_zero_strides(input)) {
        r = {Place::invariant, static_cast<std::int16_t>(invariants)};
        Real value{};
        load_any(functions_, from.dtype, from.data, 0, 0, &value, 1);
        std::fill_n(invariants_[invariants++], 16, value);
      } else if (contiguous_[input] && readable_[input]) {
        r.place = Place::in_place;
      } else {
        claim(r);
      }
    }
    for (int index = 0; index < instructions(); ++index) {
      ElementwiseInstruction const& instruction = args_.instructions[at(index)];
      Register& r = registers_[inputs() + index];
      for (std::int16_t operand : {instruction.a, instruction.b, instruction.c})
        if (operand >= 0 && last_use[operand] == index && registers_[operand].place == Place::slot)
          taken[registers_[operand].slot] = false;
      if (is_constant(instruction)) {
        r = {Place::invariant, static_cast<std::int16_t>(invariants)};
        std::fill_n(invariants_[invariants++], 16, static_cast<Real>(instruction.value));
      } else if (r.place != Place::output) {
        claim(r);
      }
    }
  }

  TileOperand<Real> operand(int input, TileOperand<Real> before, Real* buffer, Real* splat, std::int64_t position,
                            std::int64_t row, std::int64_t column, std::int64_t n) const {
    Register const& r = registers_[input];
    if (r.place == Place::invariant) return before;
    ElementwiseInput const& from = args_.inputs[at(input)];
    if (r.place == Place::in_place) return {static_cast<Real const*>(from.data) + position, false};
    Real* const to = buffer + r.slot * slot_size_;
    std::int64_t const stride = box_.stride(input, box_.rank - 1);
    if (contiguous_[input]) {
      load_any(functions_, from.dtype, from.data, position, 1, to, n);
    } else if (by_rows_) {
      std::int64_t const offset = box_.row_offset(input, row) + column * stride;
      if (stride == 1 && readable_[input]) return {static_cast<Real const*>(from.data) + offset, false};
      if (stride == 0) {
        load_any(functions_, from.dtype, from.data, offset, 0, splat, 1);
        std::fill_n(splat, 16, splat[0]);
        return {splat, true};
      }
      load_any(functions_, from.dtype, from.data, offset, stride, to, n);
    } else {
      std::int64_t const inner = box_.inner();
      for (std::int64_t filled = 0; filled < n; ++row, column = 0) {
        std::int64_t const length = std::min(inner - column, n - filled);
        load_any(functions_, from.dtype, from.data, box_.row_offset(input, row) + column * stride, stride, to + filled,
                 length);
        filled += length;
      }
    }
    return {to, false};
  }

  Elementwise const& args_;
  TileFunctions functions_;
  RunTile<Real> const* runs_;  ///< by number of the function
  Box<most_inputs> box_;
  std::int64_t tile_ = 0;
  std::int64_t slot_size_ = 0;
  int slots_ = 0;
  bool by_rows_ = false;
  bool contiguous_[most_inputs] = {};
  bool readable_[most_inputs] = {};
  Register registers_[most_inputs + most_instructions];
  alignas(64) Real invariants_[most_inputs + most_instructions][16];
};

template <class Real>
void run_elementwise(exec::Context& context, Elementwise const& args, TileFunctions functions,
                     RunTile<Real> const* runs) {
  ElementwiseChain<Real> const chain(args, functions, runs);
  std::int64_t const grain =
      std::max<std::int64_t>(1024, 16384 / (1 + static_cast<std::int64_t>(args.instructions.size())) / 64 * 64);
  context.parallel_for(args.shape.size(), grain, [&](std::int64_t begin, std::int64_t end) { chain.run(begin, end); });
}

}  // namespace detail

/// See kernel::Elementwise; the instructions' functions are those of the table (kernel/elementwise_functions.hpp).
/// Integers are stored toward zero and saturate, NaN as 0; `maximum` returns NaN where either
/// is. Errors: internal (a limit of the chain, a register that does not exist).
template <class Functions>
void elementwise(exec::Context& context, Elementwise const& args) {
  check_elementwise<Functions>(args);
  if (args.shape.size() == 0) return;
  TileFunctions const functions = detail::select_tile_functions(context.isa());
  if (runs_in_double(args))
    detail::run_elementwise<double>(context, args, functions, detail::precise_runs<Functions>.data());
  else detail::run_elementwise<float>(context, args, functions, detail::select_tile_runs<Functions>(context.isa()));
}

}  // namespace tutti::kernel::cpu
