// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fibers.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Keeps what a call must keep, and nothing else: swapcontext makes a system call for the signal mask.
asm(R"(
.text
.type tutti_emulated_switch, @function
tutti_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tutti_emulated_switch, . - tutti_emulated_switch
)");
extern "C" void tutti_emulated_switch(void** save, void* load);
#endif

namespace emulated {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = std::size_t{256} << 10;  // its frames are several times as large
#else
constexpr std::size_t stack_bytes = std::size_t{64} << 10;
#endif
constexpr std::size_t guard_bytes = 4096;

Fibers* current = nullptr;  // one scheduler runs at a time, on one thread

}  // namespace

struct Fibers::Fiber {
  char* memory;  ///< the guard, then the stack
  void* pointer = nullptr;
  void* fake_stack = nullptr;
#if !defined(__x86_64__)
  ucontext_t context{};
#endif

  Fiber()
      : memory(static_cast<char*>(::mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (memory == MAP_FAILED || ::mprotect(memory, guard_bytes, PROT_NONE) != 0) throw std::bad_alloc();
  }
  ~Fiber() { ::munmap(memory, guard_bytes + stack_bytes); }
  char* bottom() const { return memory + guard_bytes; }
};

Fibers::Fibers() = default;
Fibers::~Fibers() = default;

void Fibers::first() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &current->scheduler_bottom_, &current->scheduler_size_);
#endif
  current->entry_(current->running_);
  current->leave(true);
  std::abort();  // a fiber that is done is not entered again
}

void Fibers::start(unsigned count, Entry entry) {
  current = this;
  entry_ = entry;
  while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>());
  for (unsigned index = 0; index < count; ++index) {
    Fiber& fiber = *fibers_[index];
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(fiber.bottom(), stack_bytes);
#endif
    fiber.fake_stack = nullptr;
#if defined(__x86_64__)
    // As if `first` had just been called: the stack pointer is 8 below a multiple of 16, at a return address of 0.
    auto* top = reinterpret_cast<std::uint64_t*>(fiber.bottom() + stack_bytes);
    *--top = 0;
    *--top = reinterpret_cast<std::uint64_t>(&Fibers::first);
    for (int saved = 0; saved < 6; ++saved) *--top = 0;
    fiber.pointer = top;
#else
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.bottom();
    fiber.context.uc_stack.ss_size = stack_bytes;
    ::makecontext(&fiber.context, &Fibers::first, 0);
#endif
  }
}

void Fibers::enter(unsigned index) {
  Fiber& fiber = *fibers_[index];
  running_ = index;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber.bottom(), stack_bytes);
#endif
#if defined(__x86_64__)
  tutti_emulated_switch(&scheduler_, fiber.pointer);
#else
  ucontext_t here;
  scheduler_ = &here;
  ::swapcontext(&here, &fiber.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Fibers::leave([[maybe_unused]] bool for_good) {
  Fiber& fiber = *fibers_[running_];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, scheduler_bottom_, scheduler_size_);
#endif
#if defined(__x86_64__)
  tutti_emulated_switch(&fiber.pointer, scheduler_);
#else
  ::swapcontext(&fiber.context, static_cast<ucontext_t*>(scheduler_));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_bottom_, &scheduler_size_);
#endif
}

}  // namespace emulated
