// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Stacks to run functions on, switched by hand. What g++'s sanitizers must be told about it is said here.

#include <cstddef>
#include <memory>
#include <vector>

namespace emulated {

/// Runs `entry(index)` of up to as many fibers as were ever asked for; a fiber runs until it calls `leave`.
class Fibers {
 public:
  using Entry = void (*)(unsigned index);

  Fibers();
  ~Fibers();
  Fibers(Fibers const&) = delete;
  Fibers& operator=(Fibers const&) = delete;

  /// Forgets all fibers, whatever they were doing, and makes `count` new ones.
  void start(unsigned count, Entry entry);
  /// Goes on with a fiber until it leaves. Called by the scheduler, not by a fiber.
  void enter(unsigned index);
  /// Back to the scheduler. Called by the fiber that runs.
  void leave(bool for_good = false);

 private:
  struct Fiber;
  static void first();
  std::vector<std::unique_ptr<Fiber>> fibers_;
  void* scheduler_ = nullptr;  ///< its stack pointer, or its ucontext
  void* scheduler_fake_stack_ = nullptr;
  void const* scheduler_bottom_ = nullptr;
  std::size_t scheduler_size_ = 0;
  Entry entry_ = nullptr;
  unsigned running_ = 0;
};

}  // namespace emulated
