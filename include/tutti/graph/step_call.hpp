// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a step does at every run, and its operands in memory.

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/steps.hpp>

#include <cstddef>
#include <utility>

namespace tutti::graph {

/// What one step does at every run, on a context of processors or with the libraries of a device. Outlived by the step
/// and its memory.
template <class Engine>
class CallOn {
 public:
  virtual ~CallOn() = default;
  virtual void run(Engine& engine) = 0;
};

/// A call of f(engine).
template <class Engine, class F>
Owner<CallOn<Engine>> call_on(F f) {
  class Call final : public CallOn<Engine> {
   public:
    explicit Call(F&& body) : f(std::move(body)) {}
    void run(Engine& engine) override { f(engine); }

   private:
    F f;
  };
  return make_owner<Call>(std::move(f));
}

/// The operands of a step as pointers, null where one is absent.
struct Operands {
  Step const& step;
  List<std::byte*> reads{}, writes{};

  template <class T = float>
  T* read(std::size_t i) const noexcept { return i < reads.size() ? reinterpret_cast<T*>(reads[i]) : nullptr; }
  template <class T = float>
  T* write(std::size_t i) const noexcept { return i < writes.size() ? reinterpret_cast<T*>(writes[i]) : nullptr; }
};

inline bool all_float32(Step const& step) noexcept {
  for (Ref const& ref : step.reads)
    if (ref && ref.dtype != DType::float32) return false;
  return step.writes[0].dtype == DType::float32;
}

}  // namespace tutti::graph
