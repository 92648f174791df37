// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Device memory that NCCL knows beforehand, so that collectives on it need no copies through buffers of their own:
/// registered with one communicator by each rank for itself, or as one symmetric window by all ranks together.

#include <tutti/backend/nccl/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/tensor/storage.hpp>

#include <nccl.h>

#include <cstddef>
#include <utility>

namespace tutti::nccl {

/// The blocks of one communicator. They may outlive it: what it closes is no longer registered, and still memory.
class Registry {
 public:
  explicit Registry(ncclComm_t comm) noexcept : comm_(comm) {}

  ncclComm_t comm() const noexcept { return comm_; }

  /// Memory that this rank has registered.
  /// Errors     out_of_memory; communication of what else NCCL says.
  static Storage<Cuda> allocate(Shared<Registry> const& registry, Cuda device, std::size_t bytes) {
    if (bytes == 0) return Storage<Cuda>(device, 0);
    Storage<Cuda> memory = block(registry, device, bytes);
    Guard const guard(registry->mutex_);
    void* handle = nullptr;
    check(ncclCommRegister(registry->comm_, memory.data(), bytes, &handle), "ncclCommRegister", registry->comm_);
    registry->entries_.push_back({memory.data(), handle, nullptr});
    return memory;
  }
  /// Memory for a window, in none yet.
  static Storage<Cuda> unregistered(Shared<Registry> const& registry, Cuda device, std::size_t bytes) {
    return block(registry, device, bytes);
  }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  /// Memory of `unregistered` becomes part of a window of all ranks, when `poll` has seen NCCL through it. When that
  /// throws, NCCL may know the memory, and does until the communicator was aborted: so long it must live.
  template <class Poll>
  static void make_window(Shared<Registry> const& registry, Storage<Cuda>& memory, std::size_t bytes, Poll&& poll) {
    Window window = nullptr;
    check(ncclCommWindowRegister(registry->comm_, memory.data(), bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister", registry->comm_);
    poll();
    Guard const guard(registry->mutex_);
    registry->entries_.push_back({memory.data(), nullptr, window});
  }
#endif

  /// Before the communicator goes.
  void close() noexcept {
    Guard const guard(mutex_);
    for (Entry const& entry : entries_) drop(entry);
    entries_.clear();
    comm_ = nullptr;
  }
  /// After the communicator was aborted, and with it what it knew.
  void lose() noexcept {
    Guard const guard(mutex_);
    entries_.clear();
    comm_ = nullptr;
  }

 private:
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  using Window = ncclWindow_t;
#else
  using Window = std::nullptr_t;
#endif
  struct Entry {
    void* memory;
    void* handle;
    Window window;
  };

  static Storage<Cuda> block(Shared<Registry> const& registry, Cuda device, std::size_t bytes) {
    cuda::CurrentDevice const current(device.index());
    void* memory = nullptr;
    if (ncclMemAlloc(&memory, bytes) != ncclSuccess)
      throw Error(ErrorKind::out_of_memory, "Nccl::allocate",
                  concat(bytes, " bytes of device memory for NCCL are not available"))
          .with_native(error_text(ncclSystemError));
    auto const release = [](void* owner, Cuda const& on, void* block, std::size_t) noexcept {
      auto* const shared = static_cast<Shared<Registry>*>(owner);
      (*shared)->forget(block);
      delete shared;
      try {
        cuda::CurrentDevice const here(on.index());
        static_cast<void>(ncclMemFree(block));
      } catch (...) {  // the device is gone, and its memory with it
      }
    };
    return Storage<Cuda>(device, memory, bytes, release, new Shared<Registry>(registry));
  }
  void forget(void* memory) noexcept {
    Guard const guard(mutex_);
    entries_.erase_if([&](Entry const& entry) {
      if (entry.memory != memory) return false;
      drop(entry);
      return true;
    });
  }
  void drop(Entry const& entry) noexcept {
    if (comm_ == nullptr) return;
    if (entry.handle != nullptr) static_cast<void>(ncclCommDeregister(comm_, entry.handle));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    if (entry.window != nullptr) static_cast<void>(ncclCommWindowDeregister(comm_, entry.window));
#endif
  }

  ncclComm_t comm_;
  Mutex mutex_;
  List<Entry> entries_;
};

}  // namespace tutti::nccl
