// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Host memory through which device memory travels where a backend reaches the host's alone: `PinnedMemory`, a pool of
/// it, and copies that are under way beside other work.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/tensor/storage.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace tutti::comm {

/// Whether memory of device D passes through the host's on its way: with a backend that works on that.
template <class D, class BackendDevice>
inline constexpr bool passes_host = !D::host_accessible && std::is_same_v<BackendDevice, Cpu>;

/// Host memory that is fit for the copies of a device. Systems pin whole pages, and devices refuse to pin one twice: a
/// block has the pages that it lies on for itself. Move-only.
template <Device D>
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// Bytes in `memory`, which has room(bytes).
  /// Errors   the device's, which may refuse to pin.
  PinnedMemory(D const& device, Storage<Cpu> memory, std::size_t bytes)
      : device_(device), memory_(std::move(memory)), data_(memory_.data()), bytes_(bytes) {
    if constexpr (pins) {
      if (bytes == 0) return;
      auto const address = reinterpret_cast<std::uintptr_t>(data_);
      void* const pages = static_cast<std::byte*>(data_) + (page() - address % page()) % page();
      data_ = nullptr;  // pinned by nobody yet
      D(device_).pin(pages, whole_pages(bytes));
      data_ = pages;
    }
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : device_(other.device_), memory_(std::move(other.memory_)), data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    if (this == &other) return *this;
    unpin();
    device_ = other.device_;
    memory_ = std::move(other.memory_);
    data_ = other.data_;
    bytes_ = other.bytes_;
    other.data_ = nullptr;
    other.bytes_ = 0;
    return *this;
  }
  ~PinnedMemory() { unpin(); }

  /// What a block of so many bytes needs of memory that lies anywhere.
  static std::size_t room(std::size_t bytes) noexcept {
    if constexpr (pins)
      if (bytes != 0) return whole_pages(bytes) + page() - 1;
    return bytes;
  }

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  D const& device() const noexcept { return device_; }

 private:
  static constexpr bool pins = requires(D device, void* memory, std::size_t bytes) { device.pin(memory, bytes); };
  void unpin() noexcept {
    if constexpr (pins)
      if (data_ != nullptr && bytes_ != 0) D(device_).unpin(data_, whole_pages(bytes_));
  }
  static std::size_t page() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  static std::size_t whole_pages(std::size_t bytes) noexcept { return (bytes + page() - 1) / page() * page(); }

  D device_{};
  Storage<Cpu> memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Blocks that were used before, kept for the next operation: pinning costs more than a small copy.
class StagingPool {
 public:
  class Block {
   public:
    virtual ~Block() = default;
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }

   protected:
    Block(void const* kind, void* data, std::size_t bytes) noexcept
        : kind_(kind), data_(static_cast<std::byte*>(data)), bytes_(bytes) {}

   private:
    friend StagingPool;
    void const* kind_;
    std::byte* data_;
    std::size_t bytes_;
  };

  /// At least `bytes`, pinned for `device`; `allocate(bytes)` makes the memory of a new one.
  template <Device D, class Allocate>
  Owner<Block> take(D const& device, std::size_t bytes, Allocate&& allocate) {
    for (std::size_t i = 0; i < free_.size(); ++i) {
      if (free_[i]->kind_ != &kind_of<D> || free_[i]->bytes_ < bytes) continue;
      if (!(static_cast<Pinned<D>&>(*free_[i]).memory.device() == device)) continue;
      Owner<Block> found = std::move(free_[i]);
      free_.erase(i);
      return found;
    }
    return make_owner<Pinned<D>>(device, allocate(PinnedMemory<D>::room(bytes)), bytes);
  }
  /// Larger ones than `most_bytes` are not kept.
  template <class = void>
  void give_back(Owner<Block> block, std::size_t most_bytes) {
    if (free_.size() < most_kept && block->bytes() <= most_bytes) free_.push_back(std::move(block));
  }

 private:
  static constexpr std::size_t most_kept = 16;
  template <class D>
  static constexpr char kind_of = 0;
  template <Device D>
  struct Pinned final : Block {
    Pinned(D const& device, Storage<Cpu> from, std::size_t bytes)
        : Pinned(PinnedMemory<D>(device, std::move(from), bytes)) {}
    explicit Pinned(PinnedMemory<D> pinned) noexcept
        : Block(&kind_of<D>, pinned.data(), pinned.bytes()), memory(std::move(pinned)) {}
    PinnedMemory<D> memory;
  };

  List<Owner<Block>> free_;
};

/// Copies between one device and the host, beside other work where the device can.
template <Device D>
class Copies {
 public:
  explicit Copies(D const& device) : device_(device) {}

  void to_host(void* to, void const* from, std::size_t bytes) {
    if (bytes == 0) return;
    as_errors([&] {
      if constexpr (beside) under_way_.push_back(device_.start_copy_to_host(to, from, bytes));
      else device_.copy_to_host(to, from, bytes);
    });
  }
  void from_host(void* to, void const* from, std::size_t bytes) {
    if (bytes == 0) return;
    as_errors([&] {
      if constexpr (beside) under_way_.push_back(device_.start_copy_from_host(to, from, bytes));
      else device_.copy_from_host(to, from, bytes);
    });
  }
  bool done() {
    if constexpr (beside) {
      for (auto& copy : under_way_) {
        bool complete = false;
        as_errors([&] { complete = device_.test(copy); });
        if (!complete) return false;
      }
      under_way_.clear();
    }
    return true;
  }

 private:
  /// What else a device throws, as an Error that names it: of a collective another exception is its operator's.
  template <class F>
  static void as_errors(F&& f) {
    try {
      f();
    } catch (Error const&) {
      throw;
    } catch (std::exception const& error) {
      throw Error(ErrorKind::communication, "copy", concat("the device ", D::name, " failed: ", error.what()));
    }
  }

  static constexpr bool beside = requires(D device, void* to, void const* from, std::size_t bytes,
                                          typename D::Copy copy) {
    copy = device.start_copy_to_host(to, from, bytes);
    copy = device.start_copy_from_host(to, from, bytes);
    static_cast<bool>(device.test(copy));
  };
  struct None {};
  template <class X>
  struct CopyOf {
    using Type = None;
  };
  template <class X>
    requires beside
  struct CopyOf<X> {
    using Type = typename X::Copy;
  };

  D device_;
  List<typename CopyOf<D>::Type> under_way_;
};

}  // namespace tutti::comm
